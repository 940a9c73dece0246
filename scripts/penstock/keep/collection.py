"""gc and remove for one dataset: decide, forecast the freed space, mark, check again, rename, then remove the
files. Also the removal of a dataset with all its releases and its state.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import run_steps
from penstock.core.dataset_documents import Unpinning
from penstock.core.errors import (
    FailedError,
    InterruptedRunError,
    LockedError,
    NewerFormatError,
    NoSpaceError,
    PenstockError,
    PreflightError,
)
from penstock.core.human import in_quotes
from penstock.core.layout import CURRENT, DATA, RunLayout
from penstock.core.step_results import Frees
from penstock.dataset import (
    dataset_lock,
    documents,
    pins,
    release_records,
    reserve,
    run_store,
)
from penstock.fs import capabilities
from penstock.fs.owners import group_name, user_name
from penstock.fs.safe_open import OPEN_FOLDER, storage_error
from penstock.jobs import dataset_state, run_cleanup
from penstock.jobs.array_orders import live_arrays, unanswered
from penstock.jobs.dataset_state import holding, lock_of
from penstock.jobs.shares import removing
from penstock.keep import removals, retention_decision
from penstock.target import dataset_folders, notices, tree_removal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from penstock.core.dataset_documents import RemovalMark
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run
    from penstock.dataset.pins import ReleasePin
    from penstock.keep.retention_decision import Criteria, ReleaseDecision


def forecast(folders: Sequence[Path], check: Callable[[], None]) -> Frees:
    """Count the bytes and inodes that removing all these folders together frees. Missing folders count 0. It
    calls `check` now and then, which may raise. Raises `safe_open.storage_error` if a folder cannot be
    opened."""
    # imported here, since it loads Arrow, which only a removal needs
    from penstock.dataset.disk_use import Use

    with Use(projects=True) as use:
        area = use.area()
        for folder in folders:
            try:
                fd = os.open(folder, OPEN_FOLDER)
            except FileNotFoundError:
                continue  # another process has removed it meanwhile
            except OSError as error:
                raise storage_error(error, "what a removal frees cannot be counted", str(folder)) from None
            use.add_tree(area, fd, lambda _: check())
        held_elsewhere = use.ended().outside[1]
    by: tuple[Counter[int], ...] = (Counter(), Counter(), Counter())
    for owner, size in area.bytes.items():
        for sums, number in zip(by, owner, strict=True):
            sums[number] += size
    users, groups, projects = by
    projects.pop(0, None)
    inodes = area.files.total() + area.folders.total()
    return Frees(
        area.bytes.total(),
        inodes,
        held_elsewhere,
        {user_name(uid) or str(uid): size for uid, size in sorted(users.items())},
        {group_name(gid) or str(gid): size for gid, size in sorted(groups.items())},
        {str(number): size for number, size in sorted(projects.items())},
        area.unreadable,
    )


# gc and remove of one dataset.
#
# | lock held          | actions                                                                           |
# |--------------------|-----------------------------------------------------------------------------------|
# | none               | snapshot, decision, forecast: all steps of a dry run                              |
# | the dataset's lock | finish interrupted removals; snapshot and decision again (a release is removed    |
# |                    | if both agree); mark; wait (`settling`); check pins and `current` again; rename,  |
# |                    | also the stagings to remove                                                       |
# | `gc.lock`          | remove the files, within the pace of removals (`jobs.shares`)                     |

GC_LOCK = "gc.lock"  # name of the lock for removing the files of renamed folders


class StagingDecision(NamedTuple):
    """The decision about the staging of a run that did not end."""

    path: Path
    state: Path | None  # state folder of the staging's run; None if the run is unknown
    words: str
    stays: str  # why gc keeps the staging; "" if gc removes it


class Plan(NamedTuple):
    """The removals that gc or remove would make."""

    decisions: Sequence[ReleaseDecision]
    stagings: Sequence[StagingDecision]
    left: Sequence[Path]  # leftovers of an interrupted removal
    ended: Sequence[str]  # descriptions of pins that no longer count
    freed: Frees
    folders: Sequence[Path]  # all releases, stagings and leftovers to remove

    @property
    def doomed(self) -> list[ReleaseDecision]:
        return [decision for decision in self.decisions if not decision.held_by]


class RemovalOutcome(NamedTuple):
    """The result of gc or remove."""

    decisions: Sequence[ReleaseDecision]  # the decisions made under the lock
    cleared: int  # number of folders whose files are all removed
    waits: str  # why some files are not removed yet; "" if all are removed


def plan(
    context: Context,
    layout: DatasetLayout,
    criteria: Criteria,
    *,
    unpinned: Collection[str] = (),
    stagings: bool = True,
) -> Plan:
    """Plan the removals of gc or remove, without a lock or any change. Raises PreflightError unless the owner
    calls, if releases exist but the dataset's state does not, and for an unknown pin in `unpinned`."""
    dataset_folders.check_owner(layout)
    if dataset_folders.releases(layout):
        dataset_folders.need_state(layout)
    for name in unpinned:
        _pin_named(context, layout, name)
    snapshot = retention_decision.take(context, layout, unpinned)
    decisions = snapshot.decide(criteria)
    staging_decisions = _stagings(context, layout) if stagings else []
    left = removals.left(layout)
    doomed = [layout.release(decision.facts.release) for decision in decisions if not decision.held_by]
    folders = [*doomed, *(staging.path for staging in staging_decisions if not staging.stays), *left]
    freed = forecast([*folders, *_states(layout, decisions, staging_decisions)], context.stop.check)
    ended = [f"{name}: {why}" for name, why in sorted(snapshot.ended.items())]
    return Plan(decisions, staging_decisions, left, ended, freed, folders)


def carry_out(
    context: Context,
    layout: DatasetLayout,
    planned: Plan,
    criteria: Criteria,
    step: str,
    *,
    unpinned: Collection[str] = (),
) -> RemovalOutcome:
    """Carry out the plan as far as it is still valid. Raises LockedError while a run holds the dataset. If
    there is no space for what it writes, it first removes files of renamed folders, then uses the dataset's
    reserve, and starts again. If a rename could not be noted in the history, its mark stays; from the mark,
    `removals.settle_removals` writes the history's line later."""
    gone: dict[str, ReleaseDecision] = {}
    waiting = list(unpinned)
    cleared = 0

    def rounds() -> RemovalOutcome:
        nonlocal cleared
        while True:
            full: PenstockError | OSError | None = None
            decisions: Sequence[ReleaseDecision] = ()
            try:
                decisions = _named_away(context, layout, planned, criteria, step, waiting, gone)
            except (PenstockError, OSError) as error:
                if not reserve.is_full(error):
                    raise
                full = error
            more, waits = _clear(context, layout, step)
            cleared += more
            if full is None:
                stay = {decision.facts.release for decision in decisions}
                return RemovalOutcome(
                    [*(decision for name, decision in gone.items() if name not in stay), *decisions],
                    cleared,
                    waits,
                )
            if not more:
                raise full

    return reserve.sparing(context, layout, step, rounds, removal=True)


def _named_away(
    context: Context,
    layout: DatasetLayout,
    planned: Plan,
    criteria: Criteria,
    step: str,
    unpinned: list[str],
    gone: dict[str, ReleaseDecision],
) -> list[ReleaseDecision]:
    """Do the part of the plan that needs the dataset's lock. It adds renamed releases to `gone`, even if it
    raises, and removes withdrawn pins from `unpinned`."""
    with holding(context, layout.dataset, "", step):
        removals.settle_interrupted(context, layout)
        while unpinned:
            take_back(context, layout, unpinned[0])
            unpinned.pop(0)
        snapshot = retention_decision.take(context, layout)
        agreed = {decision.facts.release for decision in planned.doomed}
        decisions = [
            decision
            if decision.held_by or decision.facts.release in agreed
            else decision._replace(held_by=("changed: it was held when this command began",))
            for decision in snapshot.decide(criteria)
        ]
        decisions = _removed(context, layout, decisions, gone)
        for name in snapshot.ended:
            with contextlib.suppress(OSError):
                notices.withdraw(layout.pins, name)
        run = _latest(layout) if any(not staging.stays for staging in planned.stagings) else None
        if run is not None:
            run_cleanup.clean(context, run, step=step, remove=partial(removals.set_aside, context))
    return decisions


def _pin_named(context: Context, layout: DatasetLayout, name: str) -> ReleasePin:
    """Return the pin with this name. Raises PreflightError if it does not exist."""
    same = [pin_name for pin_name in pins.names(layout, name) if pin_name == name]
    pin = next(iter(pins.read(layout, same)), None)
    if pin is None:
        raise PreflightError(
            f"there is no pin {name}",
            where=str(layout.pins),
            hint=f"`{context.program} releases {layout.dataset}` shows those that there are",
        )
    return pin


def take_back(context: Context, layout: DatasetLayout, name: str) -> ReleasePin:
    """Withdraw a reader's pin, with a line in the history. The dataset's owner calls it, under the dataset's
    lock. Raises PreflightError if the pin does not exist."""
    pin = _pin_named(context, layout, name)
    line = Unpinning(
        at=capabilities.stamp(layout.releases),
        dataset=layout.dataset,
        release=pin.release,
        pin=name,
        of=pin.uid,
        told=pin.words(),
        author=release_records.this_author(),
    )
    context.assert_held()
    release_records.append_history(layout, line)
    notices.withdraw(layout.pins, name)
    return pin


def _removed(
    context: Context,
    layout: DatasetLayout,
    decisions: Sequence[ReleaseDecision],
    gone: dict[str, ReleaseDecision],
) -> list[ReleaseDecision]:
    """Rename the releases that nothing holds, and return the decisions after the last check. If space does
    not suffice for all marks, it renames the marked releases before it raises."""
    marked: dict[str, RemovalMark] = {}
    full: NoSpaceError | None = None
    try:
        for decision in decisions:
            if not decision.held_by:
                try:
                    marked[decision.facts.release] = removals.mark(layout, decision.facts, "no rule holds it")
                except NoSpaceError as error:
                    full = error
                    break
        if marked and (seconds := settling(context)):
            text = f"{len(marked)} releases are marked; their readers have {seconds:.0f} s to be seen"
            context.emit(run_steps.Noted(layout.dataset, "gc", text))
            context.stop.wait(seconds)
        final = []
        for decision in decisions:
            mark = marked.get(decision.facts.release)
            held = retention_decision.holders_now(context, layout, decision.facts.release) if mark else []
            if mark and dataset_folders.current(layout) == mark.release:
                held.append("current: somebody led it there meanwhile")
            if mark and held:
                removals.unmark(layout, marked.pop(mark.release))
                decision = decision._replace(held_by=held)
            elif mark:
                removals.take_name(context, layout, mark)
                gone[mark.release] = decision
                removals.conclude(context, layout, mark)
                marked.pop(mark.release)
            final.append(decision)
    except BaseException:
        for mark in marked.values():
            with contextlib.suppress(PenstockError, OSError):
                removals.give_up(layout, mark)
        raise
    if full is not None:
        raise full
    return final


def settling(context: Context) -> float:
    """Return the seconds to wait between marking a release and the last check for pins: twice the time T of
    `dataset.pins`."""
    from penstock.fs.capabilities import facts
    from penstock.fs.kinds import rules_of
    from penstock.fs.mount_checks import directory_seconds

    if context.config.gc.settle is not None:
        return context.config.gc.settle
    target = context.config.target
    mounted = facts(target.root).traits
    late = max(mounted.names_late, rules_of(mounted, target.filesystem).names_late)
    return 2 * max(late, directory_seconds(target.root))


def _clear(context: Context, layout: DatasetLayout, step: str) -> tuple[int, str]:
    folders = removals.left(layout)
    if not folders:
        return 0, ""
    try:
        with contextlib.ExitStack() as held:
            # If there is no space for the lock, files are removed without it, since two removals at once do
            # no harm.
            with contextlib.suppress(NoSpaceError):
                held.enter_context(lock_of(context, layout, "", step, GC_LOCK))
            held.enter_context(removing(context, layout))
            removals.clear(context, layout, folders)
    except LockedError as error:
        return 0, f"the files are being removed already: {error.why or error.what}"
    return len(folders), ""


def _latest(layout: DatasetLayout) -> Run | None:
    """Return the run for which the dataset was last listed, if that run is published."""
    try:
        run = run_store.open_run(layout)
        return run if run_store.published(run) else None
    except (PreflightError, FailedError, NewerFormatError):
        return None


def _states(
    layout: DatasetLayout, decisions: Sequence[ReleaseDecision], stagings: Sequence[StagingDecision]
) -> list[Path]:
    """Return the state folders that are removed with these releases and stagings: of runs, repairs and their
    stagings. Empty if the state is on another file system, whose quota counts it."""
    states = [staging.state for staging in stagings if staging.state is not None and not staging.stays]
    for decision in decisions:
        if not decision.held_by:
            release, run = decision.facts.release, decision.facts.run
            states += [layout.run(run).folder] if run else []
            states += [layout.repair(release).folder, layout.repair_staging(release)]
    existing = [state for state in dict.fromkeys(states) if state.is_dir()]
    return [state for state in existing if state.stat().st_dev == layout.releases.stat().st_dev]


def _stagings(context: Context, layout: DatasetLayout) -> list[StagingDecision]:
    try:
        run = run_store.open_run(layout)
    except (PreflightError, FailedError, NewerFormatError):
        return []
    resumed = "" if run_store.published(run) else f"run {run.id} has not ended, and may take it over"
    stagings = []
    for staging in run_cleanup.described(run):
        path = layout.releases / staging["staging"]
        stays = resumed
        if "run" not in staging:
            stays = "it is of no known run: remove it by hand"
        elif staging.get("holds_tree"):
            stays = "it holds what is left of a tree that was adopted: move that away, or remove it by hand"
        elif not stays:
            stays = _alive(context, layout, staging["run"])
        if os.path.lexists(path):
            state = layout.run(staging["run"]).folder if "run" in staging else None
            stagings.append(StagingDecision(path, state, run_cleanup.sentence(staging), stays))
    return stagings


def _alive(context: Context, layout: DatasetLayout, key: str) -> str:
    try:
        return dataset_state.arrays_of(context, layout.dataset, layout.run(key), patient=False)
    except InterruptedRunError:
        raise
    except PenstockError as error:
        return error.why or error.what


# Removes a dataset with all its releases and state: marks, one rename, then the files.
#
#     <root>/.removed-<dataset>-<nonce>      the dataset, without its name; so below `target.state_root`
#
# Under the dataset's lock each release is marked as in `removals`, so that no reader pins it, and pins are
# checked again. One rename then moves the folder with `current`, releases and state, so a reader sees a whole
# release or nothing. The files are removed without the lock.
#
# | killed            | the dataset | what continues                                     |
# |-------------------|-------------|----------------------------------------------------|
# | before the rename | exists      | the next command under the lock removes the marks  |
# | after the rename  | is gone     | the same command removes the files                 |
#
# Limit: a process that is frozen right before the rename still renames when it wakes, even if its lock was
# taken over. Only `removals` prevents that.

WHY = "all of the dataset is removed"  # the reason that each release's mark states


def take_name(
    context: Context,
    layout: DatasetLayout,
    criteria: Criteria,
    step: str,
    unpinned: Collection[str] = (),
) -> list[ReleaseDecision]:
    """Rename the dataset away, unless a release is held; the decisions name the holders. Raises the errors of
    `_refuse`, and those of `safe_open.storage_error`."""
    with holding(context, layout.dataset, "", step):
        removals.settle_interrupted(context, layout)
        _refuse(context, layout)
        for name in unpinned:
            take_back(context, layout, name)
        decisions = retention_decision.take(context, layout).decide(criteria)
        marks: list[RemovalMark] = []
        try:
            if not any(decision.held_by for decision in decisions):
                marks += [removals.mark(layout, decision.facts, WHY) for decision in decisions]
                context.stop.wait(settling(context))
                # Decide again: pins may have been placed before their readers could see the mark.
                decisions = retention_decision.take(context, layout).decide(criteria)
            if not any(decision.held_by for decision in decisions):
                elsewhere = [] if layout.state_root is None else [layout.state.parent]
                removals.set_aside(context, layout.folder, *elsewhere)
                marks.clear()
        finally:
            for mark in marks:
                removals.unmark(layout, mark)
    return decisions


def left(layout: DatasetLayout) -> list[Path]:
    """Return the renamed folders still to be removed, with the state after a kill between the two renames."""
    name = re.compile(rf"\.removed-{re.escape(layout.dataset)}-[0-9a-f]{{16}}")
    folders: list[Path] = []
    for root in (layout.root, layout.state_root):
        if root is not None:
            with contextlib.suppress(FileNotFoundError):
                folders += [root / entry for entry in sorted(os.listdir(root)) if name.fullmatch(entry)]
    if folders and layout.state_root is not None and not os.path.lexists(layout.folder):
        # The state comes first. The renamed dataset goes last, since it proves that the state belongs to no
        # dataset.
        folders[:0] = [layout.state.parent] if layout.state.is_dir() else []
    return folders


def clear(context: Context, layout: DatasetLayout) -> int:
    """Remove the folders that `left` returns, within the pace of removals; return their number."""
    folders = left(layout)
    if folders:
        with removing(context, layout):
            for folder in folders:
                tree_removal.remove_tree(folder, context.spend)
    return len(folders)


def _refuse(context: Context, layout: DatasetLayout) -> None:
    """Raise PreflightError if a command is working on the dataset, or it contains files of others."""
    claim = dataset_lock.highest_claim(layout)
    ways = [dataset_state.of_claim(context, layout, claim)] if claim else []
    ways += [f"array {array.array} has not ended" for array in live_arrays(context, layout.dataset)]
    ways += [
        f"{array.name} had no answer from the cluster" for array, _ in unanswered(context, layout.dataset)
    ]
    own_names = {
        CURRENT,
        "releases",
        "audits",
        "verdicts",
        "pins",
        *(path.name for path in layout.under_ways),
    }
    others = [name for name in sorted(os.listdir(layout.folder)) if name not in own_names and name[0] != "."]
    ways += [f"{in_quotes(name)} is not of penstock" for name in others]
    trees = filter(None, (documents.read_adopted_tree(RunLayout(folder)) for folder in layout.runs.glob("*")))
    for tree, staging in product(trees, layout.releases.glob(".*.staging")):
        if documents.stands_in(tree, staging / DATA):
            ways.append(f"releases/{staging.name} is a tree that is being adopted")
    if ways := list(filter(None, ways)):
        raise PreflightError(
            "something of the dataset is in the way, and nothing was removed",
            where=str(layout.folder),
            why="; ".join(ways[:5]),
            hint=f"`{context.program} cancel {layout.dataset}` ends what is at work; move away what is not "
            "of penstock; then the same command",
        )
