"""A few pages of memory that the parent and all its workers share: counters and the limiter.

Every stream adds to its own slot, so the parent sees bytes move within a large object and
nobody needs a lock. One limiter hands out the source's bytes at one rate to all of them, another the
target's metadata operations, at a rate that the parent changes. Where the element has a share of a link, the
source's bytes and requests go by `pacing` instead.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import time
from struct import Struct
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SLOTS = 4096
_WORD = 8
_DUE = Struct("=d")
_DUE_AT = SLOTS * _WORD
_OPS_DUE_AT = _DUE_AT + _WORD
_OPS_AT = _OPS_DUE_AT + _WORD
_ALLOWANCE_AT = _OPS_AT + _WORD
STORES_AT = _ALLOWANCE_AT + 3 * _WORD
"""Where the two stores of `engine.pacing` begin."""
STORE_BYTES = 4 * _WORD
_PAUSED_AT = STORES_AT + 2 * STORE_BYTES
SIZE = _DUE_AT + mmap.PAGESIZE
# What may be taken ahead of the rate, in seconds: smooths the clock's grain, below 5 % of 5 s.
BURST = 0.05


class Shared:
    """The mapping, of the parent (`fd` None) or of a worker."""

    def __init__(self, fd: int | None = None) -> None:
        if fd is None:
            fd = os.memfd_create("penstock-engine")
            os.ftruncate(fd, SIZE)
        self.fd = fd
        self.memory = mmap.mmap(fd, SIZE)
        self._view = memoryview(self.memory)
        self.counters = self._view[:_DUE_AT].cast("q")
        # Set and read by one store and one load of the CPU: `pack_into` writes zeros before the value, and a
        # worker that reads meanwhile would see them.
        self._ops = self._view[_OPS_AT : _OPS_AT + _WORD].cast("d")
        self._allowance = self._view[_ALLOWANCE_AT:STORES_AT].cast("d")
        self._paused = self._view[_PAUSED_AT : _PAUSED_AT + _WORD].cast("d")
        self._retired = 0

    def total(self) -> int:
        """Bytes that all streams have moved, without those of tries that failed."""
        return self._retired + sum(self.counters)

    def retire(self, slots: range) -> None:
        """A worker ended: its bytes count on, its slots are free for a successor."""
        for slot in slots:
            self._retired += self.counters[slot]
            self.counters[slot] = 0

    @property
    def ops(self) -> float:
        """Metadata operations a second that all workers may make together; of the parent's making."""
        return self._ops[0]

    @ops.setter
    def ops(self, rate: float) -> None:
        self._ops[0] = rate

    @property
    def allowance(self) -> tuple[float, float, float]:
        """Bytes and requests a second that all workers may read and make of the source together, and until
        when (`pacing.clock`). One thread of the parent's writes them: it holds the share."""
        rate, requests, until = self._allowance
        return rate, requests, until

    @allowance.setter
    def allowance(self, given: tuple[float, float, float]) -> None:
        for at, value in enumerate(given):
            self._allowance[at] = value

    @property
    def paused(self) -> bool:
        """Whether the workers are to hold (`engine.holding`); of the parent's making."""
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


class Limiter:
    """Bytes (or operations) per second over all workers: each reading is booked on one common time line, and
    waits until its turn. Over any window the bytes are at most the rate times the window plus
    BURST seconds' worth plus one block; nothing that was free is lost for longer than BURST."""

    def __init__(
        self,
        shared: Shared,
        rate: int | Callable[[], float],
        wait: Callable[[float], object],
        clock: Callable[[], float] = time.monotonic,
        *,
        at: int = _DUE_AT,
    ) -> None:
        """`rate`: what it is, or called for it each time; `at`: the place of the time line."""
        self._shared, self._rate, self._wait, self._clock = shared, rate, wait, clock
        self._lock, self._at = Lock(), at

    @classmethod
    def of_operations(
        cls, shared: Shared, rate: Callable[[], float], wait: Callable[[float], object]
    ) -> Limiter:
        """Of metadata operations: on a time line of their own."""
        return cls(shared, rate, wait, at=_OPS_DUE_AT)

    def take(self, count: int) -> None:
        """Wait until `count` more bytes may be read. The monotonic clock is the machine's."""
        with self._lock:
            rate = self._rate if isinstance(self._rate, int) else self._rate()
            # The file lock is between processes, the other between this one's threads. It is of the time
            # line's bytes alone: a process has one lock of a byte, whichever thread takes it.
            fcntl.lockf(self._shared.fd, fcntl.LOCK_EX, _WORD, self._at)
            try:
                now = self._clock()
                (due,) = _DUE.unpack_from(self._shared.memory, self._at)
                due = max(due, now - BURST)
                _DUE.pack_into(self._shared.memory, self._at, due + count / rate)
            finally:
                fcntl.lockf(self._shared.fd, fcntl.LOCK_UN, _WORD, self._at)
        if due > now:
            self._wait(due - now)


@contextlib.contextmanager
def spending(rate: Callable[[], float], wait: Callable[[float], object]) -> Iterator[Callable[[int], None]]:
    """What waits until the threads of this process may make n more metadata operations, at a common rate."""
    shared = Shared()
    try:
        yield Limiter.of_operations(shared, rate, wait).take
    finally:
        shared.close()
