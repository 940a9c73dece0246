"""The beginning of a planned step: find the run, check that it is unpublished, take the dataset's lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.dataset import receipts, run_store, seals
from penstock.jobs.dataset_state import holding

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.step_results import StepReceipt
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run


def with_lock(
    context: Context, dataset: str, step: str, work: Callable[[Context, Run], StepReceipt]
) -> StepReceipt:
    """Do a step's work, under the dataset's lock, on the run that list made last, or on the context's run.

    Returns the work's receipt; for a published run, a receipt with `published`. Raises PreflightError if
    nothing was listed or planned, LockedError, and the errors of `work`.
    """
    run = run_store.open_run(context.layout(dataset), context.run)
    if seals.of_run(run) is not None:
        return receipts.published(run, step)
    _ = run.plan  # raises if there is no plan, before this waits for the lock
    with holding(context, dataset, run.id, step):
        return work(context, run)
