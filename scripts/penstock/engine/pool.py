"""An element's worker processes, as their parent handles them: start, feed, listen, tune by how busy the CPUs
are, stop.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.core.element_documents import slowest
from penstock.core.errors import FailedError
from penstock.engine.sizing import asked_ahead
from penstock.engine.tasks import BatchAnswer
from penstock.engine.work_kinds import ReadWork, Setup
from penstock.host import resources, wire
from penstock.host.command import start_helper
from penstock.host.pacing import SLOTS, SharedMemory
from penstock.host.proc import PROC, process_stat
from penstock.target import root_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.core.element_documents import SlowObject
    from penstock.core.errors import ExpiredCredentialsError, PenstockError
    from penstock.engine.multipart import Ahead
    from penstock.engine.sizing import Tuner
    from penstock.engine.tasks import Batch, StopCheck


_TICK = os.sysconf("SC_CLK_TCK")
_IDLE = slice(4, 6)  # of a CPU's line in /proc/stat: idle, and idle during disk I/O
_ALL = slice(1, 9)  # without guests, which user and nice include


def busy_seconds(cpus: int, workers: Iterable[int], proc: str = PROC) -> float:
    """Return the seconds of CPU time spent so far on `cpus` CPUs.

    The difference of two calls, divided by `cpus` and by the seconds between, is the fraction that they were
    busy.

    | this process may run on          | what is counted                                                    |
    |----------------------------------|--------------------------------------------------------------------|
    | no more CPUs than `cpus`         | all processes on them, as others' work slows more streams too;     |
    |                                  | where the kernel shows another number of CPUs: their mean, times   |
    |                                  | `cpus`                                                             |
    | more (nothing binds the element) | the processes `workers` (their ids) that have not ended            |

    0.0 where /proc/stat cannot be read: the CPUs then count as idle, and more streams stay only where they
    move more bytes.
    """
    allowed = os.sched_getaffinity(0)
    if len(allowed) > cpus:
        # A worker that just ended spends no more.
        stats = (process_stat(worker, proc) for worker in workers)
        return sum(stat.ticks for stat in stats if stat) / _TICK
    names = {b"cpu%d" % number for number in allowed}
    try:
        with open(f"{proc}/stat", "rb") as stream:
            lines = [line.split() for line in stream if line.startswith(b"cpu")][1:]
    except OSError:
        return 0.0
    # Some containers renumber their CPUs.
    counted = [line for line in lines if line[0] in names] or lines
    ticks = sum(sum(map(int, line[_ALL])) - sum(map(int, line[_IDLE])) for line in counted)
    return ticks / _TICK / max(1, len(counted)) * cpus


# An element's worker processes, as their parent handles them: start, feed, listen, tune, stop.
#
# The pool itself touches no file of the dataset and no source. Its workers start before anything heavy is
# imported here, and wait for their set-up. Batches go out as workers have room, so that a slow object delays
# no other stream (a thread of a worker). A worker that dies gets a successor, and its batches are done again;
# a batch that killed two workers ends the run.
#
# While `kept`, a pool's workers live on for the next shard.

GRACE = 8.0  # seconds that workers get to finish when the engine ends, or stops for an error
STOPPED = 1.0  # the same after a signal: streams end at the next block, and waiting for a source is useless
TICK = 0.1  # seconds between two calls of `idle`, and of a wait for messages at most
MOST_DEATHS = 3  # workers that may die in a run; one more ends it


@dataclass
class Member:
    """One worker process as its parent sees it."""

    process: subprocess.Popen[bytes]
    channel: wire.Channel
    slots: range  # its counters of bytes in shared memory, one a stream
    jobs: dict[int, Batch] = field(default_factory=dict)  # batches without an answer, by number
    rows: int = 0  # of these batches
    # Its set-up was sent. Until then, and while the pool drains, its death ends the run.
    set_up: bool = False
    resting: bool = False  # it finished its work, and waits for another shard's
    gone: bool = False  # it reported its end, or died


class Refused(NamedTuple):
    """A store's refusal of a source's credentials. `source` is its number in the dataset."""

    source: int
    error: ExpiredCredentialsError


class Pool:
    """Some workers. The constructor starts them; then `set_up`, `run`, `drain`, `close`.

    For one thread; other threads use only `pacing`.
    """

    def __init__(self, workers: int) -> None:
        """Raises FailedError where a process cannot be started."""
        self.shared_memory = SharedMemory()
        self.members: list[Member] = []
        self.selector = selectors.DefaultSelector()
        self._begin(workers)

    def _begin(self, workers: int) -> None:
        """Begin a shard: forget the last one, and start or end workers until there are `workers`."""
        self.deaths = 0  # workers that ended unasked
        self.cpu_seconds = 0.0  # of the workers that ended as asked, as `retried` and `slowest`
        self.retried: Counter[str] = Counter()
        self.slowest: Sequence[SlowObject] = ()
        self.begun = False  # a worker answered, or moved a byte
        self.pressed = False  # a store reported overload since the streams were tuned last
        self.scarce = False  # a server takes no further connections
        # a store's last refusal of credentials; `credential_renewal` takes it and sets None
        self.refused_keys: Refused | None = None
        # Takes a journal line of a row under way, the bytes it covers, and a call for when it is recorded.
        # Set before `run`, where such rows are copied.
        self.record: Callable[[bytes, int, Callable[[], None]], None]
        # the first error that concerns more than a row; `run` raises it
        self.fatal: PenstockError | None = None
        self.disturbed = False  # its workers were stopped amid their work: they are not kept
        # Whether the streams are to hold, by the bytes moved so far; None: never. Set before `run`.
        self.rests: Callable[[int], bool] | None = None
        # Called once workers have all rows of the shard, after each answer until it returns True. Set before
        # `run`.
        self.fed: Callable[[], bool] | None = None
        self.streams = workers  # of all workers together
        self.ahead = False  # whether streams prefetch small objects
        self._setup: Setup | None = None
        self._again: deque[Batch] = deque()
        self.members = self.alive
        for member in self.members:
            member.resting = False
        self.shrink(workers)
        while len(self.alive) < workers:
            self._spawn()

    def _spawn(self) -> Member:
        slots = SLOTS // 64
        first = (len(self.members) % 64) * slots
        try:
            process, channel = start_helper("penstock.engine.worker", self.shared_memory.fd)
        except OSError as error:
            why = error.strerror or str(error)
            limit = resources.refused(error)
            raise limit or FailedError(
                "cannot start a worker process",
                why=why,
                hint="look at the limits of processes and memory there; then the same command goes on",
            ) from None
        member = Member(process, channel, range(first, first + slots))
        self.members.append(member)
        self.selector.register(channel.connection, selectors.EVENT_READ, member)
        return member

    @property
    def alive(self) -> list[Member]:
        """The workers that have not ended, by their sockets."""
        return [m for m in self.members if not m.gone]

    def shrink(self, workers: int) -> None:
        """Kill all but the first `workers` workers. Call before `set_up`, while they have no rows."""
        for member in self.alive[workers:]:
            member.process.kill()
            self._bury(member)
        self.streams = max(workers, 1)

    def set_up(self, setup: Setup, streams: int, *, ahead: bool = False) -> None:
        """Send every worker its set-up, with its share of `streams`.

        With `ahead` streams prefetch small objects, until a store reports overload.
        """
        self._setup, self.streams, self.ahead = setup, streams, ahead
        for member in self.alive:
            self._introduce(member)

    def _introduce(self, member: Member) -> None:
        if self._setup is None:
            return
        member.set_up = True
        streams, ahead, _ = self._streams_of(member)
        setup = self._setup._replace(streams=streams, ahead=ahead, first_slot=member.slots.start)
        self._send(member, wire.encode(wire.SETUP, setup))

    def _streams_of(self, member: Member) -> tuple[int, int, bool]:
        """Return the worker's streams, prefetched objects a stream, and whether connections are scarce."""
        alive = self.alive
        base, more = divmod(self.streams, len(alive))
        ahead = asked_ahead(self.streams) if self.ahead else 1
        own = max(1, base + (alive.index(member) < more))
        return own, ahead, self.scarce

    def set_streams(self, streams: int) -> None:
        """Set the active streams of all workers; at least one in each."""
        self.streams = streams
        for member in self.alive:
            self._send(member, wire.encode(wire.STREAMS, self._streams_of(member)))

    def renew(self, credentials: Any) -> None:
        """Send new credentials, one of each source, to all workers, and to those that start later."""
        if self._setup is not None and not isinstance(self._setup.work, ReadWork):
            self._setup = self._setup._replace(work=self._setup.work._replace(credentials=credentials))
        frame = wire.encode(wire.CREDENTIALS, credentials)
        for member in self.alive:
            self._send(member, frame)

    def run(
        self,
        jobs: Ahead,
        done: Callable[[Batch, BatchAnswer], None],
        idle: Callable[[], None],
        stop: StopCheck,
        tuner: Tuner,
    ) -> None:
        """Feed all jobs, and call `done` with each batch and its answer, until all are answered.

        `idle`, then `stop` are called at most ten times a second, between messages. `tuner` decides how many
        streams are active. While PAUSE stands, or `rests` says so, the streams hold, and nothing is tuned.

        Raises the first error that concerns more than a row, or an error of `stop`, `idle` or `done`. The
        workers then live: call `drain` for what they had done.
        """
        tick = 0.0
        while True:
            while self._again:
                member = self._hungry(self._again[0])
                if member is None:
                    break
                self._give(member, self._again.popleft())
            while not self._again:
                member = self._hungry(None)
                if member is None:
                    break
                job = jobs.take(self._taken(member) if jobs.view > 1 else set())
                if job is None:
                    break
                self._give(member, job)
            if self.fed is not None and jobs.empty and self.fed():
                self.fed = None
            if not self._again and not any(m.jobs for m in self.members):
                return
            self._listen(TICK, done)
            if self.fatal is not None:
                raise self.fatal
            now = time.monotonic()
            if now - tick >= TICK:
                tick = now
                self.shared_memory.paused = paused = self._holds()
                idle()
                stop()
                if paused:
                    tuner.restart(now, self.shared_memory.total(), self.busy(tuner.cpus))
                elif self._tune(tuner, now):
                    self.set_streams(tuner.streams)

    def _holds(self) -> bool:
        rests = self.rests is not None and self.rests(self.shared_memory.total())
        return rests or root_files.standing_pause() is not None

    def _tune(self, tuner: Tuner, now: float) -> bool:
        if self.pressed:
            self.pressed = False
            ahead, self.ahead = self.ahead, False
            return tuner.pressure(now) or ahead
        if not self.begun:
            self.begun = self.shared_memory.total() > 0
        if not self.begun:
            # Workers still start: their load says nothing yet.
            tuner.restart(now, 0, self.busy(tuner.cpus))
            return False
        if not tuner.due(now):
            return False
        return tuner.step(now, self.shared_memory.total(), self.busy(tuner.cpus))

    def busy(self, cpus: int) -> float:
        """Return seconds of CPU time so far: see `busy_seconds`."""
        return busy_seconds(cpus, [member.process.pid for member in self.alive])

    def _taken(self, member: Member) -> set[str]:
        """Return the folders in which others work. A worker of several streams counts as another."""
        several = self.streams > len(self.alive)
        taken: set[str] = set()
        for worker in self.members:
            if several or worker is not member:
                for job in worker.jobs.values():
                    taken |= job.folders
        return taken

    def _hungry(self, job: Batch | None) -> Member | None:
        """Return the worker with the least to do, if it has room: one batch more than streams.

        Large rows do not queue behind one another: they take a free stream, or wait here.
        """
        member = min((m for m in self.members if not m.gone), key=lambda m: (m.rows, len(m.jobs)))
        streams = -(-self.streams // len(self.alive))
        if member.rows < streams:
            return member
        small = not any(j.large for j in member.jobs.values()) and not (job and job.large)
        return member if small and len(member.jobs) <= streams else None

    def _give(self, member: Member, job: Batch) -> None:
        member.jobs[job.number] = job
        member.rows += job.count
        self._send(member, job.frame)

    def _send(self, member: Member, frame: bytes) -> None:
        try:
            member.channel.send_raw(frame)
        except OSError:
            # Its socket has ended too: the loop that listens buries it.
            return

    def _listen(self, seconds: float, done: Callable[[Batch, BatchAnswer], None]) -> None:
        for key, _ in self.selector.select(seconds):
            member: Member = key.data
            frames = member.channel.receive()
            if frames is None:
                self._died(member)
                continue
            for kind, value in frames:
                if kind == wire.DONE:
                    answer = BatchAnswer.of(value)
                    job = member.jobs.pop(answer.number)
                    member.rows -= job.count
                    self.begun = True
                    done(job, answer)
                elif kind == wire.RECORD:
                    slot, line, size = value
                    frame = wire.encode(wire.RECORDED, slot)
                    self.record(line, size, partial(self._send, member, frame))
                elif kind == wire.PRESSURE:
                    self.pressed = True
                    if value and not self.scarce:
                        self.scarce = True
                        self.set_streams(self.streams)
                elif kind == wire.EXPIRED:
                    self.refused_keys = Refused(*value)
                elif kind == wire.FATAL:
                    self.fatal = self.fatal or value
                elif kind == wire.BYE:
                    seconds, retried, rows = value
                    self.cpu_seconds += seconds
                    self.retried.update(retried)
                    self.slowest = slowest([*self.slowest, *rows])
                    if _kept.keeps and not self.disturbed:
                        member.resting = True
                    else:
                        self._bury(member)

    def _died(self, member: Member) -> None:
        """Redo its batches elsewhere and start a successor; or end the run."""
        jobs = list(member.jobs.values())
        self._bury(member)
        self.deaths += 1
        code = member.process.returncode
        why = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        if code == -signal.SIGKILL:
            why += " (out of memory?)"
        for job in jobs:
            job.deaths += 1
        if self.deaths > MOST_DEATHS or any(job.deaths > 1 for job in jobs) or not member.set_up:
            self.fatal = self.fatal or FailedError(
                "worker processes die", why=why, hint="the same command goes on where this one stopped"
            )
            return
        self._again.extend(jobs)
        self._introduce(self._spawn())

    def _bury(self, member: Member) -> None:
        """Close its socket, which ends the worker; collect the process."""
        member.gone = True
        member.jobs.clear()
        member.rows = 0
        self.selector.unregister(member.channel.connection)
        member.channel.close()
        try:
            member.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            member.process.kill()
            member.process.wait()
        self.shared_memory.retire(member.slots)

    def drain(self, done: Callable[[Batch, BatchAnswer], None], *, stop: bool, within: float = GRACE) -> None:
        """End the workers; `done` gets the answers that still come.

        Work under way is finished, or with `stop` left as it is. A worker that takes longer than `within`
        seconds is killed.
        """
        resources.read_peaks()
        self.disturbed = self.disturbed or stop
        for member in self.alive:
            if stop:
                self._send(member, wire.encode(wire.STOP, None))
            self._send(member, wire.encode(wire.END, None))
        deadline = time.monotonic() + within
        while (busy := self._busy()) and time.monotonic() < deadline:
            for member in busy:
                member.set_up = False
            self._listen(TICK, done)
        for member in self._busy():
            member.process.kill()
            self._bury(member)

    def _busy(self) -> list[Member]:
        return [member for member in self.alive if not member.resting]

    def anew(self, workers: int) -> None:
        """Reset a pool whose workers all rest, as if it were new."""
        self.shared_memory.restart()
        self._begin(workers)

    def ready(self) -> bool:
        """Return whether all workers live, and rest or never got work."""
        whole = self.fatal is None and not self.deaths and not self.disturbed
        return (
            whole
            and bool(self.alive)
            and all((m.resting or self._setup is None) and m.process.poll() is None for m in self.alive)
        )

    def close(self) -> None:
        """Kill all workers that are left, and free the shared memory."""
        for member in self.alive:
            member.process.kill()
            self._bury(member)
        self.selector.close()
        self.shared_memory.close()


class _Kept(threading.local):
    """What the calling thread keeps between two shards."""

    keeps = False
    pool: Pool | None = None
    threads = 1  # threads of this process with a pool at a time


_kept = _Kept()


@contextlib.contextmanager
def kept(threads: int = 1) -> Iterator[None]:
    """Keep this thread's worker processes from shard to shard while the block runs.

    `threads`: how many threads of this process do so at a time, and share its memory.
    """
    _kept.keeps, _kept.threads = True, threads
    try:
        yield
    finally:
        _kept.keeps, _kept.threads = False, 1
        if _kept.pool is not None:
            _kept.pool.close()
            _kept.pool = None


def sharing() -> int:
    """Return how many threads share this process's memory for pools."""
    return _kept.threads


def take(workers: int) -> Pool:
    """Return a pool, kept or new. Raises FailedError where a process cannot be started."""
    pool = _kept.pool
    if pool is None:
        return Pool(workers)
    _kept.pool = None
    if not pool.ready():
        pool.close()
        return Pool(workers)
    pool.anew(workers)
    return pool


def put_back(pool: Pool) -> None:
    """End a shard's workers, or keep them for the next shard."""
    if _kept.keeps and _kept.pool is None and pool.ready():
        _kept.pool = pool
    else:
        pool.close()
