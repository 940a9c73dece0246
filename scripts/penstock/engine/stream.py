"""A stream: one thread of a worker, with its buffer, its counter and its retries; it prefetches small objects
before their turn.
"""

from __future__ import annotations

import errno
import mmap
import threading
import time
from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.core.element_documents import KEPT, slowest
from penstock.core.errors import (
    CrowdedError,
    DamagedError,
    ExpiredCredentialsError,
    IntegrityError,
    ObjectError,
    OverloadedError,
    PenstockError,
    SourceChangedError,
    TransientError,
)
from penstock.fs.errno_map import printable
from penstock.host.wire import EXPIRED, PRESSURE, RECORD
from penstock.sources.backoff import retrying, row_may_retry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.core.element_documents import SlowObject
    from penstock.core.model import Entry
    from penstock.host.pacing import Pace


# A stream: one thread of a worker, with its buffer, its counter and its retries.
#
# Subclasses copy a row, read it back, or compare it with its source. A row is an entry of the shard: a file,
# or a part of a giant.
#
# A row is retried after transient errors, with growing pauses, up to `attempts` times without progress. Bytes
# that contradict a checksum are read once more: a wire may flip a bit. A permanent error fails that row
# alone. An error that is not about one row (no space, fenced, configuration) ends the shard.

BLOCK = 1 << 20  # bytes of a read and a write; a smaller object is read whole
# Seconds between two tries of a row while credentials are renewed or a server refuses connections, whatever
# `attempts` is. They grow up to LOOKS times as long. The parent decides how long a renewal may take
# (`credential_renewal`), and stops the workers.
RENEWAL, LOOKS = 1.0, 5


# A shard ends once VAIN rows of a stream failed in succession for transient errors, and no stream of the
# element moved a byte for GIVEN_UP seconds. Else each of a million rows of a lost source would be retried for
# minutes.
GIVEN_UP = 180.0
VAIN = 2
PAUSE_LOOK = 0.2  # seconds between looks at the shared memory in a hold
AFTER_HOLD = 60.0  # seconds after a hold in which a transient error may be its doing


class Stopping(threading.Event):
    """A worker's stop flag, which holds its streams while PAUSE stands at the root (`target.root_files`).

    The parent watches for PAUSE and passes it on in shared memory. Each stream checks this flag before a row
    and after each block. `is_set` blocks while `paused()`, until the flag is set: nothing more is read or
    written, and what is under way stays open. During a long hold a server may close its connection. A row
    that fails right after is tried once more, without counting as an attempt.
    """

    def __init__(self, paused: Callable[[], bool]) -> None:
        super().__init__()
        self._paused = paused
        self._held = float("-inf")

    def is_set(self) -> bool:
        if self._paused():
            while self._paused() and not self.wait(PAUSE_LOOK):
                pass
            self._held = time.monotonic()
        return super().is_set()

    @property
    def lately_held(self) -> bool:
        """Whether streams held within the last AFTER_HOLD seconds."""
        return time.monotonic() - self._held < AFTER_HOLD


def _lately_held(stopping: threading.Event) -> bool:
    return isinstance(stopping, Stopping) and stopping.lately_held


class Stopped(Exception):  # noqa: N818
    """Raised inside a stream when the engine stops; the row is left as it is."""


def of_row(error: PenstockError) -> bool:
    """Return whether an error concerns one row alone; any other ends the shard."""
    return isinstance(error, (ObjectError, SourceChangedError, TransientError))


class Stream:
    """Base of `Copier`, `Rereader`, `Auditor` and `Surveyor`, which do one row by `do`. For one thread."""

    def __init__(
        self,
        *,
        slot: int,
        counters: Any,
        stopping: threading.Event,
        attempts: int,
        limiter: Pace | None,
        tell: Callable[[int, Any], None],
        requests: Pace | None = None,
    ) -> None:
        """`counters[slot]`: bytes that this stream moved, in shared memory. `limiter`, `requests`: paces of
        the bytes read and of the requests; None: no limit. `tell(kind, value)` sends a message to the parent.
        """
        self.slot, self.counters, self.stopping = slot, counters, stopping
        self.attempts, self.limiter, self.tell = attempts, limiter, tell
        self.requests = requests
        self.retries = self.linked = self.taken = 0
        self.vain_tries = 0  # failed tries of the present row since it last made progress
        self.retried: Counter[str] = Counter()
        self.slowest: Sequence[SlowObject] = ()
        self.fast = 0.0  # seconds under which a row is none of this stream's slowest
        # released when a line of `record` is in the journal, and at a stop
        self.recorded = threading.Semaphore()
        self._vain, self._done, self._moved, self._moved_at = 0, -1, -1, 0.0
        self._total, self._total_at = -1, 0.0
        # One page more than a block, so that a read shows an object longer than it was listed.
        self.view = memoryview(mmap.mmap(-1, BLOCK + mmap.PAGESIZE))

    def prepare(self, entries: Sequence[Any], ahead: int) -> None:
        """Prefetch the rows that `attempt` will get next, in this order, at most `ahead` at once. Never
        raises."""

    def do(self, row: int, entry: Any) -> Any:
        """Try one row once; return its result, or raise any PenstockError. Adds bytes to the counter."""
        raise NotImplementedError

    def rest(self) -> None:
        """Close idle connections; the next row opens them again. Never raises."""

    def settle(self) -> None:
        """Do what the finished rows need before they may be reported; here nothing.

        After a PenstockError none of them is reported.
        """

    def notes(self) -> tuple[int, int, int]:
        """Return retries, linked rows and rows taken over since the last call."""
        counts = self.retries, self.linked, self.taken
        self.retries = self.linked = self.taken = 0
        return counts

    def slow(self, seconds: float, size: int, entry: Any) -> None:
        key = printable(getattr(entry, "key", "") or entry.path)
        self.slowest = slowest([*self.slowest, (round(seconds, 3), size, key)])
        if len(self.slowest) == KEPT:
            self.fast = self.slowest[-1][0]

    def asks(self) -> None:
        """Wait before a request to a source until the element's share allows it."""
        if self.requests:
            if self.limiter:
                self.limiter.ready()
            self.requests.take(1)

    def record(self, line: str, size: int) -> None:
        """Hand the parent a line for the journal, about `size` bytes of the present row.

        Returns once this stream's line before it is recorded. Raises Stopped.
        """
        self.tell(RECORD, (self.slot, line.encode(), size))
        self.recorded.acquire()
        if self.stopping.is_set():
            raise Stopped

    def attempt(self, row: int, entry: Any) -> Any:
        """Do a row, with retries. Raises the error of the last try, or Stopped."""
        try:
            return self._try(self.do, row, entry)
        except PenstockError as error:
            try:
                return self.again(self.do, row, entry, error)
            finally:
                self.vain_tries = 0

    def again(self, do: Callable[[Any, Any], Any], subject: Any, entry: Any, error: PenstockError) -> Any:
        """Repeat `do(subject, entry)` after a try that failed by `error`. All retries of a row share
        `vain_tries`."""
        ask = partial(self._try, do, subject, entry)
        return retrying(
            ask, self.attempts, self._pause, failed=self._failed, may=self._may_retry, first=error
        )

    def _may_retry(self, error: PenstockError, tried: int) -> bool:
        return self.vain_tries + 1 < self.attempts and row_may_retry(error, tried)

    def _failed(self, error: PenstockError) -> None:
        self.vain_tries += 1
        self._count(error)

    def _try(self, do: Callable[[Any, Any], Any], subject: Any, entry: Any) -> Any:
        """Call `do`, again while it waits for renewed credentials or a connection, and once after a hold.

        Reports an overloaded store to the parent.
        """
        before = self.counters[self.slot]
        free, refused = True, 0
        while True:
            try:
                done = do(subject, entry)
            except (PenstockError, ValueError) as raised:
                error = raised if isinstance(raised, PenstockError) else _nonsense(entry, raised)
                self.counters[self.slot] = before
                crowded = isinstance(error, CrowdedError)
                if isinstance(error, OverloadedError):
                    self.tell(PRESSURE, crowded)
                expired = isinstance(error, ExpiredCredentialsError)
                if expired:
                    self.tell(EXPIRED, (entry.source, error))
                if expired or (crowded and self._lively()):
                    refused += 1
                    self._pause(RENEWAL * min(refused, LOOKS))
                    self._count(error)
                    continue
                passing = isinstance(error, TransientError) and not isinstance(error, OverloadedError)
                if free and passing and _lately_held(self.stopping):
                    free = False
                    self._count(error)
                    continue
                if error is raised:
                    raise
                raise error from raised
            return done

    def _lively(self) -> bool:
        """Return whether a stream of the element moved a byte within GIVEN_UP seconds."""
        total, now = sum(self.counters), time.monotonic()
        if total != self._total:
            self._total, self._total_at = total, now
        return now - self._total_at < GIVEN_UP

    def gives_up(self, error: PenstockError, rows: int, moved: int) -> TransientError | None:
        """Return the shard's error if this error of a row means the end: see GIVEN_UP.

        `rows`: rows of its slice that this stream did; `moved`: bytes of all streams of the element.
        """
        now = time.monotonic()
        if not error.retry or rows != self._done or moved > self._moved or _lately_held(self.stopping):
            self._done, self._moved, self._moved_at, self._vain = rows, moved, now, 0
        self._vain += error.retry
        if self._vain < VAIN or now - self._moved_at < GIVEN_UP:
            return None
        return TransientError(
            "the source gives nothing any more",
            where=error.where,
            why=f"for {now - self._moved_at:.0f} s: {error.reason}",
            hint="what was done is kept; the same command goes on",
        )

    def _count(self, error: PenstockError) -> None:
        self.retries += 1
        self.retried[cause(error)] += 1

    def _pause(self, seconds: float) -> None:
        if self.stopping.wait(seconds):
            raise Stopped

    def close(self) -> None:
        """Close descriptors and connections; the buffer goes with its last view."""


def cause(error: PenstockError) -> str:
    """Return why a row is retried, in one of few phrases, without names and figures."""
    if status := getattr(error, "status", 0):
        return f"HTTP {status}"
    below = error.__cause__ or error.__context__
    number = below.errno if isinstance(below, OSError) else None
    return errno.errorcode.get(number or 0, "") or error.what


def _nonsense(entry: Any, error: ValueError) -> TransientError:
    """Make the error of a nonsensical answer: it fails one object, not the shard."""
    return TransientError(
        "the source's answer makes no sense",
        where=printable(str(entry.key)),
        why=f"{type(error).__name__}: {printable(str(error))[:200]}",
    )


def failure(entry_path: str, error: PenstockError) -> tuple[str, str, int, bool, bool]:
    """Return the fields of a `tasks.Failure` as a plain tuple, for the frame to the parent."""
    why = str(error).partition("\n")[0]
    contradicts = isinstance(error, IntegrityError) and not isinstance(error, DamagedError)
    return printable(entry_path), why, error.exit_code, error.retry, contradicts


# Prefetches small objects for a stream before their turn.
#
# One thread with several requests on their way takes a fifth less CPU than as many threads with one request
# each. Those hand the interpreter lock to one another.

# Bytes that a stream prefetches at most. 2, 4 and 8 MiB took the same time; 1 MiB took a tenth more, and
# several threads, for objects of that size.
AHEAD_BYTES = 4 << 20


class Prefetch:
    """The requests of one stream.

    `asker` maps a source's index to its request function; None for a source whose bytes are local. With
    `linking`, rows that may be linked or taken over are not requested.
    """

    def __init__(self, asker: Callable[[int], Callable[[Entry], None] | None], *, linking: bool) -> None:
        self._asker, self._linking = asker, linking
        self._coming: deque[Entry] = deque()
        self._depth = self._asked = self._bytes = 0

    def begin(self, entries: Sequence[Entry], depth: int) -> None:
        """Set the rows that come next, in order, and the most requests on their way; `depth` 1 prefetches
        nothing.

        The answers to all earlier requests must have been read.
        """
        self._coming = deque(entries if depth > 1 else ())
        self._depth, self._asked, self._bytes = depth, 0, 0

    def __bool__(self) -> bool:
        return bool(self._coming)

    def turn(self, entry: Entry) -> None:
        """Request this row, unless done before, and as many after it as `depth` and AHEAD_BYTES allow."""
        coming = self._coming
        while coming and coming[0].path != entry.path:
            self._bytes -= coming.popleft().size
            self._asked -= 1
        if self._asked <= 0:
            self._asked = self._bytes = 0
        while self._asked < self._depth and self._asked < len(coming):
            ahead = coming[self._asked]
            if self._asked and self._bytes + ahead.size > AHEAD_BYTES:
                return
            self._asked += 1
            self._bytes += ahead.size
            if (
                ahead.size <= BLOCK
                and ahead.part < 0
                and not (ahead.reuse and self._linking)
                and (ask := self._asker(ahead.source))
            ):
                ask(ahead)
