"""A few pages of memory that the parent and all its workers share: counters and the limiter.

Every stream adds to its own slot, so the parent sees bytes move within a large object and
nobody needs a lock. The limiter hands out the source's bytes at one rate to all of them.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from struct import Struct
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SLOTS = 4096
_WORD = 8
_DUE = Struct("=d")
_DUE_AT = SLOTS * _WORD
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
        self._retired = 0

    def total(self) -> int:
        """Bytes that all streams have moved, without those of tries that failed."""
        return self._retired + sum(self.counters)

    def retire(self, slots: range) -> None:
        """A worker ended: its bytes count on, its slots are free for a successor."""
        for slot in slots:
            self._retired += self.counters[slot]
            self.counters[slot] = 0

    def close(self) -> None:
        self.counters.release()
        self._view.release()
        self.memory.close()
        os.close(self.fd)


class Limiter:
    """Bytes per second over all workers: each reading is booked on one common time line, and
    waits until its turn. Over any window the bytes are at most the rate times the window plus
    BURST seconds' worth plus one block; nothing that was free is lost for longer than BURST."""

    def __init__(
        self,
        shared: Shared,
        rate: int,
        wait: Callable[[float], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shared, self._rate, self._wait, self._clock = shared, rate, wait, clock
        self._lock = Lock()

    def take(self, count: int) -> None:
        """Wait until `count` more bytes may be read. The monotonic clock is the machine's."""
        with self._lock:
            # The file lock is between processes, the other between this one's threads.
            fcntl.lockf(self._shared.fd, fcntl.LOCK_EX)
            try:
                now = self._clock()
                (due,) = _DUE.unpack_from(self._shared.memory, _DUE_AT)
                due = max(due, now - BURST)
                _DUE.pack_into(self._shared.memory, _DUE_AT, due + count / self._rate)
            finally:
                fcntl.lockf(self._shared.fd, fcntl.LOCK_UN)
        if due > now:
            self._wait(due - now)
