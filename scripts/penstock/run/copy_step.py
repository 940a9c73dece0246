"""copy: every shard into staging, by elements of an array.

`penstock copy` calls `run` under the workflow, and `step_chain` calls `copy` where files have to be copied
again. The elements write staging (the tree in which the release grows, hidden from readers) and journals;
this process submits and watches them, and writes the step's receipt.

Guarantee: on return each row of the plan lies in staging under its final name, durable and
recorded in its shard's journal. What an earlier attempt recorded is not copied again.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from penstock.core import events, human
from penstock.core.errors import FailedError, SourceChangedError
from penstock.dataset import adopted_trees, receipts
from penstock.host.job_environment import host_name
from penstock.jobs.arrays.array_runner import run_array, still_alive
from penstock.jobs.arrays.array_throttle import read_slots
from penstock.jobs.bandwidth.overview import cap_now
from penstock.jobs.forecast import element_rate, element_time
from penstock.jobs.ownership import ops_share, promises
from penstock.jobs.ownership.lowered_promise import LoweredPromise
from penstock.run.locked_run import with_lock
from penstock.run.planning.takeover import move_giants
from penstock.run.release import amended_listing
from penstock.target import dataset_folders, modes, tree_removal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.core.documents.step_results import CopyReceipt, StepReceipt
    from penstock.core.layout import RunLayout
    from penstock.dataset.context import Context
    from penstock.dataset.run import Run

STEP = "copy"


def run(context: Context, dataset: str) -> StepReceipt:
    """Copy what the plan says. Returns the receipt: {dataset, run, release, files, bytes, ...}.

    Raises FailedError, SourceChangedError, NoSpaceError, LockedError; what was done is kept.
    """
    return with_lock(context, dataset, STEP, copy)


def copy(context: Context, run: Run) -> CopyReceipt:
    """Do as `run` does, for a caller that holds the dataset's lock."""
    started, before = time.time(), receipts.bytes_before(run, STEP)
    plan, folder, ok = run.plan, run.folder, receipts.held(run, STEP)
    if _follows(run) and (joined := amended_listing.complete_joins(run, host_name())):
        _tell_joined(context, run, joined)
    done_before = {index for index in run.indices if ok(index)}
    context.emit(
        events.Started(run.dataset, STEP, files=plan.files, bytes=plan.bytes, elements=len(run.indices))
    )
    if not run.data.is_dir():
        raise FailedError(
            "the staging folder is not here",
            where=str(run.data),
            hint=f"plan again: `penstock step list {run.dataset}`, then `penstock step plan {run.dataset}`",
        )
    left = set(run.indices) - done_before
    if left and folder.receipt("permissions").exists():
        # The permissions step closed folders that are written to again now. Its receipt is dropped last:
        # after a kill in between, all of this is done again.
        policy = run.config.dataset.permissions
        dataset_folders.open_staging(
            run.layout,
            run.release,
            modes.dir_mode(policy),
            modes.group_id(policy),
            modes.access_rules(policy),
        )
        tree_removal.open_folders(run.data)
        modes.unseal(run.data, _giants(folder, left))
        receipts.drop(folder.receipt("permissions"))
    if left and not still_alive(context, run.dataset, folder, STEP, indices=run.indices, receipt_ok=ok):
        move_giants(run)
        _settle_adopted(context, run)
    lowered = _lowered(context, run, done_before)
    ops_share.begin(context, run.layout, run.id, min(read_slots(context, folder, STEP), len(left)))
    _elements(context, run, ok, lowered, len(left))
    promises.lower(run.layout, run.id, 0, 0)
    promises.at_once(context, run.layout, run.id, 0)
    elements = receipts.of_elements(run, STEP)
    fresh = [r for i, r in zip(run.indices, elements, strict=True) if i not in done_before]
    for text in (text for r in fresh for text in r.warnings):
        context.emit(events.Warned(run.dataset, STEP, text=text))
    changed, gone = amended_listing.totals(elements)
    if changed or gone:
        amended_listing.check_limits(run, elements)
        if not folder.receipt("permissions").exists():
            amended_listing.remove_empty_folders(run, elements)
        text = (
            f"the source changed while it was copied: {human.counted(changed, 'file')} in their new version"
        )
        context.emit(events.Noted(run.dataset, STEP, text=f"{text}, {gone:,} gone"))
    receipt: CopyReceipt = {
        **receipts.head(run, STEP, started),
        "files": plan.files - gone,
        "bytes": plan.bytes,
        "amended": changed,
        "gone": gone,
        "elements": len(run.indices),
        "elements_run": len(fresh),
        "copied_rows": sum(r.done_files - r.linked for r in fresh),
        "copied_bytes": sum(r.done_bytes for r in fresh),
        "linked": sum(r.linked - r.taken for r in elements),
        "taken": sum(r.taken for r in elements),
        "retries": sum(r.retries for r in elements),
        "hosts": sorted({r.host for r in elements}),
        "slurm_api": context.cluster.way,
    }
    receipts.keep(run, receipt, elements, before)
    context.emit(events.Ended(run.dataset, STEP, receipt))
    return receipt


def _settle_adopted(context: Context, run: Run) -> None:
    """As `adopted_tree.settle`: few runs have an adopted tree, and the others load no pyarrow."""
    if adopted_trees.read(run.folder) is not None:
        from penstock.run.adoption import adopted_tree

        adopted_tree.settle(context, run)


def _lowered(context: Context, run: Run, done: Iterable[int]) -> LoweredPromise:
    """The promise of a run of which these shards are done."""
    plan, before = run.plan, [run.shards[index] for index in done]
    lowered = LoweredPromise(run.layout, run.id, plan.files + plan.folders, plan.bytes)
    size, files = lowered.left(sum(one.files for one in before), sum(one.bytes for one in before))
    gid = modes.group_id(run.config.dataset.permissions)
    gid = os.getegid() if gid is None else gid
    promises.again(context, run.layout, run.id, STEP, size, files, gid)
    return lowered


def _elements(
    context: Context, run: Run, ok: Callable[[int], bool], amounts: Callable[[int, int], None], left: int
) -> None:
    """Run elements until every one is done; `left` of them are not yet. With `changed: follow`, giants whose
    object changed are copied whole in a further round."""

    def widen(at_once: int) -> None:
        ops_share.begin(context, run.layout, run.id, min(at_once, left))

    at_once = min(read_slots(context, run.folder, STEP), left)
    rate = element_rate(run.config.engine.limit, cap_now(context.config.bandwidth).rate, at_once)
    expected = element_time(run.layout, run.shards, rate, copies=True)
    while True:
        try:
            run_array(
                context, run.dataset, run.folder, STEP, run.indices, ok, amounts=amounts, expected=expected,
                widen=widen,
            )  # fmt: skip
            return
        except SourceChangedError:
            joined = amended_listing.join_giants(run, host_name()) if _follows(run) else []
            if not joined:
                raise
            _tell_joined(context, run, joined)


def _follows(run: Run) -> bool:
    return run.config.dataset.changed == "follow"


def _tell_joined(context: Context, run: Run, giants: Sequence[str]) -> None:
    text = f"{human.counted(len(giants), 'giant')} changed while their parts were copied: copied whole"
    context.emit(events.Noted(run.dataset, STEP, text=text))


def _giants(folder: RunLayout, shards: Iterable[int]) -> Iterator[str]:
    """Paths of giants that have parts in these shards."""
    from penstock.tables.shards import read_shard

    before = ""
    for index in sorted(shards):
        for batch in read_shard(folder.shard(index)):
            for entry in batch:
                if entry.part >= 0 and entry.path != before:
                    before = entry.path
                    yield before
