"""A worker process: `python -m penstock.engine.worker <socket fd> <shared memory fd>`.

It receives batches (rows sent and answered together) from its parent over a socket, and sends its answers
back over it. A few threads work on the rows, each with a stream (`stream`) of the kind that the set-up
chooses (`work_kinds`). Shared memory holds the streams' byte counters.

The main thread only reads messages. If the parent ends, the socket closes and the process ends at once.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections import Counter
from functools import partial
from itertools import chain, count
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from penstock.core.element_documents import slowest
from penstock.core.errors import IMPOSSIBLE, FailedError, PenstockError
from penstock.core.row_codec import from_wire, to_wire
from penstock.engine.stream import Stopped, Stopping, failure, of_row
from penstock.host import kernel_facts, wire
from penstock.host.pacing import BYTES, OPERATIONS, REQUESTS, Pace, SharedMemory, allowed_rate, unlimited

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engine.stream import Stream
    from penstock.engine.work_kinds import Setup


SLICE = 64  # rows that a thread takes at a time while other threads are idle

RESTING = 0.5  # seconds that a thread waits for a slice before it checks `scarce`


class Received:
    """A batch from the parent. Several threads may each do a slice of it."""

    __slots__ = ("entries", "failures", "finished", "kind", "notes", "number", "results", "rows", "slices")

    def __init__(self, number: int, rows: list[int], kind: int, entries: list[tuple[Any, ...]]) -> None:
        """`kind` and `entries` are the two values that `row_codec.to_wire` returns."""
        self.number, self.rows, self.kind, self.entries = number, rows, kind, entries
        self.results: list[Any] = []
        self.failures: list[tuple[Any, ...]] = []
        self.notes: list[tuple[int, int, int, int]] = []
        self.slices = 0
        self.finished = count(1)


class Worker:
    """The threads of one process, and the state they share."""

    def __init__(self, channel: wire.Channel, shared_memory: SharedMemory) -> None:
        self.channel, self.shared_memory = channel, shared_memory
        self.begin()

    def begin(self) -> None:
        """Set all state to its initial values, at the start and before each further shard's set-up."""
        shared_memory = self.shared_memory
        self.cpu = time.process_time() if hasattr(self, "queue") else 0.0
        self.queue: SimpleQueue[tuple[Received, int, int] | None] = SimpleQueue()
        self.stopping = Stopping(lambda: shared_memory.paused)
        self.gate = threading.Condition()
        self.streams = 0
        self.ahead = 1
        self.scarce = False  # whether a server takes no further connections: idle streams then close theirs
        self.ended = False
        self.threads: list[threading.Thread] = []
        self.make: Callable[..., Stream] = _unset
        self.made: list[Stream] = []
        self.renew: Callable[[Any], None] = _ignore
        self.first_slot = 0
        self.sent: dict[int, float] = {}

    def setup(self, setup: Setup) -> None:
        """Handle the set-up message: prepare to make streams of its kind, and start the first threads."""
        from penstock.engine import work_kinds

        if self.ended:
            self.begin()
        shared_memory, spend = self.shared_memory, unlimited
        if setup.ops:
            spend = Pace(shared_memory, OPERATIONS, lambda: shared_memory.ops, self.stopping.wait).take
        limiter = requests = None
        if setup.share:
            limiter = Pace(
                shared_memory, BYTES, allowed_rate(shared_memory, BYTES, setup.limit), self.stopping.wait
            )
            requests = Pace(
                shared_memory, REQUESTS, allowed_rate(shared_memory, REQUESTS), self.stopping.wait
            )
        elif limit := setup.limit:
            limiter = Pace(shared_memory, BYTES, lambda: limit, self.stopping.wait)
        make, self.renew = work_kinds.streams(setup.work, spend)
        self.make = partial(
            make,
            counters=self.shared_memory.counters,
            stopping=self.stopping,
            attempts=setup.attempts,
            limiter=limiter,
            requests=requests,
            tell=self.tell,
        )
        self.first_slot = setup.first_slot
        self.set_streams(setup.streams, setup.ahead)

    def set_streams(self, number: int, ahead: int, scarce: bool = False) -> None:
        """Make `number` threads active, each prefetching up to `ahead` small objects. The others finish their
        slice and wait."""
        self.ahead, self.scarce = ahead, scarce
        with self.gate:
            self.streams = number
            self.gate.notify_all()
        while len(self.threads) < number:
            thread = threading.Thread(target=self.run, args=(len(self.threads),), daemon=True)
            self.threads.append(thread)
            thread.start()

    def tell(self, kind: int, value: Any) -> None:
        """Send RECORD (a journal line), PRESSURE (a store reported overload) or EXPIRED (a store refused
        credentials) to the parent.

        PRESSURE and EXPIRED are each sent at most five times a second.
        """
        now = time.monotonic()
        if kind == wire.RECORD or now - self.sent.get(kind, 0.0) > 0.2:
            self.sent[kind] = now
            self.channel.send(kind, value)

    def take(self, number: int, rows: list[int], kind: int, entries: list[tuple[Any, ...]]) -> None:
        """Cut a batch into slices for idle threads.

        If at most one thread is idle, one thread does the whole batch. A batch's files are neighbours, and
        threads in one folder only wait for each other.
        """
        batch = Received(number, rows, kind, entries)
        size = len(rows)
        idle = self.streams - self.queue.qsize()
        step = max(1, min(SLICE, -(-size // self.streams))) if idle > 1 else size
        batch.slices = -(-size // step)
        for start in range(0, size, step):
            self.queue.put((batch, start, min(size, start + step)))

    def run(self, index: int) -> None:
        """Work on slices until the worker ends. Each thread runs this method."""
        try:
            stream = self.make(slot=self.first_slot + index)
        except PenstockError as error:
            self.fatal(error)
            return
        self.made.append(stream)
        while (work := self.next(index, stream)) is not None:
            self.slice(stream, *work)
        self.queue.put(None)
        stream.close()

    def next(self, index: int, stream: Stream) -> tuple[Received, int, int] | None:
        """Wait until the thread is active and a slice is in the queue, and return it; None at the end.

        While connections are `scarce`, the waiting stream closes its own every RESTING seconds.
        """
        while True:
            active = index < self.streams
            if not active:
                with self.gate:
                    active = self.gate.wait_for(lambda: index < self.streams or self.ended, RESTING)
            if active:
                with contextlib.suppress(Empty):
                    return self.queue.get(timeout=RESTING)
            if self.scarce:
                stream.rest()

    def slice(self, stream: Stream, batch: Received, start: int, end: int) -> None:
        """Work on some rows of a batch. If `Stream.settle` fails, none of these rows is reported, and a later
        attempt does them again."""
        rows, entries, results = batch.rows, batch.entries, []
        attempt, stopped, clock = stream.attempt, self.stopping.is_set, time.perf_counter
        fatal: PenstockError | None = None
        done = 0
        made = from_wire(batch.kind, entries[start:end])
        stream.prepare(made, self.ahead)
        try:
            for row, entry in zip(rows[start:end], made, strict=True):
                if stopped():
                    break
                try:
                    began = clock()
                    results.append(attempt(row, entry))
                    size = entry.size if entry.part < 0 else entry.length
                    done += size
                    if (took := clock() - began) > stream.fast:
                        stream.slow(took, size, entry)
                except PenstockError as error:
                    if not of_row(error):
                        raise
                    batch.failures.append((row, *failure(entry.path, error)))
                    ended = stream.gives_up(error, len(results), self.shared_memory.total())
                    if ended is not None:
                        raise ended from error
        except Stopped:
            pass
        except PenstockError as error:
            fatal = error
        try:
            stream.settle()
            batch.results.extend(results)
        except PenstockError as error:
            fatal, done = fatal or error, 0
        batch.notes.append((done, *stream.notes()))
        if fatal is not None:
            self.fatal(fatal)
        if next(batch.finished) == batch.slices:
            self.report(batch)

    def report(self, batch: Received) -> None:
        """Send a batch's answer: its number, the number of rows done, results, failures, and notes (bytes,
        retries, rows linked, rows taken over)."""
        done = len(batch.results)
        lines = done and isinstance(batch.results[0], str)
        results: Any = "".join(batch.results).encode() if lines else to_wire(batch.results)
        notes = (sum(column) for column in zip(*batch.notes, strict=True))
        self.channel.send(wire.DONE, (batch.number, done, results, batch.failures, *notes))

    def fatal(self, error: PenstockError) -> None:
        """Stop this worker's streams, and report an error that concerns more than a row."""
        self.stopping.set()
        self.channel.send(wire.FATAL, error)

    def end(self) -> None:
        """Let the threads finish. Then send BYE with the CPU time, causes of retries and slowest rows."""
        with self.gate:
            self.ended = True
            self.streams = len(self.threads)
            self.gate.notify_all()
        self.queue.put(None)

        def goodbye() -> None:
            for thread in self.threads:
                thread.join()
            retried = sum((stream.retried for stream in self.made), Counter[str]())
            rows = slowest(chain.from_iterable(stream.slowest for stream in self.made))
            self.channel.send(wire.BYE, (time.process_time() - self.cpu, dict(retried), rows))

        threading.Thread(target=goodbye, daemon=True).start()

    def listen(self) -> None:
        """Handle the parent's messages until it closes the socket."""
        while (frames := self.channel.receive()) is not None:
            for kind, value in frames:
                if kind == wire.BATCH:
                    self.take(*value)
                elif kind == wire.STREAMS:
                    self.set_streams(*value)
                elif kind == wire.SETUP:
                    try:
                        self.setup(value)
                    except PenstockError as error:
                        self.fatal(error)
                elif kind == wire.CREDENTIALS:
                    self.renew(value)
                elif kind == wire.RECORDED:
                    next(stream for stream in self.made if stream.slot == value).recorded.release()
                elif kind == wire.STOP:
                    self.stopping.set()
                    for stream in self.made:
                        stream.recorded.release()
                elif kind == wire.END:
                    self.end()


def _unset(**_: Any) -> Stream:
    raise FailedError("the worker got work before its set-up", hint=IMPOSSIBLE)


def _ignore(_: Any) -> None:
    return None


def main() -> None:
    """Run a worker with the descriptors on the command line. It ends the process by `os._exit`."""
    kernel_facts.collect_garbage_rarely()
    channel = wire.Channel(socket.socket(fileno=int(sys.argv[1])))
    worker = Worker(channel, SharedMemory(int(sys.argv[2])))

    def crashed(args: threading.ExceptHookArgs) -> None:
        """Report a bug in penstock to the parent, as one sentence."""
        where = ""
        trace = args.exc_traceback
        while trace is not None:
            where, trace = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}", trace.tb_next
        why = f"{args.exc_type.__name__}: {args.exc_value}"
        worker.fatal(FailedError("a worker met an internal error", where=where, why=why, hint=IMPOSSIBLE))

    threading.excepthook = crashed
    try:
        worker.listen()
    except RuntimeError as error:
        limit = kernel_facts.refused(error)
        if limit is None:
            raise
        worker.fatal(limit)
    # Skip the interpreter's shutdown: it would wait for threads that hang in a slow call.
    os._exit(0)


if __name__ == "__main__":
    main()
