"""verify: every stored file read back and compared (`run.read_back`), after copy and permissions.

If the receipt of permissions is no longer valid, or after files read back damaged, it repeats copy and
permissions (`step_chain`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.run import step_chain
from penstock.run.locked_run import with_lock

if TYPE_CHECKING:
    from penstock.core.step_results import StepReceipt
    from penstock.dataset.context import Context

STEP = "verify"


def run(context: Context, dataset: str) -> StepReceipt:
    """Read back and compare; return the receipt: {dataset, run, release, files, bytes, ...}.

    For a published run nothing is done, and the receipt has `published`. Raises FailedError if files keep
    reading back damaged, or if copy was not finished. Raises PreflightError if nothing is planned,
    LockedError, NoSpaceError, SourceChangedError.
    """
    return with_lock(context, dataset, STEP, step_chain.verify)
