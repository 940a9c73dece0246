"""The worker processes of one element (a process of the job array), as seen by their parent, the element.
It starts, feeds and stops them, reads their messages, and tunes the number of streams (threads) to the load.
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
from penstock.host import kernel_facts, wire
from penstock.host.command import start_helper
from penstock.host.kernel_facts import PROC, process_stat
from penstock.host.pacing import SLOTS, SharedMemory
from penstock.target import notices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.core.element_documents import SlowObject
    from penstock.core.errors import ExpiredCredentialsError, PenstockError
    from penstock.engine.rows_left import Ahead
    from penstock.engine.sizing import Tuner
    from penstock.engine.tasks import Batch, StopCheck


_TICK = os.sysconf("SC_CLK_TCK")
_IDLE = slice(4, 6)  # fields of a CPU's line in /proc/stat: idle time, and idle time during disk I/O
_ALL = slice(1, 9)  # without `guest` and `guest_nice`: their time is already in `user` and `nice`


def busy_seconds(cpus: int, workers: Iterable[int], proc: str = PROC) -> float:
    """Return the seconds of CPU time spent so far on `cpus` CPUs.

    The load (busy fraction) between two calls is the difference of their results, divided by `cpus` and by
    the seconds between them.

    | this process may run on          | whose CPU time is counted                                          |
    |----------------------------------|--------------------------------------------------------------------|
    | no more CPUs than `cpus`         | all processes on these CPUs, since other users' work slows further |
    |                                  | streams too (if /proc/stat lists more or fewer CPUs than `cpus`:   |
    |                                  | the mean CPU time of a listed CPU, multiplied by `cpus`)           |
    | more (nothing binds the element) | the processes `workers` (their ids) that have not ended            |

    Returns 0.0 if /proc/stat cannot be read. The CPUs then count as idle, and an added stream is kept only if
    it moves more bytes.
    """
    allowed = os.sched_getaffinity(0)
    if len(allowed) > cpus:
        # A worker that has just ended uses no more CPU time.
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


# The pool accesses neither the dataset's files nor its sources. Its workers start before the parent imports
# anything heavy, and wait for their set-up. The pool sends a batch (rows sent and answered together) only to
# a worker with room for it. So a slow object delays no other stream. If a worker dies, the pool starts a new
# worker and sends the dead worker's batches again. If two workers died with the same batch, the run ends.
#
# Inside a `kept` block, a pool's workers keep running for the next shard.

GRACE = 8.0  # seconds that workers get to finish when the engine ends, or stops for an error
STOPPED = 1.0  # seconds that workers get after a signal: streams end at the next block, no source is awaited
TICK = 0.1  # seconds between two calls of `idle`, and the longest wait for messages
MOST_DEATHS = 3  # workers that may die in a run; a further death ends the run


@dataclass
class Member:
    """One worker process as its parent sees it."""

    process: subprocess.Popen[bytes]
    channel: wire.Channel
    slots: range  # indexes, in shared memory, of the byte counters of the worker's streams
    jobs: dict[int, Batch] = field(default_factory=dict)  # batches not answered yet, by number
    rows: int = 0  # rows in these batches
    # Whether its set-up was sent; `drain` resets it to False. While it is False, the worker's death ends the
    # run.
    set_up: bool = False
    resting: bool = False  # whether the worker finished its work and waits for another shard
    gone: bool = False  # whether the worker reported its end, or died


class Refused(NamedTuple):
    """A store's refusal of a source's credentials. `source` is the source's number in the dataset."""

    source: int
    error: ExpiredCredentialsError


class Pool:
    """The worker processes of one element. The constructor starts them.

    Call `set_up`, `run`, `drain` and `close` in this order, from one thread. Other threads may use only
    `shared_memory`.
    """

    def __init__(self, workers: int) -> None:
        """Raises FailedError if a process cannot be started."""
        self.shared_memory = SharedMemory()
        self.members: list[Member] = []
        self.selector = selectors.DefaultSelector()
        self._begin(workers)

    def _begin(self, workers: int) -> None:
        """Begin a shard: forget the previous shard, and start or end workers until `workers` are running."""
        self.deaths = 0  # workers that died
        # The next three attributes cover only workers that have reported their end.
        self.cpu_seconds = 0.0  # their CPU time
        self.retried: Counter[str] = Counter()
        self.slowest: Sequence[SlowObject] = ()
        self.begun = False  # whether a worker answered a batch, or moved a byte
        self.pressed = False  # whether a store reported overload since the streams were last tuned
        self.scarce = False  # whether a server takes no further connections
        # the latest refusal of credentials by a store; `credential_renewal` handles it and sets None
        self.refused_keys: Refused | None = None
        # Records the progress of an object that is not finished. Arguments: the journal line, the number of
        # bytes that the line covers, and a function to call once the line is recorded. Set it before `run` if
        # rows report progress.
        self.record: Callable[[bytes, int, Callable[[], None]], None]
        # the first error that concerns more than a row; `run` raises it
        self.fatal: PenstockError | None = None
        self.disturbed = False  # whether workers were stopped amid their work: such a pool is not kept
        # Takes the bytes moved so far, and returns whether the streams must pause. If it is None, they never
        # must. Set both this and `fed` before `run`.
        self.rests: Callable[[int], bool] | None = None
        # `run` calls it after each answer once the workers have all rows of the shard, until it returns True.
        self.fed: Callable[[], bool] | None = None
        self.streams = workers  # active streams of all workers together
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
            limit = kernel_facts.refused(error)
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
        """The workers that are not `gone`."""
        return [m for m in self.members if not m.gone]

    def shrink(self, workers: int) -> None:
        """Kill all workers except the first `workers`. Call it before `set_up`, while they have no rows."""
        for member in self.alive[workers:]:
            member.process.kill()
            self._bury(member)
        self.streams = max(workers, 1)

    def set_up(self, setup: Setup, streams: int, *, ahead: bool = False) -> None:
        """Send every worker its set-up, with its share of `streams`.

        If `ahead` is set, streams prefetch small objects until a store reports overload.
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
        """Return the worker's number of streams, the objects that each prefetches, and `scarce`."""
        alive = self.alive
        base, more = divmod(self.streams, len(alive))
        ahead = asked_ahead(self.streams) if self.ahead else 1
        own = max(1, base + (alive.index(member) < more))
        return own, ahead, self.scarce

    def set_streams(self, streams: int) -> None:
        """Spread `streams` active streams over all workers, with at least one stream in each."""
        self.streams = streams
        for member in self.alive:
            self._send(member, wire.encode(wire.STREAMS, self._streams_of(member)))

    def renew(self, credentials: Any) -> None:
        """Send the new credentials of all sources to all workers, including workers that start later."""
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
        """Send all jobs to workers, and call `done` with each batch and its answer, until all are answered.

        Between messages, at most ten times a second, it calls `idle` and then `stop`. `tuner` decides how
        many streams are active. While the PAUSE file exists, or `rests` returns True, all streams pause, and
        their number does not change.

        Raises the first error that concerns more than a row, or an error of `stop`, `idle` or `done`. The
        workers are then still running: call `drain` to get the answers for finished rows.
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
        return rests or notices.standing_pause() is not None

    def _tune(self, tuner: Tuner, now: float) -> bool:
        if self.pressed:
            self.pressed = False
            ahead, self.ahead = self.ahead, False
            return tuner.pressure(now) or ahead
        if not self.begun:
            self.begun = self.shared_memory.total() > 0
        if not self.begun:
            # The workers are still starting, so their load says nothing yet.
            tuner.restart(now, 0, self.busy(tuner.cpus))
            return False
        if not tuner.due(now):
            return False
        return tuner.step(now, self.shared_memory.total(), self.busy(tuner.cpus))

    def busy(self, cpus: int) -> float:
        """Return the seconds of CPU time so far, as `busy_seconds` counts them."""
        return busy_seconds(cpus, [member.process.pid for member in self.alive])

    def _taken(self, member: Member) -> set[str]:
        """Return the folders in which other workers have batches.

        If workers have several streams, the member's own folders are included: its streams work in them.
        """
        several = self.streams > len(self.alive)
        taken: set[str] = set()
        for worker in self.members:
            if several or worker is not member:
                for job in worker.jobs.values():
                    taken |= job.folders
        return taken

    def _hungry(self, job: Batch | None) -> Member | None:
        """Return the worker with the fewest rows; None if it has no room for `job`. If `job` is None, the
        question is whether it has room for any batch at all.

        A worker has room for one batch more than it has streams. A large row waits here for a free stream.
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
            # The worker's socket is closed. `_listen` notices that too, and handles the worker's death.
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
        """Start a new worker and send the dead worker's batches again, or set the error that ends the run."""
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
        """Close the worker's socket, which ends the process, and wait for it to exit."""
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
        """End the workers, and call `done` with the answers that still arrive.

        Workers finish their batches, or stop amid their rows if `stop` is set. A worker that takes longer
        than `within` seconds is killed.
        """
        kernel_facts.read_peaks()
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
        """Reset a pool, whose workers are all resting, for another shard."""
        self.shared_memory.restart()
        self._begin(workers)

    def ready(self) -> bool:
        """Return whether another shard may use the pool: no worker failed or ended, and none is at work."""
        whole = self.fatal is None and not self.deaths and not self.disturbed
        return (
            whole
            and bool(self.alive)
            and all((m.resting or self._setup is None) and m.process.poll() is None for m in self.alive)
        )

    def close(self) -> None:
        """Kill all workers that are still running, and free the shared memory."""
        for member in self.alive:
            member.process.kill()
            self._bury(member)
        self.selector.close()
        self.shared_memory.close()


class _Kept(threading.local):
    """The pool that the calling thread keeps between two shards."""

    keeps = False
    pool: Pool | None = None
    threads = 1  # number of threads of this process that may have a pool at the same time


_kept = _Kept()


@contextlib.contextmanager
def kept(threads: int = 1) -> Iterator[None]:
    """Keep this thread's worker processes from shard to shard while the block runs.

    `threads`: how many threads of this process have a pool at the same time, and so share its memory.
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
    """Return the number of threads that share this process's memory for their pools."""
    return _kept.threads


def take(workers: int) -> Pool:
    """Return the kept pool, or a new one. Raises FailedError if a process cannot be started."""
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
