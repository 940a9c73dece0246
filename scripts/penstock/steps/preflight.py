"""preflight: everything that can be known to stop a run before it begins. Changes nothing.

Each look names the key or the URL it is about and says what to do. All datasets are looked at
before anything is told, so that one run names all that is wrong.
"""

from __future__ import annotations

import contextlib
import grp
import importlib.util
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from penstock.cluster.port import Visit
from penstock.config.model import to_json
from penstock.errors import NoSpaceError, PenstockError, PreflightError, TransientError
from penstock.sources.opening import states_checksums
from penstock.steps.evidence import beyond
from penstock.steps.filtering import Filter
from penstock.steps.gathering import apart, open_sources, ordered
from penstock.steps.live_arrays import live_arrays
from penstock.storage import permissions, target
from penstock.storage.facts import facts
from penstock.views import units

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config.model import DatasetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.steps.context import Context

STEP = "preflight"
ELEMENTS = ("copy", "verify")
"""The steps that always run as elements."""
VISIT_TIMEOUT = 15.0
"""Seconds without a byte for the probe, which has a minute."""
OF_THE_SHELL = frozenset(
    {
        "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_ENDPOINT_URL",
        "AZURE_STORAGE_KEY", "AZURE_STORAGE_CONNECTION_STRING", "GOOGLE_APPLICATION_CREDENTIALS",
        "KRB5CCNAME",
    }
)  # fmt: skip
"""Variables by which a shell opens a source that a node then cannot open."""
LIBRARIES = ("pyarrow", "xxhash", "pathspec")


def run(context: Context, dataset: str) -> dict[str, Any]:
    """Look at one dataset and its surroundings. Returns the receipt {dataset, checked, warnings}.

    Raises PreflightError, NoSpaceError or ConfigError for the first thing that cannot work.
    """
    context.emit("start", dataset, STEP)
    config, layout = context.dataset(dataset), context.layout(dataset)
    checked: list[str] = []
    warnings: list[str] = []
    checked.append(_interpreter())
    checked.append(_target(context, layout, warnings))
    checked.append(_group(config))
    _evidence(context, config, layout)
    checked.extend(_sources(context, config, layout))
    steps = [*ELEMENTS, *context.config.cluster.on_nodes]
    met: list[str] = []
    if context.cluster.kind != "local":
        # A cluster that does not answer is told of by its own check, in the words of preflight.
        with contextlib.suppress(TransientError):
            met = [one.array for one in live_arrays(context, dataset) if not one.elsewhere]
    if met:
        context.emit("note", dataset, STEP, text=f"array {', '.join(met)} lives: no probe is sent to a node")
    warnings.extend(context.cluster.check(steps, _visit(context, config, layout), met=bool(met)))
    checked.append(
        f"cluster: {context.cluster.kind}, {units.counted(context.cluster.slots('copy'), 'element')} at once"
    )
    for text in warnings:
        context.emit("warning", dataset, STEP, text=text)
    receipt: dict[str, Any] = {"dataset": config.name, "checked": checked, "warnings": warnings}
    context.emit("end", dataset, STEP, **receipt)
    return receipt


def run_all(context: Context, datasets: Sequence[str] = ()) -> dict[str, Any]:
    """`run` for these datasets, or for all. Returns {datasets: {name: receipt}}.

    One error is raised as it is; several as one PreflightError that holds them all, with the
    exit status of all where they agree.
    """
    receipts: dict[str, Any] = {}
    errors: list[tuple[str, PenstockError]] = []
    for name in datasets or list(context.config.datasets):
        context.stop.check()
        try:
            receipts[name] = run(context, name)
        except PenstockError as error:
            errors.append((name, error))
    if not errors:
        return {"datasets": receipts}
    messages = {str(error): error for _, error in errors}
    if len(messages) == 1:
        raise errors[0][1]
    codes = {error.exit_code for error in messages.values()}
    told = PreflightError(
        f"{len(messages)} things stop the run",
        why="\n" + "\n".join(f"- {name}: {error}" for name, error in errors),
    )
    if len(codes) == 1:
        told.exit_code = codes.pop()
    raise told


def _visit(context: Context, config: DatasetConfig, layout: DatasetLayout) -> Visit:
    """Opening the dataset's sources on a node, whose profiles, routes and mounts are not this machine's."""
    given = {"dataset": to_json(config), "timeout": min(context.config.engine.timeout, VISIT_TIMEOUT)}
    unknown = sorted(name for name in os.environ if name.upper() in OF_THE_SHELL)
    hint = (
        "profiles, credential files, mounts and routes must be on the nodes as here; "
        "or name a partition whose nodes have them"
    )
    if unknown:
        hint += f" (nothing of this shell reaches a node, also not {', '.join(unknown)})"
    folder = layout.root if layout.root.is_dir() else layout.root.parent
    return Visit(("visit",), json.dumps(given, ensure_ascii=True), folder, hint)


def _interpreter() -> str:
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise PreflightError(
            "the environment is not whole",
            where=sys.executable,
            why=f"missing: {', '.join(missing)}",
            hint="install penstock with its dependencies into this environment",
        )
    return f"interpreter: {sys.executable} {sys.version.split()[0]}"


def _target(context: Context, layout: DatasetLayout, warnings: list[str]) -> str:
    target.check_root(layout.root)
    if layout.state_root is not None:
        target.check_root(layout.state_root)
    target.check_owner(layout)
    seen = facts(layout.root)
    if seen.read_only:
        raise PreflightError(
            "the target is mounted read-only",
            where=str(layout.root),
            hint="correct `target.root`, or the mount",
        )
    keep = context.config.target.keep_free
    if seen.free_bytes <= keep:
        raise NoSpaceError(
            "the target has no room",
            where=str(layout.root),
            why=f"{units.size(seen.free_bytes)} are free, and target.keep_free is {units.size(keep)}",
            hint="make room, or lower target.keep_free",
        )
    if not seen.passable:
        warnings.append(
            f"{layout.root} is {seen.kind}: reads cannot be shown to pass this machine's caches there, so "
            "what is read back counts as `reread`, never as `cold`"
        )
    if os.geteuid() == 0:
        warnings.append(
            "this is root (uid 0): no folder's mode fences a late writer of root, and most network mounts "
            "squash root; stage by an account of its own"
        )
    room = f"{units.size(seen.free_bytes)} free"
    return f"target: {layout.root}, {seen.kind}, {room}, durable by {seen.durability}"


def _evidence(context: Context, config: DatasetConfig, layout: DatasetLayout) -> None:
    """Raises PreflightError for proofs that are asked for and can never be had here."""
    verify = context.config.verify
    stated = bool(config.checksums) or any(states_checksums(source.url) for source in config.sources)
    silent = [source.url for source in config.sources if not states_checksums(source.url)]
    if verify.source_checksum == "require" and silent and not config.checksums:
        raise PreflightError(
            "this source never states a checksum, and one is required of every file",
            where=", ".join(silent),
            hint=f"name checksum files beside the data in `datasets.{config.name}.checksums`, or set "
            "`verify.source_checksum: auto`",
        )
    alone = context.cluster.kind == "local"
    why = beyond(verify, kind=facts(layout.root).kind, alone=alone, stated=stated)
    if why:
        raise PreflightError(
            f"the grade {verify.minimum_grade} cannot be reached",
            where="verify.minimum_grade",
            why=why,
            hint="lower it, or change what keeps files from it",
        )


def _group(config: DatasetConfig) -> str:
    gid = permissions.group_id(config.permissions)
    if gid is None:
        return "group: as the target gives it"
    mine = {os.getegid(), *os.getgroups()}
    if os.geteuid() != 0 and gid not in mine:
        names = ", ".join(sorted(_name(group) for group in mine))
        raise PreflightError(
            f"this account may not give files to group {config.permissions.group!r}",
            where=f"datasets.{config.name}.permissions.group",
            why=f"it is in {names}",
            hint="have it added to the group, or name one of these",
        )
    return f"group: {config.permissions.group} ({gid})"


def _name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _sources(context: Context, config: DatasetConfig, layout: DatasetLayout) -> list[str]:
    Filter(config.include, config.exclude)
    sources = open_sources(config, context.config.engine.timeout)
    ordered(config, sources)
    apart(layout, sources)
    checked = []
    for source in sources:
        context.stop.check()
        source.check()
        checked.append(f"source: {source.url}")
    return checked
