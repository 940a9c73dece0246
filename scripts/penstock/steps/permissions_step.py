"""permissions: final modes and group, before verify, and folders that no longer take files.

Guarantee: on return all of staging has the modes and the group of the configuration, checked;
no element of copy lives, as far as the cluster can say; temporary files of dead attempts are gone.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.arrays.array_runner import still_alive
from penstock.config.settings import dataset_config
from penstock.core import events
from penstock.core.layout import DATA
from penstock.errors import FailedError
from penstock.ownership.dataset_hold import holding
from penstock.state import receipts, run_store, seals
from penstock.steps.copy_step import head, published
from penstock.storage import tree_removal
from penstock.storage.modes import group_id, mend

if TYPE_CHECKING:
    from penstock.core.layout import RunLayout
    from penstock.core.run_documents import PlanInfo, RunInfo
    from penstock.state.context import Context

STEP = "permissions"


def run(context: Context, dataset: str) -> dict[str, Any]:
    """Set and check. Returns the receipt, which is also kept with the run."""
    layout = context.layout(dataset)
    info, folder = run_store.open_run(layout, context.run)
    if seals.of_run(layout, info) is not None:
        return published(info, STEP)
    plan = run_store.read_plan(folder)
    with holding(context, dataset, info.run, STEP):
        return close(context, dataset, info, folder, plan)


def close(context: Context, dataset: str, info: RunInfo, folder: RunLayout, plan: PlanInfo) -> dict[str, Any]:
    """The same, by one who holds the lock. Returns at once when the receipt holds."""
    shards = receipts.indices(plan)
    receipts.need(receipts.copy_ok(folder, plan), shards, "copy", dataset)
    done = current(folder, plan)
    if done is not None:
        return done
    started = time.time()
    context.emit(events.Started(dataset, STEP, files=plan.files))
    alive = still_alive(context, dataset, folder, "copy")
    if alive:
        raise FailedError(
            "elements of copy may still write",
            where=dataset,
            why=f"array {', '.join(alive)} has not ended",
            hint=f"wait for them, or `penstock cancel {dataset}`",
        )
    staging = context.layout(dataset).staging(info.release)
    policy = dataset_config(info.config["dataset"]).permissions
    swept = tree_removal.sweep_temporaries(staging / DATA)
    counts = mend(staging, policy, group_id(policy))
    # An attempt that lives on unseen could make one until its folder was closed.
    swept += tree_removal.sweep_temporaries(staging / DATA)
    receipt = {
        **head(info, STEP, started),
        **counts,
        "swept": swept,
        "copies": receipts.copies(folder, shards),
    }
    receipts.write(folder.receipt(STEP), receipt)
    context.emit(events.Ended(dataset, STEP, receipt))
    return receipt


def current(folder: RunLayout, plan: PlanInfo) -> dict[str, Any] | None:
    """The step's receipt while nothing was copied since."""
    receipt = receipts.read(folder.receipt(STEP))
    if receipt is None or receipt.get("copies") != receipts.copies(folder, receipts.indices(plan)):
        return None
    return receipt
