"""Writing into a release's staging: durable files, giants' parts, links, and the barrier.

Guarantees. A file has its final name only with all its bytes, its final mode, group and time; under
`durability="fsync"` its bytes are on the servers' disks before that name exists, under `"syncfs"` once
`Barrier.wait` has returned. An attempt that was given up and writes on can only replace bytes by the
same bytes, and stops as soon as it looks (`alive`). No path leaves `data`, no link is followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import time
from typing import TYPE_CHECKING, Self

from penstock.errors import FailedError
from penstock.storage import libc
from penstock.storage.barrier import Barrier
from penstock.storage.beneath import Folders
from penstock.storage.facts import facts
from penstock.storage.failures import printable, storage_error

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["PREALLOCATE", "TEMPORARY", "Barrier", "Pending", "Writer", "prepare_process"]

TEMPORARY = re.compile(r"\.p\.[0-9a-f]{16}")
"""What the last component of a temporary name looks like; no dataset may use such a name."""
PREALLOCATE = 1 << 20
"""Bytes from which blocks are reserved before the first write, where the file system can."""
_PREALLOCATING = frozenset({"ext4", "xfs"})
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PART = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LOOK_EVERY = 1.0
_UNLINKABLE = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOENT, errno.ENOTDIR}
)


def prepare_process() -> None:
    """Once in each process that writes: modes are given exactly, so no umask may take bits away."""
    os.umask(0)


class Pending:
    """A file, or one part of a giant, that is being written: `fd` takes the bytes."""

    __slots__ = ("fd", "name", "parent", "part", "path", "position", "size", "temporary")

    def __init__(
        self, fd: int, path: str, parent: str, name: str, temporary: str, size: int, part: bool, position: int
    ) -> None:
        self.fd = fd
        self.path = path
        self.parent = parent
        self.name = name
        self.temporary = temporary
        self.size = size
        self.part = part
        self.position = position

    def write_all(self, view: memoryview) -> None:
        """Write a block after the one before (the first at the part's offset), short writes included.
        Raises by `failures.storage_error`."""
        try:
            while view:
                done = os.pwrite(self.fd, view, self.position) if self.part else os.write(self.fd, view)
                self.position += done
                view = view[done:]
        except OSError as error:
            raise storage_error(error, "cannot write", self.path) from None


class _ShortError(Exception):
    """A write took only some of the bytes."""


class Writer:
    """Writes files below `data`; for one thread. `attempt` names this attempt in messages."""

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
            self._root = os.open(data, _FOLDER)
        except OSError as error:
            raise storage_error(error, "cannot open the staging folder", str(data)) from None
        seen = os.fstat(self._root)
        self._identity = (seen.st_dev, seen.st_ino)
        self._folders = Folders(self._root)
        self._bases: dict[Path, tuple[int, Folders]] = {}
        self._parent: str | None = None
        self._parent_fd = -1
        self._chown = False
        self._touched: set[str] = set()
        self._preallocate = facts(data).kind in _PREALLOCATING
        self._looked = time.monotonic()
        self._prefix = ""
        self._count = 0
        self._new_prefix()

    def begin(self, path: str, size: int) -> Pending:
        """A new temporary file in the folder of `path`, with its final mode and group."""
        if time.monotonic() - self._looked > _LOOK_EVERY:
            self._look()
        parent, name = _split(path)
        try:
            folder = self._parent_fd if parent == self._parent else self._enter(parent, make=True)
            self._count += 1
            temporary = f"{self._prefix}{self._count:08x}"
            try:
                fd = os.open(temporary, _NEW, self._file_mode, dir_fd=folder)
            except FileExistsError:
                self._new_prefix()
                return self.begin(path, size)
        except OSError as error:
            raise storage_error(error, "cannot create", path) from None
        pending = Pending(fd, path, parent, name, temporary, size, False, 0)
        if self._chown or (size >= PREALLOCATE and self._preallocate):
            try:
                self._dress(fd, size)
            except BaseException as error:
                self.discard(pending)
                if isinstance(error, OSError):
                    raise storage_error(error, "cannot create", path) from None
                raise
        return pending

    def finish(self, pending: Pending, mtime_ns: int) -> None:
        """Time, durability, close, final name. On an error the temporary file is gone and the final name
        is as before; the file is to be written anew, never synced again."""
        fd = pending.fd
        try:
            if self._keep_mtime:
                os.utime(fd, ns=(mtime_ns, mtime_ns))
            if self._fsync:
                os.fsync(fd)
                self._touched.add(pending.parent)
            pending.fd = -1
            os.close(fd)
            folder = (
                self._parent_fd if pending.parent == self._parent else self._enter(pending.parent, make=False)
            )
            os.rename(pending.temporary, pending.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException as error:
            self.discard(pending)
            if isinstance(error, OSError):
                raise storage_error(error, "cannot complete", pending.path) from None
            raise

    def put(self, path: str, data: memoryview, mtime_ns: int) -> None:
        """`begin`, `write_all` and `finish` of a file whose bytes are all at hand: the hot path of
        small files, without what only a large one needs."""
        if self._chown or len(data) >= PREALLOCATE or time.monotonic() - self._looked > _LOOK_EVERY:
            self._put_slowly(path, data, mtime_ns)
            return
        parent, _, name = path.rpartition("/")
        if parent != self._parent or not name or path[0] == "/":
            self._put_slowly(path, data, mtime_ns)
            return
        folder = self._parent_fd
        self._count += 1
        temporary = f"{self._prefix}{self._count:08x}"
        try:
            fd = os.open(temporary, _NEW, self._file_mode, dir_fd=folder)
        except FileExistsError:
            self._put_slowly(path, data, mtime_ns)
            return
        except OSError as error:
            raise storage_error(error, "cannot create", path) from None
        try:
            if os.write(fd, data) != len(data):
                raise _ShortError
            if self._keep_mtime:
                os.utime(fd, ns=(mtime_ns, mtime_ns))
            if self._fsync:
                os.fsync(fd)
                self._touched.add(parent)
            closing, fd = fd, -1
            os.close(closing)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException as error:
            self.discard(Pending(fd, path, parent, name, temporary, len(data), False, 0))
            if isinstance(error, _ShortError):
                # A disk that is nearly full: the plain way says how it ends.
                self._put_slowly(path, data, mtime_ns)
                return
            if isinstance(error, OSError):
                raise storage_error(error, "cannot complete", path) from None
            raise

    def _put_slowly(self, path: str, data: memoryview, mtime_ns: int) -> None:
        pending = self.begin(path, len(data))
        try:
            pending.write_all(data)
        except BaseException:
            self.discard(pending)
            raise
        self.finish(pending, mtime_ns)

    def discard(self, pending: Pending) -> None:
        """Forget a file that is not finished; of a giant's part only the descriptor. Never raises OSError."""
        if pending.fd >= 0:
            fd, pending.fd = pending.fd, -1
            with contextlib.suppress(OSError):
                os.close(fd)
        if not pending.part:
            with contextlib.suppress(OSError):
                os.unlink(pending.temporary, dir_fd=self._enter(pending.parent, make=False))

    def begin_part(self, path: str, size: int, offset: int, length: int) -> Pending:
        """A giant's file under its final name, `size` long, to be written from `offset`.

        It can be written by its owner until the permissions step ran; other parts may be written at the
        same time, on other nodes. What lies there longer than planned is cut: each part's bytes are written
        or read back anyway. Raises FailedError for what is no file, or another release's too.
        """
        if offset < 0 or length < 0 or offset + length > size:
            raise ValueError(f"part [{offset}, {offset + length}) of {size} bytes")
        self._look()
        parent, name = _split(path)
        fd = -1
        try:
            folder = self._enter(parent, make=True)
            fd = os.open(name, _PART, self._file_mode | 0o600, dir_fd=folder)
            pending = Pending(fd, path, parent, name, "", size, True, offset)
            seen = os.fstat(fd)
            if not stat.S_ISREG(seen.st_mode) or seen.st_nlink > 1:
                raise FailedError(
                    "a giant's place is taken by something else",
                    where=printable(path),
                    why=f"{seen.st_nlink} links" if stat.S_ISREG(seen.st_mode) else "it is no file",
                    hint=f"remove {printable(str(self._data / path))}: the same command goes on",
                )
            self.alive(pending)
            if seen.st_size != size:
                os.ftruncate(fd, size)
            if self._chown:
                self._dress(fd, 0)
        except BaseException as error:
            if fd >= 0:
                os.close(fd)
            if isinstance(error, PermissionError):
                raise self._fenced(path, "the file cannot be written any more") from None
            if isinstance(error, OSError):
                raise storage_error(error, "cannot create", path) from None
            raise
        return pending

    def finish_part(self, pending: Pending, mtime_ns: int | None = None) -> None:
        """Durability (by mode), then the time, close. Every part sets the same time after its own last
        write, so that the last of them leaves it, whichever it is."""
        fd = pending.fd
        try:
            if self._fsync:
                os.fsync(fd)
                self._touched.add(pending.parent)
            if mtime_ns is not None and self._keep_mtime:
                os.utime(fd, ns=(mtime_ns, mtime_ns))
            pending.fd = -1
            os.close(fd)
        except BaseException as error:
            self.discard(pending)
            if isinstance(error, OSError):
                raise storage_error(error, "cannot complete", pending.path) from None
            raise

    def alive(self, pending: Pending) -> None:
        """Raises FailedError when this attempt was fenced: its file is gone, a giant's file lost its
        write bit, or the staging folder moved. One fstat; to be called before each large block."""
        try:
            seen = os.fstat(pending.fd)
        except OSError as error:
            raise storage_error(error, "cannot look at", pending.path) from None
        if seen.st_nlink == 0:
            raise self._fenced(pending.path, "its file was removed")
        if pending.part and not seen.st_mode & stat.S_IWUSR:
            raise self._fenced(pending.path, "its file was sealed by the permissions step")
        if time.monotonic() - self._looked > _LOOK_EVERY:
            self._look()

    def link(self, base_data: Path, path: str, size: int, mtime_ns: int) -> bool:
        """Hard-link an unchanged file of a published release. False: copy it instead.

        Only a regular file with exactly this size, time, mode and group is linked: what another release
        shares must never be changed here. (A link moves the inode's ctime in both.)
        """
        self._look()
        parent, name = _split(path)
        try:
            base = self._base(base_data).get(parent)
            seen = os.stat(name, dir_fd=base, follow_symlinks=False)
            if not self._linkable(seen, size, mtime_ns):
                return False
            folder = self._enter(parent, make=True)
            self._count += 1
            temporary = f"{self._prefix}{self._count:08x}"
            os.link(name, temporary, src_dir_fd=base, dst_dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno in _UNLINKABLE or error.errno == errno.ELOOP:
                return False
            raise storage_error(error, "cannot link", path) from None
        try:
            made = os.stat(temporary, dir_fd=folder, follow_symlinks=False)
            # BeeGFS can be set to make symbolic links instead, silently.
            same = (made.st_dev, made.st_ino) == (seen.st_dev, seen.st_ino)
            if same:
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                if self._fsync:
                    self._touched.add(parent)
            return same
        except OSError as error:
            raise storage_error(error, "cannot link", path) from None
        finally:
            # A rename between two names of one file leaves both.
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)

    def settle(self) -> None:
        """Under `fsync`: make the names durable that were given since the last call (BeeGFS and NFS have
        them already). To be called before a journal says that files are done. Under `syncfs`: nothing,
        the barrier does it. Raises by `failures.storage_error`."""
        touched, self._touched = self._touched, set()
        for parent in sorted(touched, reverse=True):
            try:
                os.fsync(self._enter(parent, make=False))
            except OSError as error:
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

    def _make_noting(self, parent: str) -> int:
        """Make a folder; when it was missing, its own name and its parents' names need `settle` too."""
        try:
            return self._folders.get(parent)
        except FileNotFoundError:
            above = parent
            while above:
                above = above.rpartition("/")[0]
                self._touched.add(above)
            return self._folders.make(parent, self._dir_mode, self._gid)

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

    def _linkable(self, seen: os.stat_result, size: int, mtime_ns: int) -> bool:
        return (
            stat.S_ISREG(seen.st_mode)
            and seen.st_size == size
            and (not self._keep_mtime or seen.st_mtime_ns == mtime_ns)
            and stat.S_IMODE(seen.st_mode) == self._file_mode
            and (self._gid is None or seen.st_gid == self._gid)
        )

    def _base(self, base_data: Path) -> Folders:
        known = self._bases.get(base_data)
        if known is None:
            fd = os.open(base_data, _FOLDER)
            known = self._bases[base_data] = (fd, Folders(fd, 64))
        return known[1]

    def _look(self) -> None:
        """Staging is renamed when it is published: then nothing may be written there any more."""
        try:
            seen = os.stat(self._data)
        except FileNotFoundError:
            raise self._fenced(str(self._data), "the staging folder is gone") from None
        except OSError as error:
            raise storage_error(error, "cannot look at the staging folder", str(self._data)) from None
        if (seen.st_dev, seen.st_ino) != self._identity:
            raise self._fenced(str(self._data), "the staging folder is another one")
        self._looked = time.monotonic()

    def _fenced(self, path: str, why: str) -> FailedError:
        return FailedError(f"attempt {self._attempt} was overtaken and stops", where=printable(path), why=why)

    def _new_prefix(self) -> None:
        self._prefix, self._count = f".p.{secrets.token_hex(4)}", 0


def _split(path: str) -> tuple[str, str]:
    """Other paths that are not normalised fail at the folder; this one would be another path's twin."""
    parent, _, name = path.rpartition("/")
    if path[:1] == "/" or not name:
        raise FailedError("not a normalised relative path", where=printable(path))
    return parent, name
