"""Reads ranges of the files of a POSIX source, by descriptors below one root folder.

Recently used folders stay open, so that a file costs only the calls open, fstat, read, fstat and close. When
it is opened, and after its whole range was read, a file must be regular and have the listed size, times and
inode. The zeros of holes are not read, and data is never mistaken for a hole (`SparseBody`).
"""

from __future__ import annotations

import errno
import os
import re
import stat
from functools import cache
from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.errors import (
    FailedError,
    ObjectError,
    PenstockError,
    SourceChangedError,
    TransientError,
    longer,
)
from penstock.fs.capabilities import traits_of_device
from penstock.fs.safe_open import EXHAUSTED, OPEN_FOLDER, folders_kept, read_at
from penstock.sources.port import Reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.core.model import Entry, SourceChecksum


# errors of a file that was removed or replaced since the listing
CHANGED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
# errors that another attempt would repeat
REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EINVAL, errno.EISDIR})
_TOKEN = re.compile(r"(\d+)-(-?\d+)-(-?\d+)-(\d+)")


class PosixBody:
    """A `port.Body` of the bytes `[offset, offset + length)` of a file. It owns `fd` until `close` or
    `abandon`. `status` is the file's stat from when it was opened, and was the listed file."""

    __slots__ = ("_at", "_fd", "_key", "_left", "_status")

    checksums: Sequence[SourceChecksum] = ()  # a file system states no checksums

    def __init__(self, fd: int, key: str, status: os.stat_result, offset: int, length: int) -> None:
        self._fd, self._key, self._status, self._at, self._left = fd, key, status, offset, length

    def readinto(self, buffer: memoryview) -> int:
        """Fill `buffer` or its beginning; return 0 only at the end of the range. Raises SourceChangedError
        for a file that ends early, and the errors of `source_error`."""
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

    def require_listed(self) -> None:
        """Raise SourceChangedError if the file is no longer the listed one. If nothing is raised, all bytes
        read so far are the listed file's. Also raises the errors of `source_error`."""
        try:
            require_unchanged(os.fstat(self._fd), self._status, self._key)
        except OSError as error:
            raise source_error(error, self._key) from None

    def close(self) -> None:
        """Close the descriptor, and check the file if the whole range was read.

        Raises SourceChangedError for a file that changed since open. Raises ObjectError if the file has bytes
        after its stated size, since some mounts state sizes that are too small.
        """
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
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def token(status: os.stat_result) -> str:
    """Return a file's version token: size, times and inode."""
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}-{status.st_ino}"


def require_unchanged(now: os.stat_result, then: os.stat_result, key: str) -> None:
    """Raise SourceChangedError if two stats of the object `key` differ in their tokens."""
    # Numbers, since making two texts would cost as much as the fstat.
    if (
        now.st_mtime_ns != then.st_mtime_ns
        or now.st_ctime_ns != then.st_ctime_ns
        or now.st_size != then.st_size
        or now.st_ino != then.st_ino
    ):
        raise changed_error(key, token(then), token(now))


def changed_error(key: str, listed: str, now: str) -> SourceChangedError:
    what = "the file changed since it was listed"
    return SourceChangedError(what, where=key, why=_difference(listed, now))


def source_error(error: OSError, key: str) -> PenstockError:
    """Map the operating system's `error` for the object `key`:

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


def _difference(listed: str, latest: str) -> str:
    """Describe how two tokens differ. Return "" if one of them is no file's token."""
    before, now = (_TOKEN.fullmatch(text) for text in (listed, latest))
    if before is None or now is None:
        return ""
    if before[1] != now[1]:
        return f"{int(before[1]):,} bytes then, {int(now[1]):,} now"
    if before[2] != now[2]:
        then, written = (human.local(int(match[2]) / human.SECOND) for match in (before, now))
        return f"written {then} then, {written} now" if then != written else "written again within a second"
    return "its size and time are the same, and it was replaced or its attributes were set"


# errors of a file system that does not report holes; the whole file then counts as data
NOT_TOLD = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY})

# number of runs of data that are counted, at most (1 µs for each on a local disk). For a file with more runs,
# its size counts.
EXTENTS = 1 << 16


class SparseBody(PosixBody):
    """One range of a file with holes. No read crosses the border between data and a hole."""

    __slots__ = ("_in_gap", "_until", "certain")

    def __init__(self, fd: int, key: str, status: os.stat_result, offset: int, length: int) -> None:
        super().__init__(fd, key, status, offset, length)
        # whether holes certainly read as zeros; if False, the caller reads holes and checks them
        self.certain = _holes_told(status.st_dev)
        self._until, self._in_gap = offset, False

    def gap(self) -> int:
        """Return the size of the hole that begins at the present offset, within the range; 0 in data and at
        the end. Raises the errors of `source_error`."""
        if self._at >= self._until and self._left:
            self._look()
        return self._until - self._at if self._in_gap else 0

    def skip(self, count: int) -> None:
        """Skip `count` bytes without reading them, at most as many as `gap` returned last."""
        self._at += count
        self._left -= count

    def readinto(self, buffer: memoryview) -> int:
        self.gap()
        return super().readinto(buffer[: self._until - self._at])

    def _look(self) -> None:
        """Find the run of data or the hole that begins at the present offset. A file that has become shorter
        seems to end in a hole; `close` detects that change."""
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
    """Count a file's bytes outside holes; the result is at least the size of its blocks. Return the file's
    size if holes are not reported, or data has more than EXTENTS runs. Raises OSError."""
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


ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK, since opening must not wait if a FIFO has taken the file's name
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
FOLDERS_KEPT = 128  # descriptors of folders that a reader keeps open, at most
LARGE = 4 << 20  # bytes; for ranges of at least this size, the kernel is advised to read ahead
HOLES = 1 << 20  # bytes; larger files that occupy less than their size are read by `SparseBody`


def tokens(
    sizes: Iterable[int], mtimes_ns: Iterable[int], ctimes_ns: Iterable[int], inodes: Iterable[int]
) -> list[str]:
    return [f"{a}-{b}-{c}-{d}" for a, b, c, d in zip(sizes, mtimes_ns, ctimes_ns, inodes, strict=True)]


def beneath(root: str, path: str) -> str | None:
    """Resolve a link, and return its path relative to the root; None if the link leads out of the root."""
    real_root = os.path.realpath(root)
    real = os.path.realpath(os.path.join(real_root, path))
    if os.path.commonpath((real_root, real)) != real_root or real == real_root:
        return None
    return os.path.relpath(real, real_root)


def _as_listed(fd: int, entry: Entry) -> os.stat_result:
    """Return an open file's stat. Raises SourceChangedError if it is not the listed file's, and OSError."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise SourceChangedError("no longer a regular file", where=entry.key)
    now = token(status)
    if now != entry.token:
        raise changed_error(entry.key, entry.token, now)
    return status


class PosixReader(Reader):
    """Reads files for one thread. Keeps up to FOLDERS_KEPT folders open, and fewer under a low limit of open
    files."""

    def __init__(self, root: str, *, follow: bool = False) -> None:
        self._root, self._follow = root, follow
        self._folders: dict[str, int] = {}
        self._most = min(FOLDERS_KEPT, folders_kept())
        self._parent = ""
        self._parent_fd = -1

    def open(self, entry: Entry, offset: int, length: int) -> PosixBody:
        key = entry.key
        fd = self._open(key)
        try:
            status = _as_listed(fd, entry)
            if length >= LARGE:
                os.posix_fadvise(fd, offset, length, os.POSIX_FADV_SEQUENTIAL)
        except OSError as error:
            os.close(fd)
            raise source_error(error, key) from None
        except BaseException:
            os.close(fd)
            raise
        if status.st_blocks * 512 < status.st_size > HOLES:
            return SparseBody(fd, key, status, offset, length)
        return PosixBody(fd, key, status, offset, length)

    def whole(self, entry: Entry, buffer: memoryview) -> tuple[memoryview, Sequence[SourceChecksum]] | None:
        """See `port.WholeReader`. It takes half the CPU time of `open`, `readinto` and `close`; CPU time
        limits the copy of many small files."""
        fd = self._open(entry.key)
        try:
            status = _as_listed(fd, entry)
            size = read_at(fd, buffer, 0)
            if size != entry.size:
                return None
            require_unchanged(os.fstat(fd), status, entry.key)
        except OSError as error:
            raise source_error(error, entry.key) from None
        finally:
            os.close(fd)
        return buffer[:size], ()

    def stat(self, key: str) -> os.stat_result:
        """Return the stat of this key's file now. Raises as `open`, and SourceChangedError if it is not a
        regular file."""
        fd = self._open(key)
        try:
            status = os.fstat(fd)
        finally:
            os.close(fd)
        if not stat.S_ISREG(status.st_mode):
            raise SourceChangedError("no longer a regular file", where=key)
        return status

    def data_bytes(self, key: str, size: int) -> int:
        fd = self._open(key)
        try:
            status = os.fstat(fd)
            same = stat.S_ISREG(status.st_mode) and status.st_size == size
            return data_bytes(fd, status) if same else size
        except OSError as error:
            raise source_error(error, key) from None
        finally:
            os.close(fd)

    def missing(self, key: str) -> bool:
        """List the folders on the file's path anew. Return whether the file, or one of the folders, is
        missing. Raises as `open`, and TransientError if the root cannot be opened."""
        *folders, last = key.split("/")
        try:
            fd = os.open(self._root, ROOT)
        except OSError as error:
            raise TransientError(
                "the source's folder cannot be opened", where=self._root, why=error.strerror or str(error)
            ) from None
        try:
            for name in folders:
                if name not in os.listdir(fd):
                    return True
                below = os.open(name, OPEN_FOLDER, dir_fd=fd)
                os.close(fd)
                fd = below
            return last not in os.listdir(fd)
        except OSError as error:
            raise source_error(error, key) from None
        finally:
            os.close(fd)

    def _open(self, key: str) -> int:
        parent, _, name = key.rpartition("/")
        try:
            if parent != self._parent or self._parent_fd < 0:
                self._parent_fd = self._folder(parent)
                self._parent = parent
            return os.open(name, FILE, dir_fd=self._parent_fd)
        except OSError as error:
            return self._again(key, error)

    def _again(self, key: str, error: OSError) -> int:
        """Open the file again if `error` means a stale kept folder, too many open files, or a link to follow.
        Raises any other error."""
        path: str | None = key
        if error.errno == errno.ELOOP and self._follow:
            path = beneath(self._root, key)
        elif error.errno != errno.ESTALE and error.errno not in EXHAUSTED:
            raise source_error(error, key) from None
        if path is None:
            raise SourceChangedError("the link leads out of the source's root", where=key)
        try:
            if error.errno != errno.ELOOP:
                self.close()
            parent, _, name = path.rpartition("/")
            return os.open(name, FILE, dir_fd=self._folder(parent))
        except OSError as second:
            raise source_error(second, key) from None

    def _folder(self, path: str) -> int:
        """Return a kept descriptor of a folder, opened name by name from the nearest kept folder above."""
        if path in self._folders:
            return self._kept(path)
        missing: list[str] = []
        while path and path not in self._folders:
            missing.append(path)
            path = path.rpartition("/")[0]
        fd = self._kept(path) if path in self._folders else self._keep("", os.open(self._root, ROOT))
        for path in reversed(missing):
            fd = self._keep(path, os.open(path.rpartition("/")[2], OPEN_FOLDER, dir_fd=fd))
        return fd

    def _kept(self, path: str) -> int:
        fd = self._folders.pop(path)
        self._folders[path] = fd
        return fd

    def _keep(self, path: str, fd: int) -> int:
        """Keep this descriptor. If the limit is exceeded, close the least recently used descriptor."""
        if len(self._folders) >= self._most:
            old = self._folders.pop(next(iter(self._folders)))
            if old == self._parent_fd:
                self._parent_fd = -1
            os.close(old)
        self._folders[path] = fd
        return fd

    def close(self) -> None:
        """Close the kept folders. The reader can be used again."""
        self._parent_fd = -1
        for fd in self._folders.values():
            os.close(fd)
        self._folders.clear()
