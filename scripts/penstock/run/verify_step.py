"""verify: every stored file read back and compared (`run.read_back`), after copy and permissions.

`penstock verify` calls `run` under the workflow, and adopt calls it. This process takes the dataset's lock,
submits and watches the elements, which read staging (the tree in which the release grows) and write records,
and writes the step's receipt: the file that proves what it did. Where the receipt of permissions no longer
holds, and after files read back damaged, it runs copy and permissions again (`step_chain`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.run import step_chain
from penstock.run.locked_run import with_lock

if TYPE_CHECKING:
    from penstock.core.documents.step_results import StepReceipt
    from penstock.dataset.context import Context

STEP = "verify"


def run(context: Context, dataset: str) -> StepReceipt:
    """Read back and compare. Returns the receipt: {dataset, run, release, files, bytes, ...}; where the run's
    release is published already it says `published`, and nothing is done.

    Raises FailedError when files keep reading back damaged or copy did not end, PreflightError where nothing
    is planned, LockedError, NoSpaceError, SourceChangedError.
    """
    return with_lock(context, dataset, STEP, step_chain.verify)
