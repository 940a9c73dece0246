"""A reading of a shard's rows whose results are written down while it runs: an audit, or a comparison.

The base of `audit_shard` and `survey_shard`, which decide what is written and where. It runs a pool of worker
processes over the rows.

An element that is killed goes on where its results were last written. A row whose data is not on this file
system is not opened, unless the results have it read all the same.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic

from penstock.engine.batches import batches
from penstock.engine.reading.rows_here import Recall, Row, rows_here
from penstock.fs.store_checks import data_states

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penstock.engine.shard_run import PoolRun
    from penstock.engine.tasks import Batch, BatchAnswer, StopCheck
    from penstock.engine.workers.work_kinds import ReadWork, SurveyWork
    from penstock.fs.stores.facts import DataState
    from penstock.host.pacing import Allowances

EVERY = 3.0
"""Seconds between two writings of the results: what a kill can cost."""
PAUSE_FACTOR = 20
"""A writing that takes long (many findings) is followed by this many times its duration."""


class ResumableReading(Generic[Row]):
    """One attempt at a shard; subclasses keep the results."""

    def __init__(self, data: Path, named: str, recall: int, done: set[int]) -> None:
        """`data`: the tree that is read; `named`: the kind of file system whose rules hold, as in
        `target.filesystem`. `recall`: bytes of tiered files that may be fetched back to be read. `done`: the
        rows that earlier attempts have results of."""
        self._data, self._named, self._done = data, named, done
        self.recall = Recall(recall)

    def add(self, answer: BatchAnswer) -> None:
        """Take a worker's results of one batch."""
        raise NotImplementedError

    def leave(self, row: int, entry: Row, state: DataState) -> bool:
        """Whether a row whose data is not here is left out; that is its result then."""
        raise NotImplementedError

    def write(self) -> None:
        """Write down what was added; durable on return."""
        raise NotImplementedError

    def tend(self) -> None:
        """Is called several times a second while rows are read; does nothing unless a subclass needs it."""

    def read(
        self,
        run: PoolRun,
        work: ReadWork | SurveyWork,
        rows: Iterable[list[Row]],
        stop: StopCheck,
        share: Allowances | None = None,
    ) -> None:
        """Read the shard's `rows` that are not done. Raises what `PoolRun.go` raises; what was read until
        then is written."""
        outcome, left = run.outcome, run.shard.rows - len(self._done)
        run.start_reading(work, left, share)

        def take(_: Batch, answer: BatchAnswer) -> None:
            self.add(answer)
            run.fail(answer.failures)
            outcome.add(answer)

        due = time.monotonic() + EVERY

        def idle() -> None:
            nonlocal due
            self.tend()
            begun = time.monotonic()
            if begun >= due:
                self.write()
                now = time.monotonic()
                due = now + max(EVERY, PAUSE_FACTOR * (now - begun))

        states = data_states(self._data, self._named)
        with rows_here(rows, self._done, states, self.leave) as here:
            try:
                run.go(batches(here, self._done, left, outcome.workers), take, idle, stop)
            finally:
                self.write()
        if states is not None and states.silence:
            why = f"the vendor's command did not say which files' data is not here: {states.silence}"
            outcome.warnings.append(f"{why}; their blocks were looked at")
