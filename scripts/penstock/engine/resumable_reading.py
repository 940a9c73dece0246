"""A reading of a shard's rows that saves its results as it goes: an audit (`audit_shard`) or a survey
(`survey_shard`).

A killed element resumes where its results were last saved. A row whose data is not on this file system is not
opened, unless the results want it read all the same.
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
    from penstock.fs.stores import DataState
    from penstock.host.pacing import Allowances

EVERY = 3.0  # seconds between two writes of the results: what a kill can cost
PAUSE_FACTOR = 20  # a slow write (many findings) is followed by this many times its duration


class ResumableReading(Generic[Row]):
    """One attempt at a shard; subclasses keep the results."""

    def __init__(self, data: Path, named: str, recall: int, done: set[int]) -> None:
        """`named`: the kind of file system whose rules hold, as in `target.filesystem`. `recall`: bytes of
        tiered files that may be fetched back. `done`: rows that earlier attempts have results of."""
        self._data, self._named, self._done = data, named, done
        self.recall = Recall(recall)

    def add(self, answer: BatchAnswer) -> None:
        """Take a worker's results of one batch."""
        raise NotImplementedError

    def leave(self, row: int, entry: Row, state: DataState) -> bool:
        """Return whether a row whose data is not here is left out; that is then its result."""
        raise NotImplementedError

    def write(self) -> None:
        """Write what was added; durable on return."""
        raise NotImplementedError

    def tend(self) -> None:
        """Do a subclass's periodic work; called several times a second."""

    def read(
        self,
        run: PoolRun,
        work: ReadWork | SurveyWork,
        rows: Iterable[list[Row]],
        stop: StopCheck,
        share: Allowances | None = None,
    ) -> None:
        """Read the shard's `rows` that are not done. Raises the errors of `PoolRun.go`; what was read until
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
