"""What a step has while it may change its dataset: the dataset's lock, and the claim of its run (a numbered
file that says which run the dataset is staged for).

`jobs.ownership.dataset_hold` makes one for each step; the step, and what it calls, asks it right before each
change. Reads only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.dataset import run_claims

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.dataset_lock import DatasetLock


class HeldDataset:
    """A dataset while a step of `run` (its id) holds the lock; "": a step of no run yet, such as list."""

    def __init__(self, layout: DatasetLayout, lock: DatasetLock, run: str) -> None:
        self.layout, self.run = layout, run
        self._lock = lock
        self.above = run_claims.highest(layout) if not run else None
        """The claim that stood when a step of no run began; None where there was none, and for other
        steps."""
        self.number = run_claims.number(layout) if run else 0
        """The number of the run's claim when the step began; 0 without a run."""

    def assert_held(self) -> None:
        """Raises LockedError where another run has claimed the dataset or the lock was lost. To be called
        right before each change that readers or another run could see."""
        if self.run:
            run_claims.check(self.layout, self.run)
        self._lock.assert_held()
