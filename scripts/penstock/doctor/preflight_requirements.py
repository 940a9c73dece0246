"""Checks what a run needs besides the target: sources and their evidence, the signing key, the folder for the
bandwidth cap, and Python libraries. Also shows the site's bounds.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.config.source_kinds import of_url
from penstock.core import human
from penstock.core.errors import PenstockError, PreflightError
from penstock.core.human import printable
from penstock.core.node_answer import BandwidthFolderSeen
from penstock.core.run_steps import CheckResult
from penstock.fs import scratch
from penstock.fs.owners import user_number
from penstock.host import ssh_keygen
from penstock.jobs.bandwidth import Cap, has_mark, looked_at, overview
from penstock.listing.collection import apart, empty, folder_of, open_sources, ordered
from penstock.listing.evidence import beyond
from penstock.listing.listers import reach, stated
from penstock.listing.outside_lists import Filter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.config.settings import BandwidthConfig, DatasetConfig
    from penstock.config.site import Site
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.doctor.preflight_results import Answers, Looks
    from penstock.jobs.bandwidth import Overview


LIBRARIES = ("pyarrow", "xxhash", "pathspec")


def check_libraries(looks: Looks) -> None:
    """Raise PreflightError if libraries are missing."""
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise PreflightError(
            "this Python environment lacks libraries",
            where=sys.executable,
            why=f"missing: {', '.join(missing)}",
            hint="install penstock with its dependencies into this environment",
        )
    looks.saw(CheckResult("interpreter", f"{sys.executable} {sys.version.split()[0]}"))


PROBE = b"penstock preflight\n"


def check_signing_key(layout: DatasetLayout, looks: Looks) -> None:
    """Try the key, if signatures are configured. Raises PreflightError.

    | `sign_with` | the key                                    | verdict |
    |-------------|--------------------------------------------|---------|
    | no          |                                            | a note  |
    | yes         | cannot sign, or is not among `signers`     | stop    |
    | yes         | signs                                      | ok      |
    """
    signing = layout.signing
    if signing.signers is None:
        return
    ssh_keygen.check_signers(signing.signers)
    if signing.key is None:
        state = "what is published is not signed here, and readers who verify refuse it until it is"
        mend = f"set target.sign_with, or have `penstock sign {layout.dataset}` run after publish"
        looks.saw(CheckResult("signing key", state, "note", mend=mend))
        return
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ssh_keygen.sign_verified(signing.key, signing.signers, PROBE, at)
    looks.saw(CheckResult("signing key", f"{signing.key} signs, and {signing.signers} has it"))


def site_rows(site: Site) -> Iterator[CheckResult]:
    """Yield a result for each key in the site's file, with value and line. Warns of a folder that is missing
    on this machine, and of an unknown account: no gate opens for data that it stages."""
    target, bandwidth = site.bounds.target, site.bounds.bandwidth
    folders: dict[str, tuple[Path, ...]] = {
        "target.roots": target.roots,
        "bandwidth.folder": () if bandwidth.folder is None else (bandwidth.folder,),
    }
    for section, keys in (site.document.value or {}).items():
        for key, value in keys.items():
            name, line = f"{section}.{key}", site.document.line((section, key))
            texts = value if isinstance(value, list) else [value]
            state = printable(f"{', '.join(map(str, texts))} (line {line})")
            yield CheckResult(name, state)
            for folder in folders.get(name, ()):
                if not os.path.isdir(folder):
                    state = f"{printable(str(folder))} is no folder on this machine"
                    yield CheckResult(name, state, "warning", mend=f"correct line {line}, or mount it")
            for account in target.owners if name == "target.owners" else ():
                if user_number(account) is None:
                    state = f"{printable(account)} is no account on this machine: it is nobody"
                    yield CheckResult(name, state, "warning", mend=f"correct line {line}, or give its number")


# Checks of sources. They open each source on this machine, and send it a request that only reads.
#
# Inventories and lists of keys are fetched into a temporary folder, which is removed afterwards.


def check_sources(
    context: Context, config: DatasetConfig, layout: DatasetLayout, answers: Answers, looks: Looks
) -> None:
    """Raise ConfigError or PreflightError if the sources cannot be opened together. Report problems of single
    sources as results."""
    Filter(config.include, config.exclude)
    opened = open_sources(config)
    ordered(config, opened)
    if not answers.silent(layout.root):
        apart(layout, [source for source in opened if not answers.silent(folder_of(source))])
    without: list[str] = []
    for source, settings in zip(opened, config.sources, strict=True):
        with looks.at("source"):
            folder = folder_of(source)
            if folder is not None:
                answers.require(folder, "the source")
            if reach(settings, source, context.waiting(config.name, "preflight", source.url)) is False:
                without.append(source.url)
                if len(without) == len(opened):
                    raise empty(without)
            looks.saw(CheckResult("source", printable(source.url)))
        with looks.at("listing"), scratch.folder() as folder_of_lists:
            if lister := stated(context, config, settings, source, folder_of_lists):
                looks.saw(CheckResult("listing", printable(lister.note())))


def check_evidence(
    context: Context, config: DatasetConfig, layout: DatasetLayout, answers: Answers, looks: Looks
) -> None:
    """Raise PreflightError if `verify` requires evidence that the sources or the target cannot give."""
    verify = context.config.verify
    silent = [source.url for source in config.sources if not of_url(source.url).states_checksums]
    if verify.source_checksum == "require" and silent and not config.checksums:
        raise PreflightError(
            "this source never states a checksum, and one is required of every file",
            where=", ".join(silent),
            hint=f"name checksum files beside the data in `datasets.{config.name}.checksums`, or set "
            "`verify.source_checksum: auto`",
        )
    if not answers.silent(layout.root):
        check_grade(context, answers.facts(layout.root, "the target").kind)
    asked = []
    if verify.source_checksum == "require":
        asked.append("a checksum of the source for each file")
    if verify.minimum_grade != "auto":
        asked.append(f"the grade {verify.minimum_grade}")
    if asked:
        looks.saw(CheckResult("evidence", f"nothing rules out what is required: {', '.join(asked)}"))


def check_grade(context: Context, kind: str, where: str = "") -> None:
    """Raise PreflightError if a target of this kind cannot reach `verify.minimum_grade`. If a node sees that
    kind, `where` begins the message: `on the node n1, `."""
    verify = context.config.verify
    why = beyond(verify, kind=kind, alone=not context.cluster.abilities.has_nodes)
    if why:
        raise PreflightError(
            f"{where}the grade {verify.minimum_grade} cannot be reached",
            where="verify.minimum_grade",
            why=why,
            hint="lower it, or change what keeps files from it",
        )


def check_bandwidth(context: Context, answers: Answers, looks: Looks) -> None:
    """Raise PreflightError if the bandwidth folder cannot be read or written."""
    config = context.config.bandwidth
    if config.folder is None:
        return
    answers.require(config.folder, "the bandwidth folder")
    looked_at(config.folder)
    looks.saw(
        *judged_bandwidth(config, overview(config.folder)),
        what="the bandwidth cap is not in order",
        where=printable(str(config.folder)),
    )


def judged_bandwidth(config: BandwidthConfig, overview: Overview) -> list[CheckResult]:
    """Judge the cap file together with `bandwidth.link`:

    | the cap file                     | `bandwidth.link` | result                          |
    |----------------------------------|------------------|---------------------------------|
    | others than the administrator may| any              | stop, with what to do           |
    | change it, or it is malformed    |                  |                                 |
    | has a rate, or does not exist    | set              | ok, with the lower rate         |
    | has a rate                       | not set          | ok                              |
    | has no rate, or does not exist   | not set          | warning: nothing bounds the link|
    """
    if overview.wrong:
        wanted = "a cap of the administrator's alone"
        return [CheckResult("bandwidth cap", overview.wrong, "stop", wanted, overview.mend)]
    cap = Cap.configured(config).lower(overview.said)
    if cap.rate is None and cap.requests is None:
        state = "neither `bandwidth.link` nor the cap file sets one: elements read as fast as they can"
        return [
            CheckResult("bandwidth cap", state, "warning", mend="penstock limit RATE, or `bandwidth.link`")
        ]
    rate = "no cap" if cap.rate is None else human.rate(cap.rate)
    requests = "" if cap.requests is None else f", {human.counted(cap.requests, 'request')} a second"
    state = f"{rate}{requests}, {human.counted(len(overview.held), 'run')} with a part of it now"
    return [CheckResult("bandwidth cap", state)]


def seen_here(folder: Path, mark: str, answers: Answers) -> BandwidthFolderSeen:
    """Return this node's view of the folder. `mark`: the submitting machine's file in it, or ""."""
    path = str(folder)
    try:
        answers.require(folder, "the bandwidth folder")
        same = has_mark(folder, mark) if mark else None
        looked_at(folder)
        return BandwidthFolderSeen(path, wrong=overview(folder).wrong, same=same)
    except (PenstockError, OSError) as error:
        why = error.why if isinstance(error, PenstockError) else error.strerror
        return BandwidthFolderSeen(path, why or str(error))


def on_node(node: str, folder: BandwidthFolderSeen) -> list[CheckResult]:
    """Judge a node's view of the folder.

    An element (a process that copies) that cannot use the folder fails before its first byte. An element that
    sees another folder at that path would not share the other elements' cap.

    | on the node                                             | result |
    |---------------------------------------------------------|--------|
    | the folder is missing or unresponsive, or this account  |        |
    | cannot list and write its folder `holders`              | stop   |
    | another folder is at that path                          | stop   |
    | the cap file has another owner, and is not trusted      | stop   |
    | not known whether the folder is that of this machine    | note   |
    | the folder is that of this machine                      | ok     |
    """
    about, where = f"bandwidth folder on {printable(node)}", printable(folder.path)
    mount = "mount the file system that holds it on each node, at the path that it has here"
    if folder.error:
        mend = f"{mount}; each account that stages must be able to list and write its folder `holders`"
        state = f"elements cannot use {where} there: {printable(folder.error)}"
        return [CheckResult(about, state, "stop", "one folder for all elements", mend)]
    if folder.same is False:
        state = f"{where} is another folder there: its elements would keep a cap of their own"
        return [CheckResult(about, state, "stop", "one folder for all elements", mount)]
    if folder.wrong:
        mend = "its owner must be the same account on each node: compare `ls -ln` of it here and there"
        state = f"elements would wait there: {printable(folder.wrong)}"
        return [CheckResult(about, state, "stop", "a cap of the administrator's alone", mend)]
    if folder.same is None:
        return [CheckResult(about, f"{where}: not known whether it is the folder that is here", "note")]
    return [CheckResult(about, f"{where}, the folder that is here")]
