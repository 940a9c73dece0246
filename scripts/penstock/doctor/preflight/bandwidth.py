"""The folder of the shared cap on a network link (`bandwidth.folder`): usable here and on nodes, and
whose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.errors import PenstockError
from penstock.core.events import CheckResult
from penstock.core.human import printable
from penstock.core.node_answer import BandwidthFolderSeen
from penstock.jobs.bandwidth import Cap, has_mark, looked_at, overview

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.config.settings import BandwidthConfig
    from penstock.dataset.context import Context
    from penstock.doctor.preflight.mount_answers import Answers
    from penstock.doctor.preflight.results import Looks
    from penstock.jobs.bandwidth import Overview


def check(context: Context, answers: Answers, looks: Looks) -> None:
    """Raise PreflightError for a folder that cannot be read or written."""
    config = context.config.bandwidth
    if config.folder is None:
        return
    answers.require(config.folder, "the bandwidth folder")
    looked_at(config.folder)
    looks.saw(
        *judged(config, overview(config.folder)),
        what="the bandwidth cap is not in order",
        where=printable(str(config.folder)),
    )


def judged(config: BandwidthConfig, overview: Overview) -> list[CheckResult]:
    """Judge the cap file beside `bandwidth.link`:

    | the cap file                     | `bandwidth.link` | result                          |
    |----------------------------------|------------------|---------------------------------|
    | is not the administrator's alone,|                  | stop, with what to do           |
    | or makes no sense                |                  |                                 |
    | says a rate, or there is none    | given            | ok, with the lower one          |
    | says a rate                      | not given        | ok                              |
    | says none, or there is none      | not given        | warning: nothing bounds the link|
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
    """Return what this node sees of the folder; `mark` is the submitting machine's (`folder.marked`), or
    ""."""
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

    An element that cannot use it fails before its first byte. One that sees another folder at that path would
    share a cap of its own.

    | on the node                                             | result |
    |---------------------------------------------------------|--------|
    | the folder is not there, does not answer, or `holders`  |        |
    | in it cannot be listed and written by this account      | stop   |
    | another folder is at that path                          | stop   |
    | the cap file is not believed: of another account there  | stop   |
    | not known whether it is the same one                    | note   |
    | the folder that this machine sees                       | ok     |
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
