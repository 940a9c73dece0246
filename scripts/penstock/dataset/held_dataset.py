"""What a step holds of its dataset: the lock, and the claim of its run (`jobs.ownership.dataset_hold`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.dataset import run_claims

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.dataset_lock import DatasetLock


class HeldDataset:
    """A dataset while a step of `run` holds its lock; "": of no run yet."""

    def __init__(self, layout: DatasetLayout, lock: DatasetLock, run: str) -> None:
        self.layout, self.run = layout, run
        self._lock = lock
        self.above = run_claims.highest(layout) if not run else None
        """The claim that stood when a step of no run began."""
        self.number = run_claims.number(layout) if run else 0
        """The number of the run's claim when the step began."""

    def assert_held(self) -> None:
        """Raises LockedError where the step was overtaken: to be called right before whatever readers or
        another run could see."""
        if self.run:
            run_claims.check(self.layout, self.run)
        self._lock.assert_held()
