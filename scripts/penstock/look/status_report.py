"""`penstock status`: which release of a dataset is published, and how far its run is, from the state on the
target, without a lock. The readers' part is judged as by `gate`; only the owner sees the last run."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, cast

from penstock.cluster.port import abilities_of
from penstock.core.errors import FindingsError, PenstockError
from penstock.core.human import brief
from penstock.dataset import gate, pins, verdicts
from penstock.dataset.submission_log import ArrayBook
from penstock.jobs import dataset_state, run_cleanup, shares
from penstock.target import access, dataset_folders, notices

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout
    from penstock.core.step_results import StatusResult
    from penstock.dataset.context import Context
    from penstock.dataset.gate import Judgement
    from penstock.jobs.dataset_state import DatasetState


def run(context: Context, dataset: str, submitted: str | None = None) -> StatusResult:
    """Return the dataset's row without empty keys, even if damaged. `submitted`: see `dataset_state.read`."""
    layout, target = context.layout(dataset), context.config.target
    judgement = gate.judged(layout, target.owners)
    answer: StatusResult = {"dataset": dataset, "state": judgement.state}
    if judgement.error is not None and judgement.state != gate.NOTHING:
        answer |= {"why": judgement.problem, "to_do": judgement.error.hint}
    answer["pause"] = notices.words(layout.root)
    answer["hold"] = notices.warning(layout.root)
    answer["current"] = judgement.release or None
    answer["lock"] = dataset_state.held_by(layout)
    if judgement.error is None:
        answer["path"] = str(judgement.data)
    if context.ops:
        answer["ops"] = shares.holders_of(layout)
    answer |= _published(judgement)
    status = dataset_state.read(context, judgement, submitted)
    if submitted:
        answer["work"] = status.work
    if judgement.shaped and judgement.state != gate.OLDER:
        try:
            answer["releases"] = dataset_folders.releases(layout)
            answer |= _pins(context, layout)
            answer |= _work(status, judgement)
        except FindingsError as error:
            # Only the owner's folders are damaged. Readers still have their release.
            answer.setdefault("work", {"state": gate.DAMAGED, "why": error.why, "to_do": error.hint})
        except (PenstockError, OSError) as error:
            answer["problem"] = str(error)
    return cast("StatusResult", {key: value for key, value in answer.items() if value})


def _published(judgement: Judgement) -> StatusResult:
    answer: StatusResult = {"findings": judgement.findings}
    if judgement.stored is not None:
        seal = judgement.stored.seal
        answer |= {"files": seal.files, "bytes": seal.bytes, "sealed": seal.sealed}
    answer["last_audit"] = verdicts.last(judgement.verdict)
    return answer


def _pins(context: Context, layout: DatasetLayout) -> StatusResult:
    longest = context.config.gc.longest_pin
    pinned = pins.shown(layout, longest, partial(dataset_state.scheduler, context))
    words = [f"{brief(release)}: {pin}" for release, held in pinned.items() for pin in held.words]
    unopened = sum(held.unopened for held in pinned.values())
    more = max(0, len(words) - pins.NAMED) + unopened
    counted = f"and {'up to ' if unopened else ''}{more:,} more pins"
    return {"pins": [*words[: pins.NAMED], *([counted] if more else [])], "pinned": len(words) + unopened}


def _work(recorded: DatasetState, judgement: Judgement) -> StatusResult:
    """Return the part about the last run, for the dataset's owner. Raises any error of reading it."""
    layout, last, work = judgement.layout, recorded.run, recorded.work
    status: StatusResult = {}
    advice = judgement.error.hint if judgement.state == gate.NOTHING and judgement.error else ""
    if os.path.lexists(layout.folder) and not dataset_folders.owns(layout):
        who = access.in_words([str(layout.folder.lstat().st_uid)])
        status["seen"] = f"what is published alone: another account, {who}, stages this dataset"
        if recorded.staging:
            status["under_way"] = str(recorded.staging)
        return (
            status | {"state": recorded.state, "to_do": advice}
            if advice
            else status | {"state": recorded.state}
        )
    if recorded.problem is not None:
        raise recorded.problem
    status["work"] = work
    if last is not None:
        status |= {"run": last.id, "release": last.release}
        status["arrays"] = [
            array.array or array.name
            for array in ArrayBook(last.folder.arrays).open()
            if not abilities_of(array.kind).elements_end_with_controller
        ]
        status["abandoned"] = list(map(run_cleanup.sentence, run_cleanup.described(last)))
    if judgement.state not in (gate.PUBLISHED, gate.NOTHING):
        return status
    status["state"] = recorded.state
    if work:
        status |= {"why": work.get("why", ""), "to_do": work.get("to_do", "")}
    elif last is not None and judgement.release and judgement.release != last.release:
        status["why"] = f"{last.release} is published, current is {judgement.release}"
    elif advice:
        status["to_do"] = advice
    return status
