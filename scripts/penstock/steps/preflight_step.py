"""preflight: checks everything that would stop a run, before it begins. Changes nothing.

Each problem names the key or the URL that it is about, and says what to do. All checks are made before
anything is reported, so that one run names all problems.
"""

from __future__ import annotations

import contextlib
import grp
import importlib.util
import json
import os
import sys
from typing import TYPE_CHECKING

from penstock.arrays.live_arrays import live_arrays
from penstock.cluster.port import Visit
from penstock.config.serialization import to_json
from penstock.config.source_kinds import FOLDER_SCHEMES
from penstock.core import events
from penstock.core.checks import told
from penstock.core.step_table import RUN_IN_ELEMENTS
from penstock.errors import InterruptedRunError, NoSpaceError, PenstockError, PreflightError, TransientError
from penstock.filesystem.capabilities import facts
from penstock.filesystem.clients.registry import check_mount
from penstock.listing.collection import apart, open_sources, ordered
from penstock.listing.key_filter import Filter
from penstock.locks import dataset_lock
from penstock.release.evidence import beyond
from penstock.sources.registry import folder, scheme, states_checksums
from penstock.vendors import registry
from penstock.views import human

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig
    from penstock.core.documents.step_results import PreflightResult
    from penstock.core.layout import DatasetLayout
    from penstock.state.context import Context

STEP = "preflight"
VISIT_TIMEOUT = 15.0
"""Seconds without a byte after which a source counts as unreachable from a node. The probe job has a minute
for all."""
OF_THE_SHELL = frozenset(
    {
        "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_ENDPOINT_URL",
        "AZURE_STORAGE_KEY", "AZURE_STORAGE_CONNECTION_STRING", "GOOGLE_APPLICATION_CREDENTIALS",
        "KRB5CCNAME",
    }
)  # fmt: skip
"""Environment variables that let this shell open a source, and that do not reach a node."""
LIBRARIES = ("pyarrow", "xxhash", "pathspec")


def run(context: Context, dataset: str) -> PreflightResult:
    """Check one dataset, its sources, target and cluster. Returns the receipt {dataset, checked, warnings}.

    Raises PreflightError, NoSpaceError or ConfigError for what cannot work: one thing as it is, several
    as one PreflightError that names them all, with the exit status of all where they agree.
    """
    context.emit(events.Started(dataset, STEP))
    config, layout = context.dataset(dataset), context.layout(dataset)
    checked: list[str] = []
    warnings: list[str] = []
    looks = _Looks(context)
    with looks:
        checked.append(_interpreter())
    with looks:
        checked.append(_target(context, layout, warnings))
    with looks:
        _mounts(context, config, layout, warnings)
    with looks:
        checked.append(_group(context, config))
    with looks:
        checked.extend(_vendors(context, config, layout, warnings))
    with looks:
        _evidence(context, config, layout)
    with looks:
        checked.extend(_sources(context, config, layout, looks))
    with looks:
        _cluster(context, dataset, checked, warnings)
    looks.judge()
    for text in warnings:
        context.emit(events.Warned(dataset, STEP, text))
    receipt: PreflightResult = {"dataset": config.name, "checked": checked, "warnings": warnings}
    context.emit(events.Ended(dataset, STEP, receipt))
    return receipt


class _Looks:
    """Collects the errors of single checks (`with looks:`), so that one run reports all of them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._errors: list[PenstockError] = []

    def __enter__(self) -> None:
        self._context.stop.check()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if not isinstance(error, PenstockError) or isinstance(error, InterruptedRunError):
            return False
        self._errors.append(error)
        return True

    def judge(self) -> None:
        """Raises the error, or one error that names all of them; nothing where there is none."""
        errors = list({str(error): error for error in self._errors}.values())
        if not errors:
            return
        if len(errors) == 1:
            raise errors[0]
        told = PreflightError(
            f"{len(errors)} things stop the run", why="\n" + "\n".join(f"- {error}" for error in errors)
        )
        codes = {error.exit_code for error in errors}
        if len(codes) == 1:
            told.exit_code = codes.pop()
        raise told


def _cluster(context: Context, dataset: str, checked: list[str], warnings: list[str]) -> None:
    config, layout = context.dataset(dataset), context.layout(dataset)
    steps = [*RUN_IN_ELEMENTS, *context.config.cluster.on_nodes]
    met: list[str] = []
    if not context.cluster.abilities.elements_end_with_controller:
        # Where the cluster does not answer, `cluster.check` below reports that, in the words of preflight.
        with contextlib.suppress(TransientError):
            met = [one.array for one in live_arrays(context, dataset) if not one.elsewhere]
    if met:
        context.emit(events.Noted(dataset, STEP, f"array {', '.join(met)} lives: no probe is sent to a node"))
    warnings.extend(context.cluster.check(steps, _visit(context, config, layout), met=bool(met)))
    checked.append(
        f"cluster: {context.cluster.kind}, {human.counted(context.cluster.slots('copy'), 'element')} at once"
    )


def _visit(context: Context, config: DatasetConfig, layout: DatasetLayout) -> Visit:
    """The command that opens the dataset's sources on a node: its profiles, routes and mounts may differ from
    this machine's."""
    given = {"dataset": to_json(config), "timeout": min(context.config.engine.timeout, VISIT_TIMEOUT)}
    unknown = sorted(name for name in os.environ if name.upper() in OF_THE_SHELL)
    hint = (
        "profiles, credential files, mounts and routes must be on the nodes as here; "
        "or name a partition whose nodes have them"
    )
    if unknown:
        hint += f" (nothing of this shell reaches a node, also not {', '.join(unknown)})"
    beside = layout.root if layout.root.is_dir() else layout.root.parent
    return Visit(("visit",), json.dumps(given, ensure_ascii=True), beside, hint)


def _interpreter() -> str:
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise PreflightError(
            "this Python environment lacks libraries",
            where=sys.executable,
            why=f"missing: {', '.join(missing)}",
            hint="install penstock with its dependencies into this environment",
        )
    return f"interpreter: {sys.executable} {sys.version.split()[0]}"


def _target(context: Context, layout: DatasetLayout, warnings: list[str]) -> str:
    context.storage.check_root(layout.root)
    if layout.state_root is not None:
        context.storage.check_root(layout.state_root)
    context.storage.check_owner(layout)
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
            why=f"{human.size(seen.free_bytes)} are free, and target.keep_free is {human.size(keep)}",
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
    for state in (layout.state, layout.state.parent, layout.state.parent.parent):
        if state.is_dir():
            dataset_lock.try_out(state, layout.dataset)
            break
    room = f"{human.size(seen.free_bytes)} free"
    return f"target: {layout.root}, {seen.kind}, {room}, durable by {seen.durability}"


def _vendors(
    context: Context, config: DatasetConfig, layout: DatasetLayout, warnings: list[str]
) -> list[str]:
    """What the commands of the file system's vendor say of the target; nothing where it has none. Raises
    PreflightError for what stops the run."""
    results = registry.check_target(layout.releases, gid=context.storage.group_id(config.permissions))
    warnings.extend(told(result) for result in results if result.verdict == "warning")
    stops = [result for result in results if result.verdict == "stop"]
    if stops:
        raise PreflightError(
            "the target is not in order",
            where=str(layout.root),
            why="; ".join(f"{result.about}: {result.found}" for result in stops),
            hint="; ".join(dict.fromkeys(result.mend for result in stops)),
        )
    return [f"{result.about}: {result.found}" for result in results if result.verdict in ("ok", "note")]


def _mounts(context: Context, config: DatasetConfig, layout: DatasetLayout, warnings: list[str]) -> None:
    """What this machine's mounts of the target, and of the sources that are folders, say: warnings are added,
    notes are events. Raises PreflightError where one of them stops the run."""
    target = context.config.target
    found = check_mount(layout.root, named=target.filesystem, ephemeral=target.ephemeral)
    if layout.state_root is not None:
        found += check_mount(layout.state_root, ephemeral=target.ephemeral)
    for source in config.sources:
        if scheme(source.url) in FOLDER_SCHEMES:
            found += check_mount(folder(source.url), source=True)
    found = list(dict.fromkeys(found))
    for one in found:
        if one.verdict == "warning":
            warnings.append(told(one))
        elif one.verdict == "note":
            context.emit(events.Noted(config.name, STEP, told(one)))
    for one in found:
        if one.verdict == "stop":
            raise PreflightError(one.found, where=one.about, why=f"wanted: {one.wanted}", hint=one.mend)


def _evidence(context: Context, config: DatasetConfig, layout: DatasetLayout) -> None:
    """Raises PreflightError for proofs that the configuration requires and that are impossible here."""
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
    alone = not context.cluster.abilities.has_nodes
    why = beyond(verify, kind=facts(layout.root).kind, alone=alone, stated=stated)
    if why:
        raise PreflightError(
            f"the grade {verify.minimum_grade} cannot be reached",
            where="verify.minimum_grade",
            why=why,
            hint="lower it, or change what keeps files from it",
        )


def _group(context: Context, config: DatasetConfig) -> str:
    gid = context.storage.group_id(config.permissions)
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


def _sources(context: Context, config: DatasetConfig, layout: DatasetLayout, looks: _Looks) -> list[str]:
    Filter(config.include, config.exclude)
    sources = open_sources(config, context.config.engine.timeout)
    ordered(config, sources)
    apart(layout, sources)
    checked = []
    for source in sources:
        with looks:
            source.check()
            checked.append(f"source: {source.url}")
    return checked
