"""A few pages of memory that an element (the parent) and all its workers share: counters, rates, the stores
of `pacing`. It touches that mapping alone.

Every stream (a thread of a worker that copies or reads one file at a time) adds to its own slot, so the
parent sees bytes move within a large object without a lock. The parent changes the rates: of the target's
metadata operations, and of what the element's share of a network link allows.
"""

from __future__ import annotations

import mmap
import os

SLOTS = 4096
"""Counters of bytes: one for each stream of all workers that live."""
_WORD = 8
_OPS_AT = SLOTS * _WORD
_ALLOWANCE_AT = _OPS_AT + _WORD
STORES_AT = _ALLOWANCE_AT + 3 * _WORD
"""Where the three stores of `host.pacing` begin."""
STORE_BYTES = 4 * _WORD
_PAUSED_AT = STORES_AT + 3 * STORE_BYTES
SIZE = SLOTS * _WORD + mmap.PAGESIZE


class SharedMemory:
    """The mapping: a new one, of the parent (`fd` None), or the parent's, by the descriptor that a worker
    inherited."""

    def __init__(self, fd: int | None = None) -> None:
        if fd is None:
            fd = os.memfd_create("penstock-engine")
            os.ftruncate(fd, SIZE)
        self.fd = fd
        self.memory = mmap.mmap(fd, SIZE)
        self._view = memoryview(self.memory)
        self.counters = self._view[:_OPS_AT].cast("q")
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

    def restart(self) -> None:
        """Count bytes from 0 again. To be called while no worker is at work."""
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
        """Whether the workers are to rest before the next row or block (`engine.stream`); the parent sets
        it."""
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
