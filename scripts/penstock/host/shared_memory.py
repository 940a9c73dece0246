"""A few pages of memory that an element (the parent) shares with all its workers: counters, rates, the stores
of `pacing`.

Every stream, a worker's thread that handles one file at a time, adds to its own slot. So the parent sees
bytes move within a large object without a lock. The parent sets the rates: of the target's metadata
operations, and of the element's share of the network link.
"""

from __future__ import annotations

import mmap
import os

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
        allowance (`pacing.clock`). One thread of the parent, which holds the share, writes it."""
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
