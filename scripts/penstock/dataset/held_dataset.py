"""What a step holds while it may change its dataset: the lock, and the claim of its run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.dataset import run_claims

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.dataset_lock import DatasetLock


class HeldDataset:
    """A dataset locked for a step of `run` (its id); "": a step without a run yet, such as list."""

    def __init__(self, layout: DatasetLayout, lock: DatasetLock, run: str) -> None:
        self.layout, self.run = layout, run
        self._lock = lock
        # the claim that stood when a step without a run began
        self.above = run_claims.highest(layout) if not run else None
        # the number of the run's claim when the step began; 0 without a run
        self.number = run_claims.number(layout) if run else 0

    def assert_held(self) -> None:
        """Raise LockedError if another run claimed the dataset or the lock was lost. Call it right before
        each change that readers or another run could see."""
        if self.run:
            run_claims.check(self.layout, self.run)
        self._lock.assert_held()
