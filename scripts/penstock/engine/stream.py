"""A stream: the work of one thread of a worker, with its buffer, its byte counter, its retries, and its
prefetching of small objects. Also the sources that a process has open for its streams.
"""

from __future__ import annotations

import errno
import mmap
import threading
import time
from collections import Counter, deque
from functools import partial
from threading import Lock
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
from penstock.fs.safe_open import printable
from penstock.host.wire import EXPIRED, PRESSURE, RECORD
from penstock.sources.backoff import retrying, row_may_retry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.config.settings import DatasetConfig
    from penstock.core.element_documents import SlowObject
    from penstock.core.model import Entry, SourceChecksum
    from penstock.host.pacing import Pace
    from penstock.sources.port import Source


class Sources:
    """A dataset's sources, which are opened when first used. A worker's streams share them."""

    def __init__(self, dataset: DatasetConfig, credentials: Sequence[Any]) -> None:
        self._dataset, self._credentials = dataset, credentials
        self._lock = Lock()
        self._open: dict[int, Source] = {}
        self._checksums: dict[tuple[int, str, str], Sequence[SourceChecksum]] = {}

    def get(self, index: int) -> Source:
        from penstock.sources.port import open_source

        with self._lock:
            if index not in self._open:
                config, credentials = self._dataset.sources[index], self._credentials[index]
                self._open[index] = open_source(config, self._dataset, credentials=credentials)
            return self._open[index]

    def checksums(self, entry: Entry) -> Sequence[SourceChecksum]:
        """Return the checksums that the source states of a whole giant. Each worker requests them once for
        all its parts."""
        place = (entry.source, entry.key, entry.token)
        checksums = self._checksums.get(place)
        if checksums is None:
            checksums = self._checksums[place] = tuple(self.get(entry.source).checksum(entry))
        return checksums

    def renew(self, credentials: Sequence[Any]) -> None:
        """Use new credentials for all sources, including open readers. None keeps a source's credentials."""
        with self._lock:
            self._credentials = credentials
            for index, source in self._open.items():
                if credentials[index] is not None:
                    source.renew(credentials[index])


# Subclasses copy a row, read it back, or compare it with its source. A row is an entry of the shard: a file,
# or a part of a giant (a file too large for one stream).
#
# After a transient error a stream tries the row again, with growing pauses, until `attempts` tries in
# succession made no progress. If bytes contradict a checksum, it reads them once more, since the network may
# have flipped a bit. A permanent error fails only its row. An error that is not about one row (no space,
# fenced, configuration) ends the shard.

BLOCK = 1 << 20  # bytes of a read and a write; a smaller object is read whole
# RENEWAL: seconds between two tries of a row while credentials are renewed or a server refuses connections.
# The pause grows up to LOOKS times as long, and these tries do not count towards `attempts`. If a renewal
# takes too long, the parent stops the workers (`credential_renewal`).
RENEWAL, LOOKS = 1.0, 5


# A shard ends if VAIN rows of a stream in succession failed with transient errors, and no stream of the
# element moved a byte for GIVEN_UP seconds. Without this rule, each of a million rows of a lost source would
# be retried for minutes.
GIVEN_UP = 180.0
VAIN = 2
PAUSE_LOOK = 0.2  # seconds between two looks at the shared memory during a pause
AFTER_HOLD = 60.0  # seconds after a pause in which the pause may be the cause of a transient error


class Stopping(threading.Event):
    """A worker's stop flag, which also pauses its streams while the root's PAUSE file (`notices`) exists.

    The parent watches for that file, and sets `paused` in shared memory. Each stream calls `is_set` before a
    row and after each block. It blocks while `paused()` is true and the flag is not set: the stream reads and
    writes nothing, but keeps its files and connections open. During a long pause a server may close its
    connection. A row that then fails is tried once more, which does not count as an attempt.
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
        """Whether streams were paused within the last AFTER_HOLD seconds."""
        return time.monotonic() - self._held < AFTER_HOLD


def _lately_held(stopping: threading.Event) -> bool:
    return isinstance(stopping, Stopping) and stopping.lately_held


class Stopped(Exception):  # noqa: N818
    """Raised inside a stream when the engine stops. The row is left as it is."""


def of_row(error: PenstockError) -> bool:
    """Return whether an error concerns one row alone. Any other error ends the shard."""
    return isinstance(error, (ObjectError, SourceChangedError, TransientError))


class Stream:
    """Base of `Copier`, `Rereader`, `Auditor` and `Surveyor`, whose `do` handles one row. For one thread."""

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
        """`counters[slot]`, in shared memory, counts the bytes that this stream moved. `limiter` paces the
        bytes read, `requests` the requests (None: no limit). `tell(kind, value)` sends the parent a message.
        """
        self.slot, self.counters, self.stopping = slot, counters, stopping
        self.attempts, self.limiter, self.tell = attempts, limiter, tell
        self.requests = requests
        self.retries = self.linked = self.taken = 0
        self.vain_tries = 0  # failed tries of the current row since it last made progress
        self.retried: Counter[str] = Counter()
        self.slowest: Sequence[SlowObject] = ()
        self.fast = 0.0  # seconds that a row must exceed to be one of this stream's slowest
        # semaphore that is released when a line sent by `record` is in the journal, and at a stop
        self.recorded = threading.Semaphore()
        self._vain, self._done, self._moved, self._moved_at = 0, -1, -1, 0.0
        self._total, self._total_at = -1, 0.0
        # One page more than a block, so that a read reveals an object that is longer than listed.
        self.view = memoryview(mmap.mmap(-1, BLOCK + mmap.PAGESIZE))

    def prepare(self, entries: Sequence[Any], ahead: int) -> None:
        """Prefetch the rows that `attempt` will get next, in this order, with at most `ahead` requests at
        once. Never raises."""

    def do(self, row: int, entry: Any) -> Any:
        """Try one row once, and add the bytes it moves to the counter. Raises any PenstockError."""
        raise NotImplementedError

    def rest(self) -> None:
        """Close idle connections, which the next row opens again. Never raises."""

    def settle(self) -> None:
        """Do the work that finished rows need before they may be reported. The base class does nothing.

        If it raises a PenstockError, none of these rows is reported.
        """

    def notes(self) -> tuple[int, int, int]:
        """Return the numbers of retries, of rows linked and of rows taken over since the last call."""
        counts = self.retries, self.linked, self.taken
        self.retries = self.linked = self.taken = 0
        return counts

    def slow(self, seconds: float, size: int, entry: Any) -> None:
        key = printable(getattr(entry, "key", "") or entry.path)
        self.slowest = slowest([*self.slowest, (round(seconds, 3), size, key)])
        if len(self.slowest) == KEPT:
            self.fast = self.slowest[-1][0]

    def asks(self) -> None:
        """Wait until the element's share of requests allows another request to a source."""
        if self.requests:
            if self.limiter:
                self.limiter.ready()
            self.requests.take(1)

    def record(self, line: str, size: int) -> None:
        """Send the parent a journal line that covers about `size` bytes of the current row.

        Afterwards it waits until this stream's previous line is recorded. Raises Stopped.
        """
        self.tell(RECORD, (self.slot, line.encode(), size))
        self.recorded.acquire()
        if self.stopping.is_set():
            raise Stopped

    def attempt(self, row: int, entry: Any) -> Any:
        """Try a row until `do` succeeds or no retry is left. Raises the error of the last try, or Stopped."""
        try:
            return self._try(self.do, row, entry)
        except PenstockError as error:
            try:
                return self.again(self.do, row, entry, error)
            finally:
                self.vain_tries = 0

    def again(self, do: Callable[[Any, Any], Any], subject: Any, entry: Any, error: PenstockError) -> Any:
        """Repeat `do(subject, entry)` after a try that failed with `error`. All retries of a row count in
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
        """Call `do`, repeat it while credentials or connections are refused, and once after a pause.

        Reports an overloaded store, or refused credentials, to the parent.
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
        """Return the error that ends the shard, or None if `error` does not fulfil the rule at GIVEN_UP.

        `rows` counts the rows done in the stream's slice, `moved` the bytes of all streams of the element.
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
        """Close descriptors and connections. The buffer is freed with its last view."""


def cause(error: PenstockError) -> str:
    """Return why a row is retried, as one of a few phrases without names and figures."""
    if status := getattr(error, "status", 0):
        return f"HTTP {status}"
    below = error.__cause__ or error.__context__
    number = below.errno if isinstance(below, OSError) else None
    return errno.errorcode.get(number or 0, "") or error.what


def _nonsense(entry: Any, error: ValueError) -> TransientError:
    """Return the error for a nonsensical answer of a source, which fails one object and not the shard."""
    return TransientError(
        "the source's answer makes no sense",
        where=printable(str(entry.key)),
        why=f"{type(error).__name__}: {printable(str(error))[:200]}",
    )


def failure(entry_path: str, error: PenstockError) -> tuple[str, str, int, bool, bool]:
    """Return the fields of a `tasks.Failure` as a plain tuple, for the message to the parent."""
    why = str(error).partition("\n")[0]
    contradicts = isinstance(error, IntegrityError) and not isinstance(error, DamagedError)
    return printable(entry_path), why, error.exit_code, error.retry, contradicts


# One thread with several pending requests takes a fifth less CPU time than a thread for each request. Such
# threads must hand the interpreter lock to one another.

# The most bytes that a stream prefetches. With 2, 4 and 8 MiB a copy took the same time. With 1 MiB, it took
# a tenth more, and for objects of that size it needed several threads.
AHEAD_BYTES = 4 << 20


class Prefetch:
    """The prefetching requests of one stream.

    `asker` returns the request function of a source by its index, or None if the source's bytes are local.
    If `linking` is set, rows that may be linked or taken over are not requested.
    """

    def __init__(self, asker: Callable[[int], Callable[[Entry], None] | None], *, linking: bool) -> None:
        self._asker, self._linking = asker, linking
        self._coming: deque[Entry] = deque()
        self._depth = self._asked = self._bytes = 0

    def begin(self, entries: Sequence[Entry], depth: int) -> None:
        """Set the rows that come next, in order, and the most pending requests; a `depth` of 1 means none.

        Call it only when the answers to all earlier requests have been read.
        """
        self._coming = deque(entries if depth > 1 else ())
        self._depth, self._asked, self._bytes = depth, 0, 0

    def __bool__(self) -> bool:
        return bool(self._coming)

    def turn(self, entry: Entry) -> None:
        """Request this row unless it was requested before, and the following rows within `depth` and
        AHEAD_BYTES."""
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
