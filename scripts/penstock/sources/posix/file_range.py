"""One range of a file of a POSIX source, and the check that the file is still as it was listed."""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING

from penstock.core import timestamps
from penstock.core.errors import FailedError, ObjectError, PenstockError, SourceChangedError, TransientError
from penstock.fs.safe_open import EXHAUSTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.model import Claim

CHANGED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EINVAL, errno.EISDIR})


def token(found: os.stat_result) -> str:
    """The version token of a file: all four together, or it is another file."""
    return f"{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}-{found.st_ino}"


def failure(error: OSError, key: str) -> PenstockError:
    """What an operating system's error means for one object."""
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


def changed(key: str, listed: str, now: str) -> SourceChangedError:
    return SourceChangedError(
        "the file changed since it was listed",
        where=key,
        why=_difference(listed, now),
    )


def _difference(listed: str, found: str) -> str:
    """What a person sees of it, of two tokens (`token`)."""
    before, now = (_TOKEN.fullmatch(text) for text in (listed, found))
    if before is None or now is None:
        return ""
    if before[1] != now[1]:
        return f"{int(before[1]):,} bytes then, {int(now[1]):,} now"
    if before[2] != now[2]:
        then, written = (timestamps.local(int(match[2]) / timestamps.SECOND) for match in (before, now))
        return f"written {then} then, {written} now" if then != written else "written again within a second"
    return "its size and time are the same, and it was replaced or its attributes were set"


_TOKEN = re.compile(r"(\d+)-(-?\d+)-(-?\d+)-(\d+)")


def unchanged(now: os.stat_result, then: os.stat_result, key: str) -> None:
    # The token's parts, compared as numbers: its text costs as much as the call.
    if (
        now.st_mtime_ns != then.st_mtime_ns
        or now.st_ctime_ns != then.st_ctime_ns
        or now.st_size != then.st_size
        or now.st_ino != then.st_ino
    ):
        raise changed(key, token(then), token(now))


class PosixBody:
    """One range of one file."""

    __slots__ = ("_at", "_fd", "_key", "_left", "_status")

    claims: Sequence[Claim] = ()

    def __init__(self, fd: int, key: str, status: os.stat_result, offset: int, length: int) -> None:
        self._fd, self._key, self._status, self._at, self._left = fd, key, status, offset, length

    def readinto(self, buffer: memoryview) -> int:
        left = self._left
        if not left:
            return 0
        if len(buffer) > left:
            buffer = buffer[:left]
        try:
            count = os.preadv(self._fd, (buffer,), self._at)
        except OSError as error:
            raise failure(error, self._key) from None
        if not count:
            raise SourceChangedError("the file is shorter than it was listed", where=self._key)
        self._at += count
        self._left = left - count
        return count

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        try:
            if not self._left:
                unchanged(os.fstat(fd), self._status, self._key)
        except OSError as error:
            raise failure(error, self._key) from None
        finally:
            os.close(fd)

    def abandon(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
