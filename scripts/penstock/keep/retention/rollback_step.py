"""rollback: makes an earlier release current again. A run of an unchanged source leaves it so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import FindingsError
from penstock.core.layout import DATA
from penstock.dataset import reserve
from penstock.jobs.dataset_hold import holding
from penstock.keep.retention import removals, rollback
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from penstock.core.step_results import RollbackResult
    from penstock.dataset.context import Context
    from penstock.keep.retention.rollback import Led

STEP = "rollback"


def run(context: Context, dataset: str, release: str | None) -> RollbackResult:
    """Make the release current; None: the one before the current one. Raises ConfigError for an unknown
    release, FindingsError for one that is damaged or has findings, LockedError, PreflightError for another
    account than the owner."""
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
