"""A worker process: `python -m penstock.engine.workers.worker <socket fd> <shared memory fd>`.

`engine.workers.pool` starts it. It takes batches (rows that are sent and answered together) from its parent
over a socket, and does their rows in a few threads, by the streams that its set-up message names
(`work_kinds`): these read sources, and read or write below the tree that they are given. Everything that it
reports goes through the socket; its counters of bytes are in shared memory.

The main thread only listens: when the parent is gone, for whatever reason, the socket closes and the process
ends at once. Modules that only one kind of work needs are imported when the set-up message names it.
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

from penstock.core.errors import IMPOSSIBLE, FailedError, PenstockError
from penstock.core.row_codec import from_wire, to_wire
from penstock.core.slow_objects import slowest
from penstock.engine.stream import Stopped, Stopping, failure, of_row
from penstock.host import garbage_collection, process_limit, wire
from penstock.host.pacing import BYTES, OPERATIONS, REQUESTS, Pace, allowed_rate
from penstock.host.shared_memory import SharedMemory
from penstock.target.operation_budget import unlimited

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engine.stream import Stream
    from penstock.engine.workers.work_kinds import Setup

SLICE = 64
"""Rows that a thread takes at a time, at most, where other threads are idle."""

RESTING = 0.5
"""Seconds that a thread waits for a slice before it looks whether connections are scarce."""


class Received:
    """A batch: rows that came in one frame and are reported in one. Any thread may do a slice of it."""

    __slots__ = ("entries", "failures", "finished", "kind", "notes", "number", "results", "rows", "slices")

    def __init__(self, number: int, rows: list[int], kind: int, entries: list[tuple[Any, ...]]) -> None:
        """`kind`, `entries`: as `row_codec.to_wire` gives them."""
        self.number, self.rows, self.kind, self.entries = number, rows, kind, entries
        self.results: list[Any] = []
        self.failures: list[tuple[Any, ...]] = []
        self.notes: list[tuple[int, int, int, int]] = []
        self.slices = 0
        self.finished = count(1)


class Worker:
    """The threads of one process and what they share."""

    def __init__(self, channel: wire.Channel, shared_memory: SharedMemory) -> None:
        self.channel, self.shared_memory = channel, shared_memory
        self.begin()

    def begin(self) -> None:
        """Set up nothing yet: at the start, and again when the work of one set-up has ended and that of
        another shard comes."""
        shared_memory = self.shared_memory
        self.cpu = time.process_time() if hasattr(self, "queue") else 0.0
        self.queue: SimpleQueue[tuple[Received, int, int] | None] = SimpleQueue()
        self.stopping = Stopping(lambda: shared_memory.paused)
        self.gate = threading.Condition()
        self.streams = 0
        self.ahead = 1
        self.scarce = False
        """A server takes no further connections: a stream without work holds none."""
        self.ended = False
        self.threads: list[threading.Thread] = []
        self.make: Callable[..., Stream] = _unset
        self.made: list[Stream] = []
        self.renew: Callable[[Any], None] = _ignore
        self.first_slot = 0
        self.sent: dict[int, float] = {}

    def setup(self, given: Setup) -> None:
        """Handle the set-up message: make the streams, start the first threads. Raises what
        `work_kinds.streams` raises."""
        from penstock.engine.workers import work_kinds

        if self.ended:
            self.begin()
        shared_memory, spend = self.shared_memory, unlimited
        if given.ops:
            spend = Pace(shared_memory, OPERATIONS, lambda: shared_memory.ops, self.stopping.wait).take
        limiter = requests = None
        if given.share:
            limiter = Pace(
                shared_memory, BYTES, allowed_rate(shared_memory, BYTES, given.limit), self.stopping.wait
            )
            requests = Pace(
                shared_memory, REQUESTS, allowed_rate(shared_memory, REQUESTS), self.stopping.wait
            )
        elif limit := given.limit:
            limiter = Pace(shared_memory, BYTES, lambda: limit, self.stopping.wait)
        make, self.renew = work_kinds.streams(given.work, spend)
        self.make = partial(
            make,
            counters=self.shared_memory.counters,
            stopping=self.stopping,
            attempts=given.attempts,
            limiter=limiter,
            requests=requests,
            tell=self.tell,
        )
        self.first_slot = given.first_slot
        self.set_streams(given.streams, given.ahead)

    def set_streams(self, number: int, ahead: int, scarce: bool = False) -> None:
        """Have so many threads active, each with `ahead` small objects on their way. Threads beyond the
        number wait once their present slice is done; none is ended."""
        self.ahead, self.scarce = ahead, scarce
        with self.gate:
            self.streams = number
            self.gate.notify_all()
        while len(self.threads) < number:
            thread = threading.Thread(target=self.run, args=(len(self.threads),), daemon=True)
            self.threads.append(thread)
            thread.start()

    def tell(self, kind: int, value: Any) -> None:
        """To the parent: RECORD (a line for the journal), or, not more than a few times a second, PRESSURE (a
        store asked for less) or EXPIRED (it refuses the credentials)."""
        now = time.monotonic()
        if kind == wire.RECORD or now - self.sent.get(kind, 0.0) > 0.2:
            self.sent[kind] = now
            self.channel.send(kind, value)

    def take(self, number: int, rows: list[int], kind: int, entries: list[tuple[Any, ...]]) -> None:
        """Cut a batch into slices for idle threads. Where no thread is idle, one thread does the whole batch:
        its files are neighbours, and no other thread then works in their folder."""
        batch = Received(number, rows, kind, entries)
        size = len(rows)
        idle = self.streams - self.queue.qsize()
        step = max(1, min(SLICE, -(-size // self.streams))) if idle > 1 else size
        batch.slices = -(-size // step)
        for start in range(0, size, step):
            self.queue.put((batch, start, min(size, start + step)))

    def run(self, index: int) -> None:
        """A thread: do slices until the end."""
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
        """The next slice for a thread, once it is active; None at the end. While connections are scarce, the
        stream holds none after it has waited for RESTING seconds."""
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
        """Do some rows of a batch. Only rows that `Stream.settle` made ready are reported; the others are
        done again by a later attempt."""
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
        """Send a batch's answer: its number, how many rows are done and what they became, failures, and notes
        (bytes, retries, linked rows, rows taken over)."""
        done = len(batch.results)
        lines = done and isinstance(batch.results[0], str)
        results: Any = "".join(batch.results).encode() if lines else to_wire(batch.results)
        notes = (sum(column) for column in zip(*batch.notes, strict=True))
        self.channel.send(wire.DONE, (batch.number, done, results, batch.failures, *notes))

    def fatal(self, error: PenstockError) -> None:
        """Stop all streams of this worker, and report an error that concerns more than a row."""
        self.stopping.set()
        self.channel.send(wire.FATAL, error)

    def end(self) -> None:
        """No more batches come: let the threads finish theirs, then send BYE with the CPU time of this
        process, the causes of retries, and the slowest rows."""
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
    """Run the worker that the command line names; ends the process by `os._exit`."""
    garbage_collection.rarely()
    channel = wire.Channel(socket.socket(fileno=int(sys.argv[1])))
    worker = Worker(channel, SharedMemory(int(sys.argv[2])))

    def crashed(args: threading.ExceptHookArgs) -> None:
        """A bug in penstock: reported to the parent as one sentence."""
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
        limit = process_limit.refused(error)
        if limit is None:
            raise
        worker.fatal(limit)
    # Without the interpreter's own shutdown: threads may still hang in a slow call for a dead parent.
    os._exit(0)


if __name__ == "__main__":
    main()
