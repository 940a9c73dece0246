"""Makes holes: ranges of a file that read as zeros and take no room."""

from __future__ import annotations

import errno
import os

from penstock.fs import libc

COMPARED_AT_ONCE = 1 << 20  # bytes that are read and compared with zeros at a time
# EINTR too: reading back ends the same.
_UNABLE = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EINTR})


def clear(fd: int, offset: int, length: int) -> None:
    """Make a range within the file read as zeros, as a hole where the file system can; else overwrite it.
    `fd` is open for reading and writing. Raises OSError."""
    try:
        libc.punch_hole(fd, offset, length)
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
        _overwrite(fd, offset, length)


def _overwrite(fd: int, offset: int, length: int) -> None:
    """Overwrite only what is not zero already: an existing hole stays a hole."""
    zeros = memoryview(bytes(min(COMPARED_AT_ONCE, length)))
    block = memoryview(bytearray(len(zeros)))
    end = offset + length
    while offset < end:
        count = os.preadv(fd, [block[: end - offset]], offset)
        if not count or not libc.all_zeros(block[:count]):
            count = os.pwrite(fd, zeros[: count or end - offset], offset)
        offset += count
