"""verify: every stored file read back and compared (`steps.read_back`), after copy and permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.steps import step_chain
from penstock.steps.locked_run import with_lock

if TYPE_CHECKING:
    from penstock.core.documents.step_results import StepReceipt
    from penstock.state.context import Context

STEP = "verify"


def run(context: Context, dataset: str) -> StepReceipt:
    """Read back and compare. Returns the receipt: {dataset, run, release, files, bytes, ...}.

    Raises FailedError when files keep reading back damaged, LockedError, NoSpaceError,
    SourceChangedError.
    """
    return with_lock(context, dataset, STEP, step_chain.verify)
