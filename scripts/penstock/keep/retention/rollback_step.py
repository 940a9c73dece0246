"""rollback: an earlier release becomes current again, by one rename; a run of an unchanged source leaves it
so.

`penstock rollback` calls it. Under the dataset's lock it ends interrupted removals, then `rollback.lead`
moves `current`; no release is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import FindingsError
from penstock.core.layout import DATA
from penstock.dataset import reserve
from penstock.jobs.ownership.dataset_hold import holding
from penstock.keep.retention import removals, rollback
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from penstock.core.documents.step_results import RollbackResult
    from penstock.dataset.context import Context
    from penstock.keep.retention.rollback import Led

STEP = "rollback"


def run(context: Context, dataset: str, release: str | None) -> RollbackResult:
    """Make the release current; None: the one before the current one. Raises ConfigError for a release that
    is not there, FindingsError for one that is not whole or has findings against it, LockedError,
    PreflightError for whoever is not the dataset's owner.
    """
    layout = context.layout(dataset)
    if not dataset_folders.releases(layout):
        raise FindingsError(
            "nothing is published",
            where=str(layout.releases),
            hint=f"`{context.program} run {dataset}` stages it",
        )

    def lead() -> Led:
        with holding(context, dataset, "", STEP):
            removals.settle(context, layout)
            return rollback.lead(context, layout, release)

    led = reserve.sparing(context, layout, STEP, lead)
    return {
        "dataset": dataset,
        "release": led.release,
        "left": led.left,
        "finished": led.finished,
        "path": str(layout.release(led.release) / DATA),
    }
