"""One run of the pool (the worker processes of an element) over a shard's rows: what copying and reading
share.

Copy, verify, audit and adopt make one `PoolRun` in the element's process: the constructor starts workers;
`start` gives them their work; `go` feeds them with batches and ends them; `close` kills what is left. Where
nothing is left for them, `rest` stands in for `start` and `go`. Starts processes, and reads what this machine
has for them (CPUs, memory, limits); only the workers touch files of the target, and sources.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from penstock.core.errors import InterruptedRunError, PenstockError
from penstock.engine.batches import Ahead
from penstock.engine.workers import pool, sizing
from penstock.engine.workers.stream_tuning import Tuner
from penstock.engine.workers.work_kinds import Setup
from penstock.host import cgroups, job_environment, process_limit
from penstock.target import pause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.config.settings import EngineConfig
    from penstock.core.run_documents import ShardInfo
    from penstock.engine.tasks import Batch, BatchAnswer, FailedRow, Outcome, Report, StopCheck
    from penstock.engine.transfer.multipart import Multipart
    from penstock.engine.workers.work_kinds import CopyWork, ReadWork, SurveyWork
    from penstock.host.pacing import Allowance, Allowances


COLD_STREAMS = 4
"""Streams of each worker at first where files are read past the caches: such a read mostly waits for a
device, on this machine or over a network, but small files wait together."""


class PoolRun:
    """The pool, the outcome that grows, the reports. Workers are started by the constructor, so that they
    load while the caller finds out what is left to do; it raises FailedError where no process can be started.
    To be used by one thread."""

    def __init__(
        self, outcome: Outcome, engine: EngineConfig, shard: ShardInfo, report: Report, units: int = 0
    ) -> None:
        """`units`: what can be done side by side, where that is more than rows."""
        self.outcome, self.engine, self.shard, self.report = outcome, engine, shard, report
        self._ops: Callable[[], float] | None = None
        self._share: Allowances | None = None
        self.started = time.monotonic()
        self.cpu = time.process_time()
        given = job_environment.current()
        self.cpus, self.cpus_from = sizing.cpus(given)
        self.memory = sizing.free_memory(given, cgroups.memory_limit()) // pool.sharing()
        self.processes = process_limit.room()
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
        """Bytes a second that the element may ever read; None: any."""
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
        """Give the workers `work`, and end those that are too many for what is left: `rows` that can be done
        side by side, of `total` bytes. `local`: calls on source and target wait for no network and no fsync.
        `each`: streams of each worker at first, where calls wait. `ahead`: each stream asks for small objects
        before their turn. `ops`: the metadata operations a second that they may make on the target, called
        ten times a second; None: there is no budget. `share`: what they may read of the source: from now on
        handed to the workers by its own thread; None: `engine.limit` (bytes a second) alone holds. `before`:
        bytes that the caller did without the workers. Raises FailedError where there is no share any more."""
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
        """`start` for `left` rows that are read past the caches."""
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
        """All jobs, to the end, then those that `again` gives, until it gives None; then the workers are
        ended: to be called once. `take` gets each batch with its answer, as they come; `idle` and `stop` are
        called ten times a second, all in the caller's thread. `view` and `first`: see `batches.Ahead`.

        Raises the first error that concerns more than a row, and what `take`, `idle` and `stop` raise. Where
        that is a PenstockError or KeyboardInterrupt, the workers get `pool.GRACE` seconds for what is under
        way (`pool.STOPPED` after a signal), and answers that they still send go to `take`; after any other
        error (a bug) these are lost."""

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
        """`fed`, for `Pool.fed`, with what was moved counted before each call: `tick` counts it seldom."""
        if fed is None:
            return None

        def counted() -> bool:
            self.tell()
            return fed()

        return counted

    def _allow(self, now: Allowance) -> None:
        self.pool.shared_memory.allowance = now[:3]

    def _look(self) -> float:
        """Hand on what the workers may do on the target; returns the bytes a second that they may read."""
        if self._ops is not None:
            self.pool.shared_memory.ops = self._ops()
        return self._share().rate if self._share is not None else math.inf

    def _bound(self, rate: float) -> None:
        """No more streams than the share feeds now. While there is none, they stay as they are."""
        if self._share is None or self.engine.streams is not None or rate <= 0:
            return
        if self.tuner.bound(int(min(self._most * sizing.SMALL, rate) // sizing.SMALL)):
            self.pool.set_streams(self.tuner.streams)

    def fail(self, failures: Iterable[FailedRow]) -> None:
        """Count rows as failed, in the outcome."""
        self.outcome.failures.extend(one.failure for one in failures)

    def tell(self) -> None:
        """Report the totals so far (files, bytes, failed rows), when they changed; they never go back."""
        outcome = self.outcome
        moved = outcome.resumed_bytes + max(outcome.bytes, self.pool.shared_memory.total())
        files = outcome.resumed_files + outcome.files
        now = (files, max(self._reported[1], min(moved, self.total)), len(outcome.failures))
        # While a PAUSE stands, reports go on: they keep the run's notice (what it will still write below the
        # root) from growing old.
        if now != self._reported or pause.standing() is not None:
            self._reported = now
            self.report(*now)

    def rest(self) -> None:
        """In place of `start` and `go`, where there is nothing for the workers: report the totals, and note
        in the outcome how long it took."""
        self.tell()
        self._spent()

    def _spent(self) -> None:
        self.outcome.seconds = time.monotonic() - self.started
        self.outcome.cpu_seconds = time.process_time() - self.cpu + self.pool.cpu_seconds
        self.outcome.retried, self.outcome.slowest = dict(self.pool.retried), self.pool.slowest

    def settle_outcome(self) -> None:
        """Note in the outcome the seconds, the streams at most, and how their number changed. By `go`."""
        outcome = self.outcome
        self._spent()
        outcome.streams = self.tuner.peak
        if self.tuner.story:
            outcome.why += f"; {self.tuner.story}"

    def close(self) -> None:
        """Kill the workers that are left; on return the share's thread writes nothing more."""
        if self._share is not None:
            self._share.hand_to(None)
        pool.put_back(self.pool)
