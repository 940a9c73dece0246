"""permissions: final modes and group, before verify, and folders that no longer take files.

It changes modes, groups and ACLs in staging (the tree in which the release grows), removes temporary files
there, asks the cluster for elements of copy, and writes the step's receipt: the file that proves what it did.

Guarantee: on return all of staging has the modes and the group of the configuration, checked;
no element of copy lives, as far as the cluster can say; temporary files of dead attempts are gone.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.core import events
from penstock.core.errors import FailedError
from penstock.dataset import receipts
from penstock.jobs.arrays.array_runner import still_alive
from penstock.run.locked_run import with_lock
from penstock.target import modes, tree_removal

if TYPE_CHECKING:
    from penstock.core.documents.step_results import PermissionsReceipt, StepReceipt
    from penstock.dataset.context import Context
    from penstock.dataset.run import Run

STEP = "permissions"


def run(context: Context, dataset: str) -> StepReceipt:
    """Set and check the permissions. Returns the receipt, which is also kept with the run. Raises FailedError
    where elements of copy may still write, and LockedError."""
    return with_lock(context, dataset, STEP, close)


def close(context: Context, run: Run) -> StepReceipt:
    """Do as `run` does, for a holder of the dataset's lock. Returns at once when the receipt holds."""
    receipts.need(run, "copy")
    done = current(run)
    if done is not None:
        return done
    started = time.time()
    context.emit(events.Started(run.dataset, STEP, files=run.plan.files))
    alive = still_alive(context, run.dataset, run.folder, "copy")
    if alive:
        raise FailedError(
            "elements of copy may still write",
            where=run.dataset,
            why=f"array {', '.join(alive)} has not ended",
            hint=f"wait for them, or `penstock cancel {run.dataset}`",
        )
    policy = run.config.dataset.permissions
    swept = tree_removal.sweep_temporaries(run.data)
    counts = modes.set_permissions(run.staging, policy, modes.group_id(policy), context.spend)
    # An attempt that lives on unseen could make one until its folder was closed.
    swept += tree_removal.sweep_temporaries(run.data)
    receipt: PermissionsReceipt = {
        **receipts.head(run, STEP, started),
        **counts,
        "swept": swept,
        "copies": receipts.copies(run),
    }
    receipts.write_step(run.folder, receipt)
    context.emit(events.Ended(run.dataset, STEP, receipt))
    return receipt


def current(run: Run) -> StepReceipt | None:
    """The step's receipt while nothing was copied since."""
    receipt = receipts.step(run.folder, STEP)
    if receipt is None or receipt.get("copies") != receipts.copies(run):
        return None
    return receipt
