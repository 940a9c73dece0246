"""verify: every stored file read back and compared (`run.read_back`), after copy and permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.run import step_chain
from penstock.run.locked_run import with_lock

if TYPE_CHECKING:
    from penstock.core.documents.step_results import StepReceipt
    from penstock.dataset.context import Context

STEP = "verify"


def run(context: Context, dataset: str) -> StepReceipt:
    """Read back and compare. Returns the receipt: {dataset, run, release, files, bytes, ...}.

    Raises FailedError when files keep reading back damaged, LockedError, NoSpaceError,
    SourceChangedError.
    """
    return with_lock(context, dataset, STEP, step_chain.verify)
