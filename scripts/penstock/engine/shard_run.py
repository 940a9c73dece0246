"""Runs worker processes over the rows of a shard, for copy, verify, audit and adopt; and reads a shard's rows
with them, saving the results every few seconds.
"""

from __future__ import annotations

import contextlib
import math
import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar

import xxhash

from penstock.core.errors import InterruptedRunError, PenstockError
from penstock.core.model import Entry, Expected, of_hex
from penstock.engine import pool, sizing
from penstock.engine.rows_left import Ahead, batches
from penstock.engine.sizing import Tuner
from penstock.engine.work_kinds import Setup
from penstock.fs.store_checks import data_states
from penstock.host import kernel_facts
from penstock.target import notices

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from penstock.config.settings import EngineConfig
    from penstock.core.run_documents import ShardInfo
    from penstock.engine.rows_left import Multipart
    from penstock.engine.tasks import Batch, BatchAnswer, FailedRow, Outcome, Report, StopCheck
    from penstock.engine.work_kinds import CopyWork, ReadWork, SurveyWork
    from penstock.fs.stores import DataState, DataStates
    from penstock.host.pacing import Allowance, Allowances


# Runs worker processes over the rows of a shard, for copy, verify, audit and adopt.
#
# `PoolRun()` starts the workers, `start` gives them work, `go` feeds them batches and ends them, and `close`
# kills those still running. If no row is left, call `rest` instead of `start` and `go`. Only the workers
# access sources and files of the target.

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
        caller's thread. `rows_left.Ahead` explains `view` and `first`.

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


# Reads a shard's rows, and saves the results every few seconds. No stream opens rows whose data is not on
# this file system (behind a tier, or only a stub of the file).

# The vendor's command for data states takes a moment for a few hundred files. So a thread queries the next
# rows while the previous rows are read.

Row = TypeVar("Row", Expected, Entry)
ROWS = 2048  # rows whose states are queried at a time
ZEROS = 1 << 30  # size of the largest row without blocks whose digest is compared with the digest of zeros


@contextlib.contextmanager
def rows_here(
    groups: Iterable[list[Row]],
    done: set[int],
    states: DataStates | None,
    leave: Callable[[int, Row, DataState], bool],
    asks: Callable[[int], bool] = lambda _: True,
) -> Iterator[Iterable[list[Row]]]:
    """Yield all rows in order, in groups of at most ROWS. Rows are numbered from 0 in this order.

    It queries the state of each row that is not in `done` and for which `asks(row)` returns True. If the
    row's data is not here and `leave(row, entry, state)` returns True, it adds the row to `done` before it
    yields the group. `states` is closed at the end. If it is None, all data is here, and the groups stay as
    they are.
    """
    if states is None:
        yield groups
        return
    with contextlib.closing(states), contextlib.closing(_present(groups, done, states, leave, asks)) as here:
        yield here


def _present(
    groups: Iterable[list[Row]],
    done: set[int],
    states: DataStates,
    leave: Callable[[int, Row, DataState], bool],
    asks: Callable[[int], bool],
) -> Generator[list[Row]]:
    with ThreadPoolExecutor(1, thread_name_prefix="states") as asking:
        row = 0
        for group, away in _ahead(
            _numbered(groups), states, asking, lambda number: number not in done and asks(number)
        ):
            states_away = away.result()
            for entry in group:
                state = states_away.get(entry.path)
                if state is not None and row not in done and asks(row) and leave(row, entry, state):
                    done.add(row)
                row += 1
            yield group


def _numbered(groups: Iterable[list[Row]]) -> Iterator[tuple[int, list[Row]]]:
    first = 0
    for group in groups:
        for at in range(0, len(group), ROWS):
            some = group[at : at + ROWS]
            yield first, some
            first += len(some)


def _ahead(
    groups: Iterable[tuple[int, list[Row]]],
    states: DataStates,
    asking: ThreadPoolExecutor,
    asks: Callable[[int], bool],
) -> Iterator[tuple[list[Row], Future[dict[str, DataState]]]]:
    """Yield each group with its rows' states, which are queried one group ahead."""
    before: tuple[list[Row], Future[dict[str, DataState]]] | None = None
    for first, group in groups:
        paths = [entry.path for row, entry in enumerate(group, first) if asks(row)]
        asked = (group, asking.submit(states.away, paths))
        if before is not None:
            yield before
        before = asked
    if before is not None:
        yield before


class Recall:
    """Decides which rows are read although their data is not here.

    | the row                                                    | is read |
    |------------------------------------------------------------|---------|
    | its digest is that of zeros, and the file has no blocks    | yes     |
    | it is tiered, and not larger than the bytes left to recall | yes     |
    | any other                                                  | no      |
    """

    def __init__(self, most: int) -> None:
        """`most` is the number of bytes that may be recalled, in all tiered files together."""
        self._left = most

    def reads(self, entry: Expected, state: DataState) -> bool:
        """Decide according to the table. The length of a tiered row that is read counts as recalled."""
        return (state.hinted and _is_hole(entry)) or self.fetches(entry, state)

    def fetches(self, entry: Expected | Entry, state: DataState) -> bool:
        """Decide according to the table's second line only, for rows without a digest."""
        length = length_of(entry)
        if state.place != "tiered" or length > self._left:
            return False
        self._left -= length
        return True


def length_of(entry: Expected | Entry) -> int:
    """Return the size of a whole file, or of a giant's part."""
    return entry.size if entry.part < 0 else entry.length


def _is_hole(entry: Expected) -> bool:
    """Return whether the row's digest is that of zeros. A file of zeros may have no blocks."""
    length = length_of(entry)
    return length <= ZEROS and entry.digest == _zeros(length)


@lru_cache(maxsize=256)
def _zeros(length: int) -> str:
    """Return the digest of `length` zeros. It takes about 0.06 s a GiB."""
    digest, block = xxhash.xxh3_128(), bytes(1 << 20)
    for _ in range(length >> 20):
        digest.update(block)
    digest.update(bytes(length & 0xFFFFF))
    return str(of_hex(digest.hexdigest()))


# After a kill, an audit or survey (`shard_readings`) resumes where results were last saved.

EVERY = 3.0  # seconds between two writes of the results; a kill costs the work since the last write
PAUSE_FACTOR = 20  # least pause after a slow write (many findings), in multiples of the write's duration


class ResumableReading(Generic[Row]):
    """One attempt to read a shard. Subclasses keep the results."""

    def __init__(self, data: Path, named: str, recall: int, done: set[int]) -> None:
        """`named` is the kind of file system whose rules apply, as in `target.filesystem`. `recall` is the
        number of bytes of tiered files that may be recalled. `done` has the rows with earlier results."""
        self._data, self._named, self._done = data, named, done
        self.recall = Recall(recall)

    def add(self, answer: BatchAnswer) -> None:
        """Keep a worker's results of one batch."""
        raise NotImplementedError

    def leave(self, row: int, entry: Row, state: DataState) -> bool:
        """Return whether a row whose data is not here is not opened, and keep that as its result."""
        raise NotImplementedError

    def write(self) -> None:
        """Durably write the results kept so far."""
        raise NotImplementedError

    def tend(self) -> None:
        """Do a subclass's periodic work. It is called several times a second."""

    def read(
        self,
        run: PoolRun,
        work: ReadWork | SurveyWork,
        rows: Iterable[list[Row]],
        stop: StopCheck,
        share: Allowances | None = None,
    ) -> None:
        """Read the shard's `rows` that are not done. Writes the results even after an error. Raises the
        errors of `PoolRun.go`."""
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
