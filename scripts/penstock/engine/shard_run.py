"""Runs worker processes over the rows of a shard, for copy, verify, audit and adopt.

`PoolRun()` starts the workers, `start` gives them work, `go` feeds them batches and ends them, and `close`
kills those still running. If no row is left, call `rest` instead of `start` and `go`. Only the workers access
sources and files of the target.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from penstock.core.errors import InterruptedRunError, PenstockError
from penstock.engine import pool, sizing
from penstock.engine.multipart import Ahead
from penstock.engine.sizing import Tuner
from penstock.engine.work_kinds import Setup
from penstock.host import kernel_facts
from penstock.target import notices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.config.settings import EngineConfig
    from penstock.core.run_documents import ShardInfo
    from penstock.engine.multipart import Multipart
    from penstock.engine.tasks import Batch, BatchAnswer, FailedRow, Outcome, Report, StopCheck
    from penstock.engine.work_kinds import CopyWork, ReadWork, SurveyWork
    from penstock.host.pacing import Allowance, Allowances


COLD_STREAMS = 4  # streams of each worker at first, if reads bypass the caches and wait for a device


class PoolRun:
    """A run of the workers, with the outcome so far and the reports. For one thread.

    The constructor starts the workers, so that they load while the caller determines the rows left. It raises
    FailedError if no process can be started.
    """

    def __init__(
        self, outcome: Outcome, engine: EngineConfig, shard: ShardInfo, report: Report, units: int = 0
    ) -> None:
        """`units` is the number of jobs that can run in parallel, if it is larger than the number of rows."""
        self.outcome, self.engine, self.shard, self.report = outcome, engine, shard, report
        self._ops: Callable[[], float] | None = None
        self._share: Allowances | None = None
        self.started = time.monotonic()
        self.cpu = time.process_time()
        job = kernel_facts.current_job()
        self.cpus, self.cpus_from = sizing.cpus(job)
        self.memory = sizing.free_memory(job, kernel_facts.memory_limit()) // pool.sharing()
        self.processes = kernel_facts.room()
        self.total = 0
        self._most = 1
        self.pool = pool.take(self._size(max(units, shard.rows), shard.bytes, local=True).workers)
        self._reported = (-1, -1, -1)

    def _size(self, rows: int, total: int, *, local: bool, each: int = 4) -> sizing.Sizing:
        engine = self.engine
        return sizing.size(
            cpus=self.cpus,
            cpus_from=self.cpus_from,
            memory=self.memory,
            local=local,
            rows=rows,
            total=total,
            workers=engine.workers,
            streams=engine.streams,
            limit=self._most_bytes(),
            each=each,
            processes=self.processes,
        )

    def _most_bytes(self) -> int | None:
        """Return the most bytes a second that the element may ever read; None: no limit."""
        most = self._share().most if self._share else math.inf
        if math.isinf(most):
            return self.engine.limit
        return max(1, int(min(most, self.engine.limit or most)))

    def start(
        self,
        work: CopyWork | ReadWork | SurveyWork,
        *,
        rows: int,
        total: int,
        local: bool,
        each: int = 4,
        ahead: bool = False,
        ops: Callable[[], float] | None = None,
        share: Allowances | None = None,
        before: int = 0,
    ) -> None:
        """Give the workers `work`, and end the workers that are not needed for the rows left.

        - `rows`, `total`: the number of jobs that can run in parallel, and their bytes.
        - `local`: whether calls on source and target wait for no network and no fsync.
        - `each`: streams of each worker at first, if calls wait.
        - `ahead`: whether each stream prefetches small objects.
        - `ops`: returns the metadata operations a second allowed on the target, and is called ten times a
          second; None: no budget.
        - `share`: limits what the element reads from the source; None: only `engine.limit` (bytes a second).
        - `before`: bytes that the caller processed itself.

        Raises FailedError if the share is gone.
        """
        self._ops, self._share = ops, share
        if share is not None:
            share.hand_to(self._allow)
        self._look()
        chosen = self._size(rows, total, local=local, each=1 if ahead else each)
        if chosen.workers < len(self.pool.alive):
            self.pool.shrink(chosen.workers)
        workers = len(self.pool.alive)
        self._most = max(workers, chosen.most)
        self.tuner = Tuner(
            max(workers, chosen.streams),
            workers,
            self._most,
            self.cpus,
            time.monotonic(),
            self.pool.busy(self.cpus),
        )
        self.total = self.outcome.resumed_bytes + before + total
        self.outcome.workers = workers
        self.outcome.why = chosen.why
        if ahead:
            self.outcome.why += (
                f"; each asks for up to {sizing.asked_ahead(self.tuner.streams)} objects ahead at first"
            )
        setup = Setup(
            work, self.engine.limit, self.engine.attempts, share=share is not None, ops=ops is not None
        )
        self.pool.set_up(setup, self.tuner.streams, ahead=ahead)

    def start_reading(self, work: ReadWork | SurveyWork, left: int, share: Allowances | None = None) -> None:
        """As `start`, for rows that are read from storage and not from caches."""
        total = self.shard.bytes - self.outcome.resumed_bytes
        self.start(work, rows=left, total=total, local=False, each=COLD_STREAMS, share=share)

    def go(
        self,
        jobs: Iterator[Batch],
        take: Callable[[Batch, BatchAnswer], None],
        idle: Callable[[], None],
        stop: StopCheck,
        *,
        view: int = 1,
        first: Multipart | None = None,
        again: Callable[[], Iterator[Batch] | None] | None = None,
    ) -> None:
        """Feed all jobs, then the jobs of `again` until it returns None, and end the workers. Call it once.

        It calls `take` with each batch and its answer, and `idle` and `stop` ten times a second, all in the
        caller's thread. `multipart.Ahead` explains `view` and `first`.

        Raises the first error that concerns more than a row, and the errors of `take`, `idle` and `stop`.
        After a PenstockError or KeyboardInterrupt, workers get `pool.GRACE` seconds to finish (`pool.STOPPED`
        after a signal), and `take` still gets their answers. After any other error (a bug) they are lost.
        """

        def tick() -> None:
            idle()
            self._bound(self._look())
            self.tell()

        try:
            more: Iterator[Batch] | None = jobs
            while more is not None:
                self.pool.run(Ahead(more, view, first), take, tick, stop, self.tuner)
                more = again() if again else None
            self.pool.drain(take, stop=False)
        except BaseException as error:
            if isinstance(error, (PenstockError, KeyboardInterrupt)):
                stopped = isinstance(error, (InterruptedRunError, KeyboardInterrupt))
                self.pool.drain(take, stop=True, within=pool.STOPPED if stopped else pool.GRACE)
            raise
        finally:
            self.settle_outcome()
        self.tell()

    def counted_before(self, fed: Callable[[], bool] | None) -> Callable[[], bool] | None:
        """Wrap `fed` for `Pool.fed`. Each call first reports the bytes moved, which `tick` reports seldom."""
        if fed is None:
            return None

        def counted() -> bool:
            self.tell()
            return fed()

        return counted

    def _allow(self, now: Allowance) -> None:
        self.pool.shared_memory.allowance = now[:3]

    def _look(self) -> float:
        """Give the workers the target's current budget, and return the bytes a second that they may read."""
        if self._ops is not None:
            self.pool.shared_memory.ops = self._ops()
        return self._share().rate if self._share is not None else math.inf

    def _bound(self, rate: float) -> None:
        """Lower the number of streams to what the share's `rate` now feeds. A rate of 0 changes nothing."""
        if self._share is None or self.engine.streams is not None or rate <= 0:
            return
        if self.tuner.bound(int(min(self._most * sizing.SMALL, rate) // sizing.SMALL)):
            self.pool.set_streams(self.tuner.streams)

    def fail(self, failures: Iterable[FailedRow]) -> None:
        self.outcome.failures.extend(failed.failure for failed in failures)

    def tell(self) -> None:
        """Report the totals (files, bytes, failed rows) if they changed. They never decrease."""
        outcome = self.outcome
        moved = outcome.resumed_bytes + max(outcome.bytes, self.pool.shared_memory.total())
        files = outcome.resumed_files + outcome.files
        now = (files, max(self._reported[1], min(moved, self.total)), len(outcome.failures))
        # Reports go on while the PAUSE file exists, so that the run's notice stays up to date. The notice
        # states the bytes that the run will still write.
        if now != self._reported or notices.standing_pause() is not None:
            self._reported = now
            self.report(*now)

    def rest(self) -> None:
        """Report the totals and note the time, if the workers have nothing to do."""
        self.tell()
        self._spent()

    def _spent(self) -> None:
        self.outcome.seconds = time.monotonic() - self.started
        self.outcome.cpu_seconds = time.process_time() - self.cpu + self.pool.cpu_seconds
        self.outcome.retried, self.outcome.slowest = dict(self.pool.retried), self.pool.slowest

    def settle_outcome(self) -> None:
        outcome = self.outcome
        self._spent()
        outcome.streams = self.tuner.peak
        if self.tuner.story:
            outcome.why += f"; {self.tuner.story}"

    def close(self) -> None:
        """Kill the workers still running, or keep them for the next shard (`pool.put_back`). On return the
        share's thread writes nothing more."""
        if self._share is not None:
            self._share.hand_to(None)
        pool.put_back(self.pool)
