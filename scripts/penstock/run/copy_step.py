"""copy: copies every shard (a part of the plan) into staging, the hidden tree in which the release grows.
Elements (processes) of a job array do the work.

On return, each row of the plan is in staging under its final name, durable and recorded in its shard's
journal. Rows that an earlier attempt recorded are not copied again.
"""

from __future__ import annotations

import time
from itertools import chain
from typing import TYPE_CHECKING

from penstock.core import human, run_steps
from penstock.core.errors import FailedError, SourceChangedError
from penstock.dataset import documents, receipts, staging_notice
from penstock.fs.quotas import owner_of_new
from penstock.host.kernel_facts import host_name
from penstock.jobs import shard_claims
from penstock.jobs.array_runner import reads_back_beside, run_array, still_alive
from penstock.jobs.array_supervision import read_slots, started_event
from penstock.jobs.bandwidth import cap_now
from penstock.jobs.forecast import FILE_SYSTEM_BLOCK, LoweredNotice, element_rate, element_time
from penstock.run import amended_listing
from penstock.run.locked_run import with_lock
from penstock.run.target_findings import move_giants
from penstock.target import dataset_folders, modes, tree_removal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.core.estimates import Estimate
    from penstock.core.step_results import CopyReceipt, StepReceipt
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run

STEP = "copy"


def run(context: Context, dataset: str) -> StepReceipt:
    """Copy the plan's files; return the receipt: {dataset, run, release, files, bytes, ...}. Raises
    FailedError, SourceChangedError, NoSpaceError, LockedError. Finished work is kept."""
    return with_lock(context, dataset, STEP, copy)


def copy(context: Context, run: Run) -> CopyReceipt:
    """Copy. The caller holds the dataset's lock."""
    started = time.time()
    before = receipts.bytes_before(run, STEP, shard_claims.standing(run.folder, STEP))
    plan, folder, ok = run.plan, run.folder, receipts.held(run, STEP)
    if _follows(run) and (joined := amended_listing.complete_joins(run, host_name())):
        _tell_joined(context, run, joined)
    done_before = {index for index in run.indices if ok(index)}
    context.emit(started_event(context, run, STEP, plan.files))
    if not run.data.is_dir():
        raise FailedError(
            "the staging folder is not here",
            where=str(run.data),
            hint=f"plan again: `penstock step list {run.dataset}`, then `penstock step plan {run.dataset}`",
        )
    left = set(run.indices) - done_before
    if left and folder.receipt("permissions").exists():
        # The permissions step closed folders that must be writable again now. That step's receipt is dropped
        # last, so that all of this is repeated after a kill in between.
        policy = run.config.dataset.permissions
        dataset_folders.open_staging(
            run.layout,
            run.release,
            modes.dir_mode(policy),
            modes.group_id(policy),
            modes.access_rules(policy),
        )
        tree_removal.open_folders(run.data)
        _unseal_giants(run, left)
        receipts.drop(folder.receipt("permissions"))
    if left and not still_alive(context, run.dataset, folder, STEP, indices=run.indices, receipt_ok=ok):
        move_giants(run)
        # A concurrent reading back, or another run, may have set the giants' final modes.
        _unseal_giants(run, left)
        _settle_adopted(context, run)
    lowered = _lowered(run, done_before)
    _elements(context, run, ok, lowered, len(left))
    staging_notice.written(run.layout, run.layout.under_way)
    elements = receipts.of_elements(run, STEP)
    fresh = [r for i, r in zip(run.indices, elements, strict=True) if i not in done_before]
    for text in (text for r in fresh for text in r.warnings):
        context.emit(run_steps.Warned(run.dataset, STEP, text=text))
    changed, gone = amended_listing.totals(elements)
    if changed or gone:
        amended_listing.check_limits(run, elements)
        if not folder.receipt("permissions").exists():
            amended_listing.remove_empty_folders(run, elements)
        text = (
            f"the source changed while it was copied: {human.counted(changed, 'file')} in their new version"
        )
        context.emit(run_steps.Noted(run.dataset, STEP, text=f"{text}, {gone:,} gone"))
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
    receipts.keep(run, receipt, elements, before, shard_claims.standing(run.folder, STEP))
    context.emit(run_steps.Ended(run.dataset, STEP, receipt))
    return receipt


def _unseal_giants(run: Run, shards: Iterable[int]) -> None:
    if run.plan.giants:
        from penstock.tables.run_tables import giants

        paths = chain.from_iterable(giants(run.folder.shard(index)) for index in shards)
        modes.unseal(run.data, paths)


def _settle_adopted(context: Context, run: Run) -> None:
    """Settle an adopted tree (`adopted_tree.settle`). Runs without such a tree load no pyarrow."""
    if documents.read_adopted_tree(run.folder) is not None:
        from penstock.run import adopted_tree

        adopted_tree.settle(context, run)


def _lowered(run: Run, done: Iterable[int]) -> LoweredNotice:
    """Return the notice of what the run will still write, lowered by these finished shards. Writes plan's
    notice again if an earlier attempt removed it. The notice does not include other runs' needs."""
    plan, before, path = run.plan, [run.shards[index] for index in done], run.layout.under_way
    # Elements also count linked and taken-over files as done, so the total includes these files.
    lowered = LoweredNotice(run.layout, path, plan.files + plan.folders, plan.bytes)
    stated = staging_notice.find(run.layout)
    if stated is not None and not stated.writes.files:
        files, size = plan.new_on_target
        size += files * FILE_SYSTEM_BLOCK
        _, gid = owner_of_new(run.layout.releases, None, modes.group_id(run.config.dataset.permissions))
        staging_notice.restate(run.layout, path, bytes=size, files=files, gid=gid)
    lowered.lower(sum(shard.files for shard in before), sum(shard.bytes for shard in before))
    return lowered


def _elements(
    context: Context, run: Run, ok: Callable[[int], bool], amounts: Callable[[int, int], None], left: int
) -> None:
    """Run elements until every shard is done; `left` counts the unfinished shards. With `changed: follow`, a
    further round copies, as a whole, giants whose object changed."""

    at_once = min(read_slots(context, run.folder, STEP), left)
    rate = element_rate(run.config.engine.limit, cap_now(context.config.bandwidth).rate, at_once)
    copying = element_time(run.layout, run.shards, rate, copies=True)
    reading = element_time(run.layout, run.shards, copies=False)
    reads_back = reads_back_beside(context, run.folder, STEP)

    def expected(index: int) -> Estimate:
        estimate = copying(index)
        return estimate._replace(seconds=estimate.seconds + reads_back * reading(index).seconds)

    while True:
        try:
            run_array(
                context, run.dataset, run.folder, STEP, run.indices, ok, amounts=amounts, expected=expected,
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
    context.emit(run_steps.Noted(run.dataset, STEP, text=text))
