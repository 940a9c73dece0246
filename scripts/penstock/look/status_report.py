"""status: what is published, under way and left of a dataset, from its state on the target alone. Takes no
lock and reads no source. What readers get is judged as `gate` judges it (`dataset.gate`); what the last run
does is said to the dataset's owner (`jobs.run_state`)."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, cast

from penstock.cluster.abilities import abilities_of
from penstock.core.errors import FindingsError, PenstockError, PreflightError
from penstock.core.text import brief
from penstock.dataset import gate, pins, run_store, staging_notice, verdicts
from penstock.dataset.submission_log import ArrayBook
from penstock.jobs import run_state
from penstock.jobs.ownership import abandoned_stagings, liveness, ops_share
from penstock.target import accounts, dataset_folders, hold, pause

if TYPE_CHECKING:
    from penstock.core.documents.step_results import StatusResult
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.dataset.gate import Judgement
    from penstock.dataset.run import Run


def run(context: Context, dataset: str) -> StatusResult:
    """The dataset's row (`StatusResult`), whatever lies there; keys without a value are left out. `state` is
    that of `gate`, unless nothing stands against what is published and a run is not at its end: then it is
    the run's."""
    layout, target = context.layout(dataset), context.config.target
    judgement = gate.judged(layout, target.owners)
    answer: StatusResult = {"dataset": dataset, "state": judgement.state}
    if judgement.error is not None and judgement.state != gate.NOTHING:
        answer |= {"why": judgement.problem, "to_do": judgement.error.hint}
    answer["pause"] = pause.words(layout.root)
    answer["hold"] = hold.warning(layout.root)
    answer["current"] = judgement.release or None
    answer["lock"] = run_state.held_by(layout)
    if judgement.error is None:
        answer["path"] = str(judgement.data)
    if context.ops:
        answer["ops"] = ops_share.holders_of(layout)
    answer |= _published(judgement)
    if judgement.shaped and judgement.state != gate.OLDER:
        try:
            answer["releases"] = dataset_folders.releases(layout)
            answer["pins"] = _pins(context, layout)
            answer |= _work(context, layout, judgement)
        except FindingsError as error:
            # Of the owner's own folders: readers get what they got.
            answer["work"] = {"state": gate.DAMAGED, "why": error.why, "to_do": error.hint}
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


def _pins(context: Context, layout: DatasetLayout) -> list[str]:
    longest = context.config.gc.longest_pin
    pinned = pins.shown(layout, longest, partial(liveness.scheduler, context))
    words = [f"{brief(release)}: {pin}" for release, held in pinned.items() for pin in held.words]
    unopened = sum(held.unopened for held in pinned.values())
    more = max(0, len(words) - pins.NAMED) + unopened
    counted = f"and {'up to ' if unopened else ''}{more:,} more pins"
    return [*words[: pins.NAMED], *([counted] if more else [])]


def _work(context: Context, layout: DatasetLayout, judgement: Judgement) -> StatusResult:
    """What the dataset's owner sees of its last run."""
    if os.path.lexists(layout.folder) and not dataset_folders.owns(layout):
        who = accounts.in_words([str(layout.folder.lstat().st_uid)])
        visible: StatusResult = {
            "seen": f"what is published alone: another account, {who}, stages this dataset"
        }
        if staging := staging_notice.find(layout):
            visible["under_way"] = str(staging)
        if judgement.state == gate.NOTHING and judgement.error is not None:
            visible["to_do"] = judgement.error.hint
        return visible
    last = _last_run(layout)
    work = run_state.of(context, layout, last)
    status: StatusResult = {"work": work}
    if last is not None:
        status |= {"run": last.id, "release": last.release}
        status["arrays"] = [
            one.array or one.name
            for one in ArrayBook(last.folder.arrays).open()
            if not abilities_of(one.kind).elements_end_with_controller
        ]
        status["abandoned"] = list(map(abandoned_stagings.sentence, abandoned_stagings.described(last)))
    if judgement.state not in (gate.PUBLISHED, gate.NOTHING):
        return status
    if work:
        status |= {"state": work["state"], "why": work.get("why", ""), "to_do": work.get("to_do", "")}
    elif last is not None and judgement.release and judgement.release != last.release:
        status["why"] = f"{last.release} is published, current is {judgement.release}"
    elif judgement.state == gate.NOTHING:
        status["to_do"] = judgement.error.hint if judgement.error else ""
    return status


def _last_run(layout: DatasetLayout) -> Run | None:
    """The run that list made or met last; None where nothing was listed yet."""
    try:
        return run_store.open_run(layout)
    except PreflightError:
        return None
