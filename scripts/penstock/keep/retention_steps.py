"""The steps gc, remove and rollback. Gc and remove rename each release that nothing holds, then remove its
files. Rollback makes an earlier release current again, by a rename.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from penstock.core import human, run_steps
from penstock.core.dataset_documents import Removal
from penstock.core.errors import FindingsError, PreflightError
from penstock.core.layout import DATA
from penstock.dataset import (
    gate,
    pins,
    release_records,
    reserve,
    staging_notice,
)
from penstock.jobs import share_rule
from penstock.jobs.dataset_state import holding
from penstock.keep import collection, removals, retention_decision
from penstock.keep.collection import Plan
from penstock.keep.retention_decision import Criteria
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from penstock.core.layout import DatasetLayout
    from penstock.core.step_results import Collected, RollbackResult
    from penstock.dataset.context import Context
    from penstock.keep.removals import Led
    from penstock.keep.retention_decision import ReleaseDecision


# gc and remove:
#
# With `dry_run`, no release, staging or pin is removed. `unpinned`: names of readers' pins to withdraw first.


def gc(context: Context, dataset: str, *, dry_run: bool, unpinned: Collection[str] = ()) -> Collected:
    """Remove the releases and stagings that no rule, reader or run of the dataset holds. Raises LockedError
    while a run holds the dataset, PreflightError for another account than the owner."""
    layout = context.layout(dataset)
    criteria = Criteria(retention_decision.grace(context), rules=context.dataset(dataset).retention)
    planned = collection.plan(context, layout, criteria, unpinned=unpinned)
    if not dry_run:
        share_rule.remove_dead_older(layout.promises)
        staging_notice.forget_ended(layout, context.cluster)
        with contextlib.suppress(OSError):  # the target may be full, and gc makes room
            pins.note_last(layout)
    return _done(context, layout, planned, criteria, "gc", dry_run=dry_run, unpinned=unpinned)


def remove(
    context: Context,
    dataset: str,
    releases: Sequence[str],
    *,
    dry_run: bool,
    now: bool = False,
    unpinned: Collection[str] = (),
) -> Collected:
    """Remove these releases, whatever the rules say. `now`: do not wait for the grace. Raises ConfigError for
    a release that never existed. Raises PreflightError if a release is held; then no release is removed."""
    layout = context.layout(dataset)
    dataset_folders.check_owner(layout)
    existing = dataset_folders.releases(layout)
    wanted = [name for name in dict.fromkeys(releases) if name in existing or not _was_removed(layout, name)]
    unknown = [name for name in wanted if name not in existing]
    if unknown:
        raise gate.no_release(layout, unknown, existing, "`penstock releases` lists the names")
    criteria = Criteria(0.0 if now else retention_decision.grace(context), names=wanted)
    planned = collection.plan(context, layout, criteria, unpinned=unpinned, stagings=False)
    if not dry_run:
        leads = f"`{context.program} rollback {dataset}` leads `current` elsewhere; "
        _refuse_held(layout, planned.decisions, leads if dataset_folders.current(layout) in wanted else "")
    return _done(context, layout, planned, criteria, "remove", dry_run=dry_run, unpinned=unpinned)


def remove_all(
    context: Context, dataset: str, *, dry_run: bool, now: bool = False, unpinned: Collection[str] = ()
) -> Collected:
    """Remove the dataset with all releases and its state. `now`: do not wait for the grace. Raises
    PreflightError if a release is held or a command is working on the dataset; then nothing is removed."""
    layout = context.layout(dataset)
    dataset_folders.check_owner(layout)
    criteria = Criteria(0.0 if now else retention_decision.grace(context), with_dataset=True)
    exists, left = os.path.lexists(layout.folder), collection.left(layout)
    freed = collection.forecast([layout.folder, *left] if exists else left, context.stop.check)
    planned = Plan([], [], left, [], freed, left)
    if exists:
        collected = collection.plan(context, layout, criteria, unpinned=unpinned, stagings=False)
        planned = collected._replace(freed=freed, left=left)
    decisions, cleared = planned.decisions, 0
    if not dry_run:
        _refuse_held(layout, decisions)
        if exists:
            decisions = collection.take_name(context, layout, criteria, "remove", unpinned)
            _refuse_held(layout, decisions)
        cleared = collection.clear(context, layout)
    gone = "" if any(decision.held_by for decision in decisions) else str(layout.folder)
    planned = planned._replace(decisions=decisions)
    report = _done(context, layout, planned, criteria, "remove", dry_run=True, unpinned=unpinned)
    return {**report, "dry_run": dry_run, "cleared": cleared, "gone": gone}


def _refuse_held(layout: DatasetLayout, decisions: Sequence[ReleaseDecision], hint: str = "") -> None:
    lines = [f"{decision.facts.release}: {why}" for decision in decisions for why in decision.held_by]
    if lines:
        raise PreflightError(
            "a release is held, and nothing was removed",
            where=str(layout.releases),
            why="\n  ".join(["", *lines]),
            hint=f"{hint}`--now` does not wait for the grace; `--unpin NAME` takes a reader's pin back",
        )


def _was_removed(layout: DatasetLayout, release: str) -> bool:
    return any(
        isinstance(line, Removal) and line.release == release
        for line in release_records.history_lines(layout)
    )


def _done(
    context: Context,
    layout: DatasetLayout,
    planned: Plan,
    criteria: Criteria,
    step: str,
    *,
    dry_run: bool,
    unpinned: Collection[str],
) -> Collected:
    decisions, cleared, waits = planned.decisions, 0, ""
    stagings = planned.stagings
    if not dry_run and layout.state.is_dir():
        if planned.folders:
            frees = "; ".join(line.strip() for line in planned.freed.in_words("will free"))
            text = f"to be removed: {human.counted(len(planned.folders), 'folder')}; {frees}"
            context.emit(run_steps.Noted(layout.dataset, step, text))
        done = collection.carry_out(context, layout, planned, criteria, step, unpinned=unpinned)
        decisions, cleared, waits = done
        # Another command may have taken a staging over meanwhile.
        stagings = [
            staging._replace(stays="it stays, as said above")
            if not staging.stays and staging.path.exists()
            else staging
            for staging in stagings
        ]
    return {
        "dataset": layout.dataset,
        "dry_run": dry_run,
        "releases": [
            {
                "release": decided.facts.release,
                "removed": not decided.held_by,
                "held_by": list(decided.held_by),
                "files": decided.facts.files,
                "bytes": decided.facts.bytes,
            }
            for decided in decisions
        ],
        "stagings": [
            {"staging": staging.words, "removed": not staging.stays, "why": staging.stays}
            for staging in stagings
        ],
        "interrupted": [path.name for path in planned.left],
        "ended_pins": list(planned.ended),
        "unpinned": list(unpinned),
        "frees": planned.freed,
        "cleared": cleared,
        "waits": waits,
    }


# rollback: makes an earlier release current again. A later run does not move `current` if the source is
# unchanged.

STEP = "rollback"


def rollback(context: Context, dataset: str, release: str | None) -> RollbackResult:
    """Make `release` current; None: the release before the current one. Raises ConfigError for an unknown
    release, FindingsError if it is damaged or has findings, LockedError, PreflightError for another account
    than the owner."""
    layout = context.layout(dataset)
    if not dataset_folders.releases(layout):
        raise FindingsError(
            "nothing is published",
            where=str(layout.releases),
            hint=f"`{context.program} run {dataset}` stages it",
        )

    def lead() -> Led:
        with holding(context, dataset, "", STEP):
            removals.settle_removals(context, layout)
            return removals.lead_current(context, layout, release)

    led = reserve.sparing(context, layout, STEP, lead)
    return {
        "dataset": dataset,
        "release": led.release,
        "left": led.left,
        "finished": led.finished,
        "path": str(layout.release(led.release) / DATA),
    }
