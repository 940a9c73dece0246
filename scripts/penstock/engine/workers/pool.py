"""The worker processes of an element, as their parent handles them: start, feed on demand, listen, tune,
stop.

`engine.shard_run` takes one `Pool` for each shard that is copied or read back: a new one, or the one of the
shard before, where workers are kept (`kept`). A pool starts and ends
processes, exchanges messages with them over sockets and through shared memory, and looks whether PAUSE stands
at the root. It touches no file of the dataset and no source: the workers do.

Workers start before anything heavy is imported here and wait for their set-up. Batches (rows that are sent
and answered together) go out one by one as workers have room, so a slow object does not delay other streams.
A stream is a thread of a worker. A worker that dies gets a successor and its batches are done again; a batch
with which two workers died ends the run.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import subprocess
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.core.errors import FailedError
from penstock.core.slow_objects import slowest
from penstock.engine.tasks import BatchAnswer
from penstock.engine.workers.cpu_usage import busy_seconds
from penstock.engine.workers.sizing import asked_ahead
from penstock.engine.workers.work_kinds import ReadWork, Setup
from penstock.host import process_limit, resource_usage, wire
from penstock.host.helper_process import start
from penstock.host.shared_memory import SLOTS, SharedMemory
from penstock.target import pause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.core.errors import ExpiredCredentialsError, PenstockError
    from penstock.core.slow_objects import SlowObject
    from penstock.engine.batches import Ahead
    from penstock.engine.tasks import Batch, StopCheck
    from penstock.engine.workers.stream_tuning import Tuner

GRACE = 8.0
"""Seconds that workers get for what is in flight when the engine ends, or stops for an error."""
STOPPED = 1.0
"""The same after a signal: streams end at the next block, and one that waits for its source waits in vain."""
TICK = 0.1
"""Seconds between two calls of `idle`, and the most that one wait for messages takes."""
MOST_DEATHS = 3
"""Workers that may die in one run; with one more it ends."""


@dataclass
class Member:
    """One worker process as the parent sees it."""

    process: subprocess.Popen[bytes]
    channel: wire.Channel
    slots: range
    """Its counters of bytes in the shared memory, one for each stream."""
    jobs: dict[int, Batch] = field(default_factory=dict)
    """Batches that it has and has not answered, by number."""
    rows: int = 0
    """Of these batches."""
    set_up: bool = False
    """Its set-up was sent; until then, and while the pool drains, its death ends the run."""
    resting: bool = False
    """It reported the end of its work, and waits for that of another shard."""
    gone: bool = False
    """It reported its end, or it died."""


class Refused(NamedTuple):
    """A store's refusal of the credentials of a source, by its number in the dataset."""

    source: int
    error: ExpiredCredentialsError


class Pool:
    """Some workers. The constructor starts them; then `set_up` when it is known what to do, `run`, `drain`,
    `close`. For one thread; only `shared_memory` is used by others."""

    def __init__(self, workers: int) -> None:
        """Start so many processes. Raises FailedError where one cannot be started."""
        self.shared_memory = SharedMemory()
        self.members: list[Member] = []
        self.selector = selectors.DefaultSelector()
        self._begin(workers)

    def _begin(self, workers: int) -> None:
        """For one shard: forget the one before, and start or end workers until there are so many."""
        self.deaths = 0
        """Workers that ended though nobody asked them to."""
        self.cpu_seconds = 0.0
        """Of the workers that ended as they were asked to, as `retried` and `slowest`."""
        self.retried: Counter[str] = Counter()
        self.slowest: Sequence[SlowObject] = ()
        self.begun = False
        """A worker has answered, or moved a byte."""
        self.pressed = False
        """A store answered that it is overloaded, since the streams were tuned last."""
        self.scarce = False
        """A server takes no further connections."""
        self.refused_keys: Refused | None = None
        """The last refusal of credentials by a store. `credential_renewal` takes it and sets None."""
        self.record: Callable[[bytes, int, Callable[[], None]], None]
        """What takes the journal's lines of rows that are under way: a line, the bytes that it speaks of, and
        what is to be called when it is recorded. To be set before `run`, where such rows are copied."""
        self.fatal: PenstockError | None = None
        """The first error that concerns more than a row; `run` raises it."""
        self.disturbed = False
        """Its workers were stopped amid their work: they are not kept."""
        self.rests: Callable[[int], bool] | None = None
        """Says, by the bytes moved so far, whether the streams are to hold; None: they never do. To be set
        before `run`."""
        self.fed: Callable[[], bool] | None = None
        """Called when workers have all rows of the shard, after each answer until it returns True. To be set
        before `run`."""
        self.streams = workers
        """Of all workers together."""
        self.ahead = False
        """Whether streams request small objects before their turn."""
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
            process, channel = start("penstock.engine.workers.worker", self.shared_memory.fd)
        except OSError as error:
            why = error.strerror or str(error)
            limit = process_limit.refused(error)
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
        """The workers that have not ended, as far as their sockets have shown."""
        return [m for m in self.members if not m.gone]

    def shrink(self, workers: int) -> None:
        """Kill all but the first `workers` workers. To be called before `set_up`: they have no rows then."""
        for member in self.alive[workers:]:
            member.process.kill()
            self._bury(member)
        self.streams = max(workers, 1)

    def set_up(self, setup: Setup, streams: int, *, ahead: bool = False) -> None:
        """Send every worker its set-up, with its share of `streams`. With `ahead` streams ask for small
        objects before their turn, until a store answers that it is overloaded."""
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
        """The streams of this worker, how many objects each asks for before their turn, and whether
        connections are scarce."""
        alive = self.alive
        base, more = divmod(self.streams, len(alive))
        ahead = asked_ahead(self.streams) if self.ahead else 1
        own = max(1, base + (alive.index(member) < more))
        return own, ahead, self.scarce

    def set_streams(self, streams: int) -> None:
        """Have so many streams active from now on, over all workers; at least one in each."""
        self.streams = streams
        for member in self.alive:
            self._send(member, wire.encode(wire.STREAMS, self._streams_of(member)))

    def renew(self, credentials: Any) -> None:
        """Send new credentials, one of each source, to all workers, also to those that start later."""
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
        """Feed all jobs, and call `done` with each batch and its answer. Returns when all are answered.
        `idle`, then `stop` are called ten times a second at most, between messages; `tuner` says how many
        streams are active. While PAUSE stands, or `rests` says so, the streams hold, and nothing is tuned.

        Raises the first error that concerns more than a row, or what `stop`, `idle` or `done` raises. The
        workers live then: the caller calls `drain`, which collects what they had done.
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
        return rests or pause.standing() is not None

    def _tune(self, tuner: Tuner, now: float) -> bool:
        if self.pressed:
            self.pressed = False
            ahead, self.ahead = self.ahead, False
            return tuner.pressure(now) or ahead
        if not self.begun:
            self.begun = self.shared_memory.total() > 0
        if not self.begun:
            # Workers are still starting: nothing can be said about how busy they will be.
            tuner.restart(now, 0, self.busy(tuner.cpus))
            return False
        if not tuner.due(now):
            return False
        return tuner.step(now, self.shared_memory.total(), self.busy(tuner.cpus))

    def busy(self, cpus: int) -> float:
        """Seconds of CPU time so far, of the workers or on their CPUs: see `cpu_usage.busy_seconds`."""
        return busy_seconds(cpus, [member.process.pid for member in self.alive])

    def _taken(self, member: Member) -> set[str]:
        """Folders in which others are at work; a worker of several streams is several."""
        several = self.streams > len(self.alive)
        taken: set[str] = set()
        for one in self.members:
            if several or one is not member:
                for job in one.jobs.values():
                    taken |= job.folders
        return taken

    def _hungry(self, job: Batch | None) -> Member | None:
        """The worker with the least to do, if it has room: one batch more than streams.

        Large rows do not wait behind one another: they take a free stream, or nothing.
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
            # Its socket is at its end too: the loop that listens buries it.
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
        """Redo its batches elsewhere, start a successor; or give up, saying how it died."""
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
        """Close its socket, which ends it; collect the process."""
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
        """Let the workers end. What is in flight is finished, or left as it is (`stop`); `done` gets the
        answers that still come. Returns when all have ended: a worker that takes longer than `within` seconds
        is killed."""
        resource_usage.look()
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
        """As a pool of so many workers that was just made. To be called while all rest."""
        self.shared_memory.restart()
        self._begin(workers)

    def ready(self) -> bool:
        """Whether all its workers live, and rest, or got nothing to do."""
        whole = self.fatal is None and not self.deaths and not self.disturbed
        return (
            whole
            and bool(self.alive)
            and all((m.resting or self._setup is None) and m.process.poll() is None for m in self.alive)
        )

    def close(self) -> None:
        """Kill all workers that are left, at once, and free the shared memory."""
        for member in self.alive:
            member.process.kill()
            self._bury(member)
        self.selector.close()
        self.shared_memory.close()


class _Kept(threading.local):
    """What the calling thread keeps between two shards."""

    keeps = False
    pool: Pool | None = None
    threads = 1
    """How many threads of this process have a pool at a time."""


_kept = _Kept()


@contextlib.contextmanager
def kept(threads: int = 1) -> Iterator[None]:
    """While the block runs, worker processes outlive their shard, and do the next one of this thread; its end
    ends them. `threads`: how many of this process do so at the same time, and share its memory."""
    _kept.keeps, _kept.threads = True, threads
    try:
        yield
    finally:
        _kept.keeps, _kept.threads = False, 1
        if _kept.pool is not None:
            _kept.pool.close()
            _kept.pool = None


def sharing() -> int:
    """How many threads share the memory that this process has for pools."""
    return _kept.threads


def take(workers: int) -> Pool:
    """A pool of so many workers. Raises FailedError where a process cannot be started."""
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
    """The end of a shard: its workers are ended, or wait for the next one."""
    if _kept.keeps and _kept.pool is None and pool.ready():
        _kept.pool = pool
    else:
        pool.close()
