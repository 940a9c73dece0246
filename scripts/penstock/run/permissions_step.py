"""permissions: close folders, so that they take no more files, and set giants' final modes, before verify.

Other files get their permissions from the element that writes them, and publish's walk compares all files. So
this step visits only folders and giants, unless the tree is adopted, or publish requests each file (`close`).

On return all folders and giants of staging have the configured modes, group and ACL, which was checked. No
element of copy lives, as far as the cluster can tell. Temporary files of dead attempts are removed. Publish
removes temporary files of a live attempt that was not seen.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.core import run_steps
from penstock.core.errors import FailedError
from penstock.dataset import documents, receipts
from penstock.jobs.array_runner import still_alive
from penstock.run.locked_run import with_lock
from penstock.target import modes

if TYPE_CHECKING:
    from penstock.core.step_results import PermissionsReceipt, StepReceipt
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run

STEP = "permissions"


def run(context: Context, dataset: str) -> StepReceipt:
    """Set and check the permissions; return the receipt, which is also kept with the run. Raises LockedError,
    and FailedError if elements of copy may still write."""
    return with_lock(context, dataset, STEP, close)


def close(context: Context, run: Run, *, each: bool = False) -> StepReceipt:
    """Set and check the permissions. The caller holds the dataset's lock. Returns at once if the receipt is
    valid. `each` means: check every file, even with a valid receipt, and set its permissions if they
    differ."""
    receipts.need(run, "copy")
    done = current(run)
    if done is not None and not each:
        return done
    started = time.time()
    context.emit(run_steps.Started(run.dataset, STEP, files=run.plan.files))
    alive = still_alive(context, run.dataset, run.folder, "copy")
    if alive:
        raise FailedError(
            "elements of copy may still write",
            where=run.dataset,
            why=f"array {', '.join(alive)} has not ended",
            hint=f"wait for them, or `penstock cancel {run.dataset}`",
        )
    policy = run.config.dataset.permissions
    each = each or documents.read_adopted_tree(run.folder) is not None
    giants = None if each else _giants(run)
    counts = modes.set_permissions(run.staging, policy, modes.group_id(policy), context.spend, giants=giants)
    receipt: PermissionsReceipt = {
        **receipts.head(run, STEP, started),
        **counts,
        "copies": receipts.copies(run),
    }
    receipts.write_step(run.folder, receipt)
    context.emit(run_steps.Ended(run.dataset, STEP, receipt))
    return receipt


def _giants(run: Run) -> set[str]:
    if not run.plan.giants:
        return set()
    from penstock.tables.run_tables import giants

    return set().union(*(giants(run.folder.shard(index)) for index in run.indices))


def current(run: Run) -> StepReceipt | None:
    receipt = receipts.step(run.folder, STEP)
    if receipt is None or receipt.get("copies") != receipts.copies(run):
        return None
    return receipt
