"""A range of an open file of a POSIX source, read in order; checks that the file is still the listed one.

`reader` opens files and hands their descriptors over; `sparse` reads those with holes. This module reads from
and closes descriptors, and touches nothing else. An operating system's error becomes one of penstock's, by
what a caller can do about it (`source_error`): list anew, leave the object out, change a limit, or retry.
"""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING

from penstock.core import timestamps
from penstock.core.errors import (
    FailedError,
    ObjectError,
    PenstockError,
    SourceChangedError,
    TransientError,
    longer,
)
from penstock.fs.safe_open import EXHAUSTED, read_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.model import SourceChecksum

CHANGED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
"""Errors of a file that was removed or replaced since it was listed."""
REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EINVAL, errno.EISDIR})
"""Errors that another attempt meets again."""
_TOKEN = re.compile(r"(\d+)-(-?\d+)-(-?\d+)-(\d+)")


class PosixBody:
    """The bytes `[offset, offset + length)` of one file: a `port.Body`. It owns the descriptor `fd` until
    `close` or `abandon`. `status`: the stat of the file when it was opened and was the listed one."""

    __slots__ = ("_at", "_fd", "_key", "_left", "_status")

    checksums: Sequence[SourceChecksum] = ()
    """A file system states no checksums."""

    def __init__(self, fd: int, key: str, status: os.stat_result, offset: int, length: int) -> None:
        self._fd, self._key, self._status, self._at, self._left = fd, key, status, offset, length

    def readinto(self, buffer: memoryview) -> int:
        """Fill `buffer`, or its beginning; 0 at the end of the range alone. Raises SourceChangedError for a
        file that ends before the range does, and as `source_error`."""
        left = self._left
        if not left:
            return 0
        if len(buffer) > left:
            buffer = buffer[:left]
        try:
            count = read_at(self._fd, buffer, self._at)
        except OSError as error:
            raise source_error(error, self._key) from None
        if not count:
            raise SourceChangedError("the file is shorter than it was listed", where=self._key)
        self._at += count
        self._left = left - count
        return count

    def close(self) -> None:
        """Close the descriptor. Where the whole range was read: raises SourceChangedError for a file that is
        another than when it was opened, and ObjectError for a range that ends where the file should and a
        file that goes on: some mounts state sizes that are too small. After a part of the range nothing is
        checked."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        size = self._status.st_size
        try:
            if not self._left:
                more = self._at == size and read_at(fd, memoryview(bytearray(1)), size)
                require_unchanged(os.fstat(fd), self._status, self._key)
                if more:
                    raise longer(self._key, size)
        except OSError as error:
            raise source_error(error, self._key) from None
        finally:
            os.close(fd)

    def abandon(self) -> None:
        """Close the descriptor without the check."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def token(found: os.stat_result) -> str:
    """The version token of a file: size, times and inode. Where any of them differs, the file is another."""
    return f"{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}-{found.st_ino}"


def require_unchanged(now: os.stat_result, then: os.stat_result, key: str) -> None:
    """Raises SourceChangedError where the tokens of two stats of the object `key` differ."""
    # Numbers: making two texts would cost as much as the fstat.
    if (
        now.st_mtime_ns != then.st_mtime_ns
        or now.st_ctime_ns != then.st_ctime_ns
        or now.st_size != then.st_size
        or now.st_ino != then.st_ino
    ):
        raise changed_error(key, token(then), token(now))


def changed_error(key: str, listed: str, now: str) -> SourceChangedError:
    """The error to raise for the object `key`, which had the token `listed` and has the token `now`."""
    return SourceChangedError(
        "the file changed since it was listed",
        where=key,
        why=_difference(listed, now),
    )


def source_error(error: OSError, key: str) -> PenstockError:
    """The error to raise for the object `key`, of which the operating system raised `error`.

    | error                  | becomes            |
    |------------------------|--------------------|
    | CHANGED                | SourceChangedError |
    | REFUSED                | ObjectError        |
    | ENOMEM                 | FailedError        |
    | EXHAUSTED, any other   | TransientError     |
    """
    why = error.strerror or str(error)
    if error.errno in CHANGED:
        return SourceChangedError("the file is no longer there as it was listed", where=key, why=why)
    if error.errno in REFUSED:
        return ObjectError("the file cannot be read", where=key, why=why)
    if error.errno == errno.ENOMEM:
        return FailedError(
            "this machine's limits are reached",
            where=key,
            why=why,
            hint="raise `ulimit -n`, or give the element fewer CPUs (`cluster.cpus`)",
        )
    if error.errno in EXHAUSTED:
        return TransientError("too many files are open", where=key, why=why, hint="see `ulimit -n`")
    return TransientError("reading the file failed", where=key, why=why)


def _difference(listed: str, found: str) -> str:
    """In words, how two tokens differ; "" where one is no token of a file."""
    before, now = (_TOKEN.fullmatch(text) for text in (listed, found))
    if before is None or now is None:
        return ""
    if before[1] != now[1]:
        return f"{int(before[1]):,} bytes then, {int(now[1]):,} now"
    if before[2] != now[2]:
        then, written = (timestamps.local(int(match[2]) / timestamps.SECOND) for match in (before, now))
        return f"written {then} then, {written} now" if then != written else "written again within a second"
    return "its size and time are the same, and it was replaced or its attributes were set"
