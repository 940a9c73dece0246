"""status: what is published, under way and left of a dataset, from its state on the target alone. Takes no
lock and reads no source."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from penstock.cluster.abilities import abilities_of
from penstock.core.documents.seal import Seal
from penstock.core.step_table import RUN_IN_ELEMENTS
from penstock.errors import FailedError, PreflightError
from penstock.filesystem import plain_files
from penstock.locks import holder
from penstock.ownership import abandoned_stagings, liveness
from penstock.policy import pause
from penstock.retention import pins
from penstock.state import auditor_verdicts, receipts, run_store, seals, verdicts
from penstock.state.element_progress import Progress
from penstock.state.submission_log import ArrayBook

if TYPE_CHECKING:
    from penstock.core.documents.step_results import Counts, StatusResult
    from penstock.core.layout import DatasetLayout
    from penstock.state.context import Context
    from penstock.state.run import Run


def run(context: Context, dataset: str) -> StatusResult:
    """{dataset, pause, current, releases, state, run, release, next, copy, verify, lock, arrays, abandoned,
    last_audit, findings}; keys without a value are left out."""
    layout = context.layout(dataset)
    answer: StatusResult = {"dataset": dataset, "state": "nothing staged yet"}
    answer["pause"] = pause.words(layout.root)
    current = context.storage.current(layout)
    answer["current"] = current
    answer["releases"] = context.storage.releases(layout)
    answer["lock"] = held_by(layout)
    if current:
        there = current in answer["releases"]
        answer["state"] = "published" if there else f"`current` names {current}, which is not there"
        answer["path"] = str(layout.release(current) / "data")
        seal = _seal(layout, current)
        answer |= {"files": seal.files, "bytes": seal.bytes, "sealed": seal.sealed}
        longest = context.config.gc.longest_pin
        pinned = pins.held(context.storage, layout, longest, partial(liveness.scheduler, context))
        answer["pins"] = [f"{release}: {pin.words()}" for release in pinned for pin in pinned[release]]
        own = verdicts.read(layout, current)
        verdict = auditor_verdicts.with_auditors(layout, current, own, context.config.target.auditors)
        last = verdict.last if verdict else None
        answer |= {"last_audit": last.to_json() if last else None, "findings": verdicts.standing(verdict)}
        if there and answer["findings"]:
            answer["state"] = f"published, findings stand: {verdicts.told(answer['findings'])}"
    if layout.folder.exists() and not context.storage.owns(layout):
        answer["seen"] = "what is published alone: another account stages this dataset"
        return _without_blanks(answer)
    try:
        run = run_store.open_run(layout)
    except PreflightError:
        return _without_blanks(answer)
    answer |= {"run": run.id, "release": run.release}
    if run_store.published(run):
        if current != run.release:
            answer["state"] = f"{run.release} is published, current is {current}"
    else:
        answer |= _under_way(run)
    answer["arrays"] = [
        one.array or one.name
        for one in ArrayBook(run.folder.arrays).open()
        if not abilities_of(one.kind).elements_end_with_controller
    ]
    answer["abandoned"] = list(map(abandoned_stagings.sentence, abandoned_stagings.described(run)))
    return _without_blanks(answer)


def _without_blanks(answer: StatusResult) -> StatusResult:
    return cast("StatusResult", {key: value for key, value in answer.items() if value})


def _seal(layout: DatasetLayout, release: str) -> Seal:
    """The seal's fields; empty where the seal is damaged or this account may not read it."""
    try:
        stored = seals.find(layout, release)
    except FailedError:
        stored = None
    return stored.seal if stored else Seal()


def held_by(layout: DatasetLayout) -> str:
    """Who holds the dataset's lock, or ""."""
    try:
        content = plain_files.read(layout.lock)
    except OSError:
        return ""
    found = holder.parse(content)
    return found.describe() if found is not None else "somebody who is just taking it"


def _under_way(run: Run) -> StatusResult:
    if not run.folder.plan.exists():
        return {"state": f"{run.release} is listed", "next": "plan"}
    steps = {step: _elements(run, step) for step in RUN_IN_ELEMENTS}
    following = next((step for step, told in steps.items() if told["done"] < told["elements"]), "publish")
    if following != "copy" and not run.folder.receipt("permissions").exists():
        following = "permissions"
    told = {"state": f"{run.release} is under way", "next": following, **steps}
    return cast("StatusResult", told)


def _elements(run: Run, step: str) -> Counts:
    ok = (receipts.copied if step == "copy" else receipts.verified)(run)
    files, size, failed = Progress().total(run.folder, step, run.indices)
    done = sum(map(ok, run.indices))
    return {"elements": len(run.indices), "done": done, "files": files, "bytes": size, "failed": failed}
