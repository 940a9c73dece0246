"""Makes holes: ranges of a file that read as zeros and take no room. For `target.pending_file`, when copy
leaves zeros of a source out; changes the open file that it is given."""

from __future__ import annotations

import errno
import os

from penstock.fs import libc

COMPARED_AT_ONCE = 1 << 20
"""Bytes that are read and compared with zeros at a time."""
# EINTR too: reading back gives the same end.
_UNABLE = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EINTR})


def clear(fd: int, offset: int, length: int) -> None:
    """Make a range within the file read as zeros, as a hole where the file system can; what else lies
    there is overwritten. `fd` is open for both. Raises OSError."""
    try:
        libc.punch_hole(fd, offset, length)
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
        _overwrite(fd, offset, length)


def _overwrite(fd: int, offset: int, length: int) -> None:
    """Only what is not zeros already: a hole that reads as one stays a hole."""
    zeros = memoryview(bytes(min(COMPARED_AT_ONCE, length)))
    block = memoryview(bytearray(len(zeros)))
    end = offset + length
    while offset < end:
        count = os.preadv(fd, [block[: end - offset]], offset)
        if not count or not libc.all_zeros(block[:count]):
            count = os.pwrite(fd, zeros[: count or end - offset], offset)
        offset += count
