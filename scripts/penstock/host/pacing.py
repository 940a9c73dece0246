"""The one limiter: bytes and requests of the source, and metadata operations of the target, at a rate that
may change at any moment; and the pages of memory that an element shares with its workers, where it keeps its
stores.
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


# A few pages of memory that an element (the parent) shares with all its workers: counters, rates, the stores
# of `pacing`.
#
# Every stream, a worker's thread that handles one file at a time, adds to its own slot. So the parent sees
# bytes move within a large object without a lock. The parent sets the rates: of the target's metadata
# operations, and of the element's share of the network link.

SLOTS = 4096  # counters of bytes: one for each stream of all living workers
_WORD = 8
_OPS_AT = SLOTS * _WORD
_ALLOWANCE_AT = _OPS_AT + _WORD
STORES_AT = _ALLOWANCE_AT + 3 * _WORD  # where the three stores of `host.pacing` begin
STORE_BYTES = 4 * _WORD
_PAUSED_AT = STORES_AT + 3 * STORE_BYTES
SIZE = SLOTS * _WORD + mmap.PAGESIZE


class SharedMemory:
    """A new mapping of the parent (`fd` None), or the parent's, by a worker's inherited descriptor."""

    def __init__(self, fd: int | None = None) -> None:
        if fd is None:
            fd = os.memfd_create("penstock-engine")
            os.ftruncate(fd, SIZE)
        self.fd = fd
        self.memory = mmap.mmap(fd, SIZE)
        self._view = memoryview(self.memory)
        self.counters = self._view[:_OPS_AT].cast("q")
        # Casts store and load in one CPU instruction: `pack_into` writes zeros before the value, which a
        # reading worker would see.
        self._ops = self._view[_OPS_AT : _OPS_AT + _WORD].cast("d")
        self._allowance = self._view[_ALLOWANCE_AT:STORES_AT].cast("d")
        self._paused = self._view[_PAUSED_AT : _PAUSED_AT + _WORD].cast("d")
        self._retired = 0

    def total(self) -> int:
        """Return the bytes that all streams have moved, without those of failed attempts."""
        return self._retired + sum(self.counters)

    def retire(self, slots: range) -> None:
        """Free the slots of a worker that ended; its bytes stay in `total`."""
        for slot in slots:
            self._retired += self.counters[slot]
            self.counters[slot] = 0

    def restart(self) -> None:
        """Count bytes from 0 again. Call it while no worker is at work."""
        self.memory[:_OPS_AT] = bytes(_OPS_AT)
        self._retired = 0

    @property
    def ops(self) -> float:
        """Metadata operations a second that all workers may make together; the parent sets it."""
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
        """Whether the workers are to rest before the next row or block; the parent sets it."""
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


# The only limiter: bytes and requests at the source, and metadata operations on the target, at a rate that
# may change at any moment.
#
# The rate of bytes is `engine.limit`, or the element's share of a network link. One thread of the parent
# writes the share's `Allowance` into the workers' shared memory whenever it changes. So workers stop using
# what was given back even while another thread hangs in a file system. An allowance ends at `until`: without
# a later one workers stop reading, even if that thread itself hangs.

# Seconds' worth that may be taken at once after a pause; more is lost. So nothing is made up for after the
# machine has delayed all takers.
BURST = 0.05
LOOK = 0.2  # seconds between a waiting taker's checks of the pace
SHORTEST = 0.0005  # least seconds between two attempts
BYTES, REQUESTS, OPERATIONS = 0, 1, 2  # the stores, by what they count
# Seconds after which a waiting taker precedes later ones: servers close a connection that is not read for a
# minute.
PATIENT = 10.0
_STORE = Struct("=4d")


class Allowance(NamedTuple):
    """What an element may read from its source now."""

    rate: float  # bytes a second; 0: nothing, infinite: no cap
    requests: float  # requests a second; likewise
    until: float  # by `clock`
    most: float = math.inf  # bytes a second that it would get if all others ended


class Allowances(Protocol):
    """An element's share of a network link, as its engine sees it. It is `jobs.bandwidth.LinkShare`,
    which the engine, a lower layer, cannot import."""

    def __call__(self) -> Allowance:
        """Return the allowance now. Raises FailedError if the share has ended for good."""

    def hand_to(self, write: Callable[[Allowance], None] | None) -> None:
        """Call `write` with the allowance at once and on each change, from any thread. None: stop; on return
        no call is under way."""


def clock() -> float:
    """Return this machine's seconds, the same for all its processes, including time asleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def allowed_rate(
    shared_memory: SharedMemory, store: int, limit: int | None = None, now: Callable[[], float] = clock
) -> Callable[[], float]:
    """Return a function of the share's rate of bytes or requests, at most `limit`."""
    most = math.inf if limit is None else limit

    def rate() -> float:
        of_bytes, of_requests, until = shared_memory.allowance
        return min(most, of_requests if store == REQUESTS else of_bytes) if now() <= until else 0.0

    return rate


class Pace:
    """One of the stores, for all workers of an element.

    A store fills at the rate, up to BURST seconds' worth. A taker that finds it at 0 or more takes all that
    it wants, so that the store may become negative; the others wait, in no order. After PATIENT seconds a
    waiting taker claims precedence in the store: later takers leave the content to it, as long as it repeats
    the claim every LOOK seconds. Over any window at most the rate times the window, BURST seconds' worth and
    a single taking pass, even when the machine delays takers.

    The obvious way, a line in which each taker books its turn, fails where many takers come late, as on an
    overloaded machine: they all proceed at once. With 40 MB/s among four engines and a load of 17 on two CPUs
    that was up to 28 % too much in a second.
    """

    def __init__(
        self,
        shared_memory: SharedMemory,
        store: int,
        rate: Callable[[], float],
        wait: Callable[[float], object],
        now: Callable[[], float] = clock,
    ) -> None:
        """`rate`: a second, as of now; 0: nothing, infinite: no bound; called by one thread at a time.
        `wait`: true when the engine stops."""
        self._shared_memory, self._rate, self._wait, self._clock = shared_memory, rate, wait, now
        self._lock, self._at = Lock(), STORES_AT + store * STORE_BYTES

    def take(self, count: int) -> None:
        """Return when `count` more may be read, or the engine stops."""
        since = self._clock()
        while (left := self._taken(count, since)) > 0:
            if self._wait(min(left, LOOK)):
                return

    def ready(self) -> None:
        """Return when anything may be read, or the engine stops: servers close connections that wait."""
        while self._rate() <= 0 and not self._wait(LOOK):
            pass

    def _taken(self, count: int, came: float) -> float:
        """Return 0 when `count` was taken, else the seconds until the next attempt. `came`: began to wait."""
        with self._lock:
            rate = self._rate()
            if math.isinf(rate):
                return 0.0
            self._hold()
            try:
                stored, since, first, said = _STORE.unpack_from(self._shared_memory.memory, self._at)
                now = self._clock()
                stored = min(BURST * rate, stored + rate * max(0.0, now - since))
                # A worker that died while it waited says nothing any more.
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
        # Not all at the same moment: by the digits of the clock.
        if others:
            return LOOK
        return max(SHORTEST, -stored / rate if rate > 0 else LOOK) + BURST / 2 * (now * 1e4 % 1)

    def _hold(self) -> None:
        # The file lock is between processes, the other between this one's threads.
        fcntl.lockf(self._shared_memory.fd, fcntl.LOCK_EX, STORE_BYTES, self._at)

    def _release(self) -> None:
        fcntl.lockf(self._shared_memory.fd, fcntl.LOCK_UN, STORE_BYTES, self._at)


@contextlib.contextmanager
def spending(rate: Callable[[], float], wait: Callable[[float], object]) -> Iterator[Callable[[int], None]]:
    """Provide a function that waits until n more metadata operations may be made, at `rate` a second of all
    threads together; `wait` as for `Pace`."""
    shared_memory = SharedMemory()
    try:
        yield Pace(shared_memory, OPERATIONS, rate, wait).take
    finally:
        shared_memory.close()
