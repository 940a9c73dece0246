"""Reads ranges of files of a POSIX source, by descriptors below one root.

The descriptors of the folders that were used last stay open, so a file costs open, fstat, read, fstat, close.
A file that is not regular, or has another size, time or inode than the listing says, is refused when it is
opened, and again when its range was read to the end.

`PosixSource.reader` makes one for each thread that reads. It opens and reads, and changes nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from penstock.core.errors import SourceChangedError, TransientError
from penstock.fs.safe_open import EXHAUSTED, OPEN_FOLDER, folders_kept, read_at
from penstock.sources.posix.file_range import (
    PosixBody,
    changed_error,
    require_unchanged,
    source_error,
    token,
)
from penstock.sources.posix.sparse import SparseBody, data_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.core.model import Entry, SourceChecksum

ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: a FIFO that took a file's name meanwhile must not hang the open.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
FOLDERS_KEPT = 128
"""Descriptors of folders that a reader keeps open, at most."""
LARGE = 4 << 20
"""Bytes of a range from which on the kernel is advised to read ahead."""
HOLES = 1 << 20
"""Bytes: larger files that take less room than their size are read by `sparse`."""


def tokens(
    sizes: Iterable[int], mtimes_ns: Iterable[int], ctimes_ns: Iterable[int], inodes: Iterable[int]
) -> list[str]:
    """The tokens of many files, as `token` gives one."""
    return [f"{a}-{b}-{c}-{d}" for a, b, c, d in zip(sizes, mtimes_ns, ctimes_ns, inodes, strict=True)]


def beneath(root: str, path: str) -> str | None:
    """Where a link leads, relative to the root; None when it leads out of it."""
    real_root = os.path.realpath(root)
    real = os.path.realpath(os.path.join(real_root, path))
    if os.path.commonpath((real_root, real)) != real_root or real == real_root:
        return None
    return os.path.relpath(real, real_root)


def _as_listed(fd: int, entry: Entry) -> os.stat_result:
    """The stat of an open file. Raises SourceChangedError where it is not the listed one, OSError."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise SourceChangedError("no longer a regular file", where=entry.key)
    now = token(status)
    if now != entry.token:
        raise changed_error(entry.key, entry.token, now)
    return status


class PosixReader:
    """For one thread. Keeps up to FOLDERS_KEPT descriptors of folders, and fewer where the process may
    not open many files."""

    def __init__(self, root: str, *, follow: bool = False) -> None:
        self._root, self._follow = root, follow
        self._folders: dict[str, int] = {}
        self._most = min(FOLDERS_KEPT, folders_kept())
        self._parent = ""
        self._parent_fd = -1

    def open(self, entry: Entry, offset: int, length: int) -> PosixBody:
        """See `port.Reader`. Raises SourceChangedError, and as `file_range.source_error`."""
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
        """See `port.WholeReader`. Half the CPU time of `open`, `readinto` and `close`, which limits the copy
        of many small files."""
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
        """The stat of the file that has this key now. Raises as `open`, and SourceChangedError where it is
        not a regular file."""
        fd = self._open(key)
        try:
            status = os.fstat(fd)
        finally:
            os.close(fd)
        if not stat.S_ISREG(status.st_mode):
            raise SourceChangedError("no longer a regular file", where=key)
        return status

    def data_bytes(self, key: str, size: int) -> int:
        """See `port.SparseReader`."""
        fd = self._open(key)
        try:
            found = os.fstat(fd)
            same = stat.S_ISREG(found.st_mode) and found.st_size == size
            return data_bytes(fd, found) if same else size
        except OSError as error:
            raise source_error(error, key) from None
        finally:
            os.close(fd)

    def missing(self, key: str) -> bool:
        """Whether the file is gone: a new listing of its folder, or of one above, does not name it. Raises as
        `open`; TransientError when the root itself cannot be opened."""
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
        """Open the file again after `error`, where that may help: a kept folder went stale, the process has
        too many files open, or a link is to be followed. Raises any other error."""
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
        """A kept descriptor of a folder, opened name by name from the nearest one kept."""
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
        """Keep this descriptor; the one that was not used for the longest time is closed where there are too
        many."""
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
