"""The only limiter, for bytes and requests at the source, and for metadata operations on the target, whose
budget all runs of a root share. Its rates may change at any moment. A store counts how many bytes, requests
or operations may be used now. Stores are in pages of memory that an element shares with its workers.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import mmap
import os
import time
from struct import Struct
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# Makes metadata operations wait for the budget (operations a second) that all runs of a root share.
#
# Any thread calls `spend(n)` before n operations, and it returns when they may be made (`jobs.shares`, by the
# setting `target.ops`). Operations that change a metadata server's state count: create, opening shared
# files for writing, rename, utimes, link, unlink, and the first entry of a folder. Writes, fsyncs and reads
# of bytes do not count.

_REMEMBERED = 1 << 16  # number of folders that are remembered as entered, at most; they take some MiB


def unlimited(_: int, /) -> None:
    """Return at once. This is `spend` for a target without a budget."""


class FolderBudget:
    """Calls `spend` for operations in folders. Thread-safe.

    The first entry of a folder costs `entering` additional operations. The folders in `entered` count as
    entered from the start ("" is the top folder).
    """

    def __init__(self, spend: Callable[[int], None], entering: int, *entered: str) -> None:
        self._spend, self._entering, self._entered = spend, entering, set(entered)

    def before(self, path: str, operations: int) -> None:
        """Wait until `operations` may be made at the relative path `path`, and its folder may be entered."""
        if self._spend is unlimited:
            return
        parent = path.rpartition("/")[0]
        if parent not in self._entered:
            if len(self._entered) >= _REMEMBERED:
                self._entered.clear()
            self._entered.add(parent)
            operations += self._entering
        if operations:
            self._spend(operations)


# The pages of memory that an element (the parent) shares with all its workers: counters, rates and stores.
#
# A stream is a worker's thread, which handles one file at a time. Each stream adds its bytes to its own slot.
# So the parent sees progress within a large object without a lock. The parent sets two rates: that of
# metadata operations on the target, and that of the element's share of the network link.

SLOTS = 4096  # number of counters of bytes: one for each stream of all running workers
_WORD = 8
_OPS_AT = SLOTS * _WORD
_ALLOWANCE_AT = _OPS_AT + _WORD
STORES_AT = _ALLOWANCE_AT + 3 * _WORD  # byte at which the three stores begin
STORE_BYTES = 4 * _WORD
_PAUSED_AT = STORES_AT + 3 * STORE_BYTES
SIZE = SLOTS * _WORD + mmap.PAGESIZE


class SharedMemory:
    """A new mapping made by the parent (`fd` is None), or the parent's mapping opened in a worker, through
    the descriptor `fd` that it inherited."""

    def __init__(self, fd: int | None = None) -> None:
        if fd is None:
            fd = os.memfd_create("penstock-engine")
            os.ftruncate(fd, SIZE)
        self.fd = fd
        self.memory = mmap.mmap(fd, SIZE)
        self._view = memoryview(self.memory)
        self.counters = self._view[:_OPS_AT].cast("q")
        # Casts store and load in a single CPU instruction. `pack_into` first writes zeros, which a reading
        # worker would see.
        self._ops = self._view[_OPS_AT : _OPS_AT + _WORD].cast("d")
        self._allowance = self._view[_ALLOWANCE_AT:STORES_AT].cast("d")
        self._paused = self._view[_PAUSED_AT : _PAUSED_AT + _WORD].cast("d")
        self._retired = 0

    def total(self) -> int:
        """Return the bytes that all streams have moved, except those of failed attempts."""
        return self._retired + sum(self.counters)

    def retire(self, slots: range) -> None:
        """Free the slots of a worker that ended. Its bytes stay in `total`."""
        for slot in slots:
            self._retired += self.counters[slot]
            self.counters[slot] = 0

    def restart(self) -> None:
        """Count bytes from 0 again. Call it while no worker is at work."""
        self.memory[:_OPS_AT] = bytes(_OPS_AT)
        self._retired = 0

    @property
    def ops(self) -> float:
        """Metadata operations a second that all workers together may make. The parent sets this."""
        return self._ops[0]

    @ops.setter
    def ops(self, rate: float) -> None:
        self._ops[0] = rate

    @property
    def allowance(self) -> tuple[float, float, float]:
        """Bytes and requests a second that all workers together may read from the source, and the end of this
        allowance (`clock`). One thread of the parent, which holds the share, writes it."""
        rate, requests, until = self._allowance
        return rate, requests, until

    @allowance.setter
    def allowance(self, limits: tuple[float, float, float]) -> None:
        for at, value in enumerate(limits):
            self._allowance[at] = value

    @property
    def paused(self) -> bool:
        """Whether the workers are to pause before the next row or block. The parent sets this."""
        return bool(self._paused[0])

    @paused.setter
    def paused(self, now: bool) -> None:
        self._paused[0] = now

    def close(self) -> None:
        self._paused.release()
        self.counters.release()
        self._ops.release()
        self._allowance.release()
        self._view.release()
        self.memory.close()
        os.close(self.fd)


# The limiter.
#
# The rate of bytes is `engine.limit`, or the element's share of a network link. A thread of the parent writes
# the share's `Allowance` into the workers' shared memory whenever it changes. So workers stop using a rate
# that was given back even while another thread hangs in a file system. An allowance ends at `until`. Without
# a new allowance workers then stop reading, even if the writing thread itself hangs.

# Most seconds of the rate that a store may contain. So takers do not make up for lost time after a pause, or
# after the machine delayed all of them.
BURST = 0.05
LOOK = 0.2  # most seconds between a waiting taker's checks of the rate
SHORTEST = 0.0005  # least seconds between two attempts
BYTES, REQUESTS, OPERATIONS = 0, 1, 2  # numbers of the stores
# Seconds after which a waiting taker precedes later takers, because servers close a connection that is not
# read for a minute.
PATIENT = 10.0
_STORE = Struct("=4d")


class Allowance(NamedTuple):
    """The rates at which an element may read from its source now."""

    rate: float  # bytes a second; 0 allows nothing, infinity means no limit
    requests: float  # requests a second, with the same meaning of 0 and infinity
    until: float  # end of the allowance, on `clock`
    most: float = math.inf  # bytes a second that the element would get if all others ended


class Allowances(Protocol):
    """An element's share of a network link, as its engine sees it. The implementation is
    `jobs.bandwidth.LinkShare`, which the engine, a lower layer, cannot import."""

    def __call__(self) -> Allowance:
        """Return the allowance now. Raises FailedError if the share has ended for good."""

    def hand_to(self, write: Callable[[Allowance], None] | None) -> None:
        """Call `write` with the allowance at once and on each change, from any thread. If `write` is None,
        stop the calls; on return no call is under way."""


def clock() -> float:
    """Return this machine's clock in seconds. All its processes share it, and it counts time asleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def allowed_rate(
    shared_memory: SharedMemory, store: int, limit: int | None = None, now: Callable[[], float] = clock
) -> Callable[[], float]:
    """Return a function that returns the share's rate of bytes or requests, at most `limit`."""
    most = math.inf if limit is None else limit

    def rate() -> float:
        of_bytes, of_requests, until = shared_memory.allowance
        return min(most, of_requests if store == REQUESTS else of_bytes) if now() <= until else 0.0

    return rate


class Pace:
    """Access to a store, which all workers of an element share.

    A store fills at the rate, up to the amount of BURST seconds. If a taker finds it at 0 or more, the taker
    gets all that it wants, so that the store may become negative. Other takers wait, in no order. After
    PATIENT seconds a waiting taker claims precedence in the store. Later takers then take nothing, as long as
    it repeats the claim every LOOK seconds. Even if the machine delays takers, a period gives at most its
    length times the rate, plus the amount of BURST seconds, plus one taking.

    The obvious solution is a queue in which each taker books its turn. On an overloaded machine many takers
    come late to their turns, and then all proceed at once. With 40 MB/s among four engines and a load of 17
    on two CPUs, up to 28 % too much passed in a second.
    """

    def __init__(
        self,
        shared_memory: SharedMemory,
        store: int,
        rate: Callable[[], float],
        wait: Callable[[float], object],
        now: Callable[[], float] = clock,
    ) -> None:
        """`rate` returns the current rate a second (0 allows nothing, infinity means no limit). One thread at
        a time calls it. `wait` waits, and returns true when the engine stops."""
        self._shared_memory, self._rate, self._wait, self._clock = shared_memory, rate, wait, now
        self._lock, self._at = Lock(), STORES_AT + store * STORE_BYTES

    def take(self, count: int) -> None:
        """Return when `count` more bytes, requests or operations may be used, or the engine stops."""
        since = self._clock()
        while (left := self._taken(count, since)) > 0:
            if self._wait(min(left, LOOK)):
                return

    def ready(self) -> None:
        """Return when anything may be read, or the engine stops. Servers close connections that wait."""
        while self._rate() <= 0 and not self._wait(LOOK):
            pass

    def _taken(self, count: int, came: float) -> float:
        """Return 0 if `count` was taken, or else seconds until the next attempt. The wait began at `came`."""
        with self._lock:
            rate = self._rate()
            if math.isinf(rate):
                return 0.0
            self._hold()
            try:
                stored, since, first, said = _STORE.unpack_from(self._shared_memory.memory, self._at)
                now = self._clock()
                stored = min(BURST * rate, stored + rate * max(0.0, now - since))
                # A worker that died while it waited does not repeat its claim.
                others = 0.0 < first < came and now - said <= 2 * LOOK
                free = rate > 0 and stored >= 0 and not others
                if free and first == came:
                    first, said = 0.0, -math.inf
                elif not free and not others and now - came >= PATIENT:
                    first, said = came, now
                left = stored - count if free else stored
                _STORE.pack_into(self._shared_memory.memory, self._at, left, now, first, said)
            finally:
                self._release()
        if free:
            return 0.0
        # The clock's digits vary the wait, so that not all takers come at the same moment.
        if others:
            return LOOK
        return max(SHORTEST, -stored / rate if rate > 0 else LOOK) + BURST / 2 * (now * 1e4 % 1)

    def _hold(self) -> None:
        # The file lock works between processes, the other lock between this process's threads.
        fcntl.lockf(self._shared_memory.fd, fcntl.LOCK_EX, STORE_BYTES, self._at)

    def _release(self) -> None:
        fcntl.lockf(self._shared_memory.fd, fcntl.LOCK_UN, STORE_BYTES, self._at)


@contextlib.contextmanager
def spending(rate: Callable[[], float], wait: Callable[[float], object]) -> Iterator[Callable[[int], None]]:
    """Provide a function that waits until n more metadata operations may be made. All threads together make
    `rate` of them a second. `wait` as for `Pace`."""
    shared_memory = SharedMemory()
    try:
        yield Pace(shared_memory, OPERATIONS, rate, wait).take
    finally:
        shared_memory.close()
