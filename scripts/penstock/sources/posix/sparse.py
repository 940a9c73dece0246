"""Sparse files: finds the holes of a file by SEEK_DATA and SEEK_HOLE, so that zeros are not read from the
source.

Guarantee: data is never taken for a hole. Some file systems report data that waits for write-back as a hole.
Only those that are known not to (`kinds.Kind.holes_told`) are believed. On all others a reported hole is
read, and counts as one where its bytes are zeros.

`posix.reader` makes a `SparseBody` of a file that takes less room than its size, and calls `data_bytes`.
Descriptors are read and sought in; nothing is changed.
"""

from __future__ import annotations

import errno
import os
from functools import cache

from penstock.fs.capabilities import traits_of_device
from penstock.sources.posix.file_range import PosixBody, source_error

NOT_TOLD = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY})
"""Errors of a file system that does not report holes: the file then counts as data."""

EXTENTS = 1 << 16
"""Up to so many runs of data are counted, at 1 µs each on a local disk; a file of more counts whole."""


class SparseBody(PosixBody):
    """One range of a file with holes. A read ends where a hole or the data does."""

    __slots__ = ("_in_gap", "_until", "certain")

    def __init__(self, fd: int, key: str, status: os.stat_result, offset: int, length: int) -> None:
        super().__init__(fd, key, status, offset, length)
        self.certain = _holes_told(status.st_dev)
        """Whether the bytes of a gap are surely zeros. Where False, the caller reads them and checks."""
        self._until, self._in_gap = offset, False

    def gap(self) -> int:
        """Bytes of the hole at this place within the range; 0 in data and at the end. Raises as
        `source_error`."""
        if self._at >= self._until and self._left:
            self._look()
        return self._until - self._at if self._in_gap else 0

    def skip(self, count: int) -> None:
        """Pass over `count` bytes, unread: no more than `gap` returned last."""
        self._at += count
        self._left -= count

    def readinto(self, buffer: memoryview) -> int:
        self.gap()
        return super().readinto(buffer[: self._until - self._at])

    def _look(self) -> None:
        """The run of data or hole that begins here. A file that became shorter meanwhile seems to end in
        a hole: `close` sees that it changed."""
        at, end = self._at, self._at + self._left
        self._until, self._in_gap = end, False
        try:
            data = os.lseek(self._fd, at, os.SEEK_DATA)
            if data > at:
                self._until, self._in_gap = min(data, end), True
                return
            hole = os.lseek(self._fd, at, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                self._in_gap = True
            elif error.errno not in NOT_TOLD:
                raise source_error(error, self._key) from None
            return
        if hole > at:
            self._until = min(hole, end)


def data_bytes(fd: int, status: os.stat_result) -> int:
    """How many bytes of a file are no hole: no less than its blocks, which is more where data waits for
    write-back, and less where the file system compresses. Its size where holes are not reported, or are more
    than EXTENTS. Raises OSError."""
    size, blocks = status.st_size, status.st_blocks * 512
    if blocks >= size:
        return size
    data = at = 0
    try:
        for _ in range(EXTENTS):
            at = os.lseek(fd, at, os.SEEK_DATA)
            end = os.lseek(fd, at, os.SEEK_HOLE)
            data += end - at
            at = end
    except OSError as error:
        if error.errno == errno.ENXIO:
            return min(size, max(data, blocks))
        if error.errno not in NOT_TOLD:
            raise
    return size


@cache
def _holes_told(device: int) -> bool:
    return traits_of_device(device).holes_told
