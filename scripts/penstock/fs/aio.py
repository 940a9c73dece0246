"""Many reads by one system call: Linux AIO, which Python does not offer.

When `Reads.run` returns or raises, the kernel no longer writes to the buffer. Descriptors must be opened with
O_DIRECT to be read concurrently: others are read one after the other within the call. So are files of a
driver without asynchronous reads.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from struct import Struct
from typing import TYPE_CHECKING, Self

from penstock.fs.libc import syscall

if TYPE_CHECKING:
    import mmap
    from collections.abc import Sequence

# io_setup, io_destroy, io_submit, io_getevents. (io_uring is switched off at many sites.)
_CALLS = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4), "riscv64": (0, 1, 2, 4)}
_SETUP, _DESTROY, _SUBMIT, _GETEVENTS = _CALLS.get(platform.machine(), (-1, -1, -1, -1))
# struct iocb: data, key, rw_flags, opcode, priority, fd, buffer, bytes, offset, reserved, flags, resfd
_IOCB = Struct("<QIIHhIQQqQII")
_EVENT = Struct("<QQqq")
_PREAD = 0


class Reads:
    """Up to `most` reads at once into a buffer; for one thread. The constructor raises OSError where the
    kernel refuses AIO (ENOSYS, EPERM in a sandbox; EAGAIN beyond `fs.aio-max-nr`)."""

    def __init__(self, buffer: mmap.mmap, most: int) -> None:
        self._context = ctypes.c_ulong(0)
        if _SETUP < 0:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        syscall(_SETUP, most, ctypes.byref(self._context))
        self._held = ctypes.c_char.from_buffer(buffer)
        self._base = ctypes.addressof(self._held)
        self._blocks = ctypes.create_string_buffer(_IOCB.size * most)
        first = ctypes.addressof(self._blocks)
        self._pointers = (ctypes.c_void_p * most)(*(first + _IOCB.size * i for i in range(most)))
        self._events = ctypes.create_string_buffer(_EVENT.size * most)

    def run(self, wanted: Sequence[tuple[int, int, int, int]]) -> list[int]:
        """Make these reads, each (descriptor, place in the buffer, bytes, offset in the file), and wait for
        all. Returns in their order the bytes read, or the negative errno of a read that failed or that the
        kernel did not take (EAGAIN)."""
        for i, (fd, place, count, offset) in enumerate(wanted):
            _IOCB.pack_into(
                self._blocks,
                i * _IOCB.size,
                i,
                0,
                0,
                _PREAD,
                0,
                fd,
                self._base + place,
                count,
                offset,
                0,
                0,
                0,
            )
        answers = [-errno.EAGAIN] * len(wanted)
        try:
            taken = syscall(_SUBMIT, self._context, len(wanted), self._pointers)
        except OSError as error:
            # The first read was refused, and none was taken.
            return [-(error.errno or errno.EIO)] * len(wanted)
        left = taken
        while left:
            try:
                done = syscall(_GETEVENTS, self._context, left, left, self._events, None)
            except InterruptedError:
                continue
            for i in range(done):
                number, _, result, _ = _EVENT.unpack_from(self._events, i * _EVENT.size)
                answers[number] = result
            left -= done
        return answers

    def close(self) -> None:
        """Wait for reads under way; then the buffer can be closed."""
        if self._context.value:
            syscall(_DESTROY, self._context)
            self._context.value = 0
            del self._held

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
