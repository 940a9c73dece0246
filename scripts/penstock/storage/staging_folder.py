"""The staging folder as one attempt sees it: its folders, its modes, and whether it is still ours.

Guarantees. No path leaves `data`, no link is followed. An attempt that was given up and writes on
stops as soon as it looks (`alive`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from typing import TYPE_CHECKING, Self

from penstock.errors import FailedError
from penstock.filesystem import libc
from penstock.filesystem.capabilities import facts
from penstock.filesystem.errno_map import printable, storage_error
from penstock.filesystem.safe_open import EXHAUSTED, Folders, folders_kept

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.storage.pending_file import Pending

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
PREALLOCATE = 1 << 20
"""Bytes from which blocks are reserved before the first write, where the file system can."""
LOOK_EVERY = 1.0
"""Seconds after which the staging folder is looked at again."""
CERTAIN = 1 << 16
"""Folders that an attempt remembers to have made durable: some MiB. Forgotten ones are synced once more."""


class Place:
    """What all ways of writing below `data` share; for one thread. `attempt` names it in messages."""

    def __init__(
        self,
        data: Path,
        *,
        file_mode: int,
        dir_mode: int,
        gid: int | None,
        durability: str,
        attempt: str,
        keep_mtime: bool,
    ) -> None:
        if durability not in ("fsync", "syncfs"):
            raise ValueError(f"durability {durability!r}")
        self._data = data
        self._file_mode = file_mode & 0o775
        # While the tree grows, the owner may write in every folder, and the group comes from the setgid
        # bit; the permissions step gives folders their final mode.
        self._dir_mode = (dir_mode & 0o2775) | (0o700 if gid is None else 0o2700)
        self._gid = gid
        self._fsync = durability == "fsync"
        self._attempt = attempt
        self._keep_mtime = keep_mtime
        try:
            self._root = os.open(data, FOLDER)
        except OSError as error:
            raise storage_error(error, "cannot open the staging folder", str(data)) from None
        self._identity = _identity(self._root, data)
        self._folders = Folders(self._root, folders_kept())
        self._bases: dict[Path, tuple[int, Folders]] = {}
        """Published releases that were linked from."""
        self._parent: str | None = None
        self._parent_fd = -1
        self._chown = False
        self._touched: set[str] = set()
        """Folders whose names `settle` makes durable."""
        self._certain: set[str] = set()
        """Folders whose own names, and those of all above them, a `settle` of this attempt makes durable."""
        self._preallocate = facts(data).traits.preallocate
        self._looked = time.monotonic()
        self._prefix = ""
        self._count = 0
        self._new_prefix()

    def discard(self, pending: Pending) -> None:
        """Forget a file that is not finished; of a giant's part only the descriptor. Never raises OSError."""
        if pending.fd >= 0:
            fd, pending.fd = pending.fd, -1
            with contextlib.suppress(OSError):
                os.close(fd)
        if not pending.part:
            with contextlib.suppress(OSError):
                os.unlink(pending.temporary, dir_fd=self._enter(pending.parent, make=False))

    def alive(self, pending: Pending) -> None:
        """Raises FailedError when this attempt was fenced: its file is gone, a giant's file lost its
        write bit, or the staging folder moved. One fstat; to be called now and then while a large file
        is written."""
        try:
            seen = os.fstat(pending.fd)
        except OSError as error:
            raise storage_error(error, "cannot look at", pending.path) from None
        if seen.st_nlink == 0:
            raise self._fenced(pending.path, "its file was removed")
        if pending.part and not seen.st_mode & stat.S_IWUSR:
            raise self._fenced(pending.path, "its file was sealed by the permissions step")
        if time.monotonic() - self._looked > LOOK_EVERY:
            self._look()

    def settle(self) -> None:
        """Under `fsync`: make the names durable that were given since the last call (BeeGFS and NFS have
        them already). To be called before a journal says that files are done. Under `syncfs`: nothing,
        the barrier does it. Raises by `errno_map.storage_error`."""
        touched, self._touched = self._touched, set()
        for parent in sorted(touched, reverse=True):
            try:
                os.fsync(self._enter(parent, make=False))
            except OSError as error:
                self._certain.clear()
                raise storage_error(error, "cannot make the names durable of folder", parent or ".") from None

    def close(self) -> None:
        """Close the descriptors; pendings must be finished or discarded before."""
        self._folders.close()
        for fd, folders in self._bases.values():
            folders.close()
            os.close(fd)
        self._bases.clear()
        self._parent, self._parent_fd = None, -1
        if self._root >= 0:
            fd, self._root = self._root, -1
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _enter(self, parent: str, *, make: bool) -> int:
        if make and self._fsync:
            fd = self._make_noting(parent)
        else:
            fd = self._folders.make(parent, self._dir_mode, self._gid) if make else self._folders.get(parent)
        if self._gid is not None:
            seen = os.fstat(fd)
            self._chown = seen.st_gid != self._gid or not seen.st_mode & stat.S_ISGID
        self._parent, self._parent_fd = parent, fd
        return fd

    def _relieved(self, error: OSError) -> bool:
        """Whether a call may be tried again, since the process has too many files open and the folders that
        are kept here were closed."""
        if error.errno not in EXHAUSTED or self._parent is None:
            return False
        self._parent, self._parent_fd = None, -1
        self._folders.close()
        for _, folders in self._bases.values():
            folders.close()
        return True

    def _make_noting(self, parent: str) -> int:
        """Make a folder where it is missing. Its own name and those above it need `settle` too, also where
        another stream or a dead attempt made it: nobody knows whether that one came to make it durable."""
        fd = self._folders.make(parent, self._dir_mode, self._gid)
        if parent not in self._certain:
            if len(self._certain) >= CERTAIN:
                self._certain.clear()
            above = parent
            while above and above not in self._certain:
                self._certain.add(above)
                above = above.rpartition("/")[0]
                self._touched.add(above)
        return fd

    def _dress(self, fd: int, size: int) -> None:
        if self._chown and self._gid is not None:
            seen = os.fstat(fd)
            if seen.st_gid != self._gid:
                os.fchown(fd, -1, self._gid)
                os.fchmod(fd, stat.S_IMODE(seen.st_mode))
        if size >= PREALLOCATE and self._preallocate:
            try:
                libc.fallocate(fd, size)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINTR):
                    raise
                self._preallocate = False

    def _look(self) -> None:
        """Staging is renamed when it is published: then nothing may be written there any more."""
        try:
            seen = os.stat(self._data)
        except FileNotFoundError:
            raise self._fenced(str(self._data), "the staging folder is gone") from None
        except OSError as error:
            raise storage_error(error, "cannot look at the staging folder", str(self._data)) from None
        if self._identity not in (None, (seen.st_dev, seen.st_ino)):
            raise self._fenced(str(self._data), "the staging folder is another one")
        self._looked = time.monotonic()

    def _fenced(self, path: str, why: str) -> FailedError:
        return FailedError(f"attempt {self._attempt} was overtaken and stops", where=printable(path), why=why)

    def _new_prefix(self) -> None:
        self._prefix, self._count = f".p.{secrets.token_hex(4)}", 0


def _identity(fd: int, path: Path) -> tuple[int, int] | None:
    """What tells this folder from another one of its name; None where inode numbers change from one look to
    the next (FUSE without `use_ino`): there only a folder that is gone can be noticed."""
    held, named = os.fstat(fd), os.stat(path)
    same = (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)
    return (held.st_dev, held.st_ino) if same else None


def split(path: str) -> tuple[str, str]:
    """Other paths that are not normalised fail at the folder; this one would be another path's twin."""
    parent, _, name = path.rpartition("/")
    if path[:1] == "/" or not name:
        raise FailedError("not a normalised relative path", where=printable(path))
    return parent, name
