"""permissions: folders that no longer take files, and the final modes of giants, before verify.

It changes modes, groups and ACLs in staging (the tree in which the release grows), removes temporary files
there, asks the cluster for elements of copy, and writes the step's receipt: the file that proves what it did.

Other files have their permissions from the element that wrote them, and publish compares all with the policy
on the walk that looks at each file anyway. So this step looks at folders and giants alone, unless the tree is
an adopted one, or publish asks for each file (`close`).

Guarantee: on return all folders and giants of staging have the modes, group and ACL of the configuration,
checked; no element of copy lives, as far as the cluster can say; temporary files of dead attempts are gone,
but for those that an attempt made that lives on unseen: publish removes them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.core import events
from penstock.core.errors import FailedError
from penstock.dataset import adopted_trees, receipts
from penstock.jobs.arrays.array_runner import still_alive
from penstock.run.locked_run import with_lock
from penstock.target import modes

if TYPE_CHECKING:
    from penstock.core.documents.step_results import PermissionsReceipt, StepReceipt
    from penstock.dataset.context import Context
    from penstock.dataset.run import Run

STEP = "permissions"


def run(context: Context, dataset: str) -> StepReceipt:
    """Set and check the permissions. Returns the receipt, which is also kept with the run. Raises FailedError
    where elements of copy may still write, and LockedError."""
    return with_lock(context, dataset, STEP, close)


def close(context: Context, run: Run, *, each: bool = False) -> StepReceipt:
    """Do as `run` does, for a holder of the dataset's lock. Returns at once when the receipt holds. `each`:
    whatever the receipt says, every file is looked at, and set where it differs."""
    receipts.need(run, "copy")
    done = current(run)
    if done is not None and not each:
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
    each = each or adopted_trees.read(run.folder) is not None
    giants = None if each else _giants(run)
    counts = modes.set_permissions(run.staging, policy, modes.group_id(policy), context.spend, giants=giants)
    receipt: PermissionsReceipt = {
        **receipts.head(run, STEP, started),
        **counts,
        "copies": receipts.copies(run),
    }
    receipts.write_step(run.folder, receipt)
    context.emit(events.Ended(run.dataset, STEP, receipt))
    return receipt


def _giants(run: Run) -> set[str]:
    """Paths of all giants."""
    if not run.plan.giants:
        return set()
    from penstock.tables.shards import giants

    return set().union(*(giants(run.folder.shard(index)) for index in run.indices))


def current(run: Run) -> StepReceipt | None:
    """The step's receipt while nothing was copied since."""
    receipt = receipts.step(run.folder, STEP)
    if receipt is None or receipt.get("copies") != receipts.copies(run):
        return None
    return receipt
