"""How each step of a planned run begins: the run is found, its release is not published yet, and the
dataset's lock is this step's (the file that says which step changes the dataset now)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.dataset import receipts, run_store, seals
from penstock.jobs.ownership.dataset_hold import holding

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.documents.step_results import StepReceipt
    from penstock.dataset.context import Context
    from penstock.dataset.run import Run


def with_lock(
    context: Context, dataset: str, step: str, work: Callable[[Context, Run], StepReceipt]
) -> StepReceipt:
    """Do a step's work on the run that list made or met last, or that the context names, under the dataset's
    lock; returns the work's receipt. Where the run's release is published the receipt says so, and nothing
    is done. Raises PreflightError where nothing was listed or planned, LockedError, and what `work` raises.
    """
    run = run_store.open_run(context.layout(dataset), context.run)
    if seals.of_run(run) is not None:
        return receipts.published(run, step)
    _ = run.plan  # there is one: before the lock is waited for
    with holding(context, dataset, run.id, step):
        return work(context, run)
