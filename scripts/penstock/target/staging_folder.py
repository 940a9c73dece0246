"""The staging folder, as used by one attempt: a file that is being written in it, and the barrier after which
its files are durable.

An attempt is one start of an element (the process that copies one shard). It is fenced when another attempt
or a later step took over its work. Then it stops at its next check (`alive`, `look`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from typing import TYPE_CHECKING, Self

from penstock.config.access_rules import DIR_BITS, FILE_BITS, NO_RULES
from penstock.core.errors import IMPOSSIBLE, FailedError
from penstock.core.human import in_quotes
from penstock.fs import libc
from penstock.fs.capabilities import facts
from penstock.fs.libc import clear_range
from penstock.fs.safe_open import (
    EXHAUSTED,
    HOLD,
    NO_SPACE,
    Folders,
    folders_kept,
    printable,
    read_at,
    storage_error,
)
from penstock.host.pacing import FolderBudget, unlimited
from penstock.target import access

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.config.access_rules import Access, AccessRules
    from penstock.fs.owners import PathOrFd


class Barrier:
    """A durability barrier for all files written below `data` after this object was made.

    The constructor opens a descriptor, since the kernel reports a failed write-back only to descriptors that
    are open at that time. If syncfs does not reach the servers (BeeGFS, NFS, Lustre), the writer must use
    `fsync` instead. The constructor raises OSError.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._fd = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def wait(self) -> None:
        """Make all bytes that were written before this call durable, with one syncfs.

        Raises NoSpaceError if the target is full, FailedError for any other error. After an error, all bytes
        since the last successful call must be written again. A further sync is not enough: the kernel may
        have dropped the bytes.
        """
        try:
            libc.syncfs(self._fd)
        except OSError as error:
            if error.errno in NO_SPACE:
                raise storage_error(
                    error, "the written data did not reach the disk", str(self._data)
                ) from None
            raise FailedError(
                "the written data did not reach the disk",
                where=str(self._data),
                why=error.strerror or str(error),
                hint="the same command writes it anew",
            ) from None

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_NO_REFLINK = frozenset(
    {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS, errno.EPERM}
)


class Pending:
    """A file, or one part of a large file, that is being written through `fd`, from `position` on.

    `path` is relative to `data`, and consists of the folder `parent` and the file's `name`. `temporary` is
    the current name, or "" for a giant, which has its final name from the start. `size` is the size of the
    whole file. `part` says whether other attempts write the same file; `holes` says whether zeros were
    skipped.
    """

    __slots__ = ("fd", "holes", "name", "parent", "part", "path", "position", "size", "temporary")

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
        self.holes = False

    def write_all(self, view: memoryview) -> None:
        """Write a whole block at `position`, with several calls if writes are short."""
        try:
            while view:
                done = os.pwrite(self.fd, view, self.position)
                self.position += done
                view = view[done:]
        except OSError as error:
            raise storage_error(error, "cannot write", self.path) from None

    def reflink(self, fd: int) -> bool:
        """Share all blocks of another file of this size. Returns False if the file system cannot do it."""
        try:
            libc.reflink(self.fd, fd)
        except OSError as error:
            if error.errno in _NO_REFLINK:
                return False
            raise storage_error(error, "cannot share blocks", self.path) from None
        return True

    def copy(self, fd: int, view: memoryview, alive: Callable[[], None]) -> None:
        """Copy another file of this size through `view`, calling `alive` between blocks. Raises FailedError
        for a short file."""
        try:
            while self.position < self.size:
                read = read_at(fd, view[: self.size - self.position], self.position)
                if not read:
                    raise FailedError(
                        "a file of a release was cut while it was read",
                        where=self.path,
                        hint="see who writes into the release: what is published never changes",
                    )
                self.write_all(view[:read])
                alive()
        except OSError as error:
            raise storage_error(error, "cannot read a file of a release", self.path) from None

    def skip(self, count: int) -> None:
        """Skip `count` zeros, which become a hole if possible. In a giant's file, old bytes are cleared."""
        self.holes = True
        if self.part:
            try:
                clear_range(self.fd, self.position, count)
            except OSError as error:
                raise storage_error(error, "cannot write", self.path) from None
        self.position += count


# No path leads out of `data`, and links are never followed.

OPEN_FOLDER_OR_LINK = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# bytes; for files of at least this size, blocks are reserved before the first write, if possible
PREALLOCATE = 1 << 20
# seconds between checks of the staging folder (one stat each); a fenced attempt stops writing within this
# time
LOOK_EVERY = 1.0
# number of folders that an attempt remembers as durable, at most (some MiB); forgotten folders are synced
# again
CERTAIN = 1 << 16


class StagingFolder:
    """The base class of all writers below `data`, for one thread.

    Modes, `gid` (None: the folder's group) and `rules` are those of the release. `durability` is `fsync` or
    `syncfs`. Messages name the `attempt`. If `keep_mtime` is set, files get the source's time. Blocks are
    reserved only if `preallocate` is set.
    """

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
        rules: AccessRules = NO_RULES,
        preallocate: bool = True,
        spend: Callable[[int], None] = unlimited,
    ) -> None:
        if durability not in ("fsync", "syncfs"):
            raise ValueError(f"durability {in_quotes(durability)}")
        self.data = data
        self._file_mode, self._rules, self._ruled = file_mode & FILE_BITS, rules, bool(rules)
        # Until the permissions step sets the final mode, the owner may write in every folder, and new entries
        # get their group from the setgid bit.
        self.dir_mode = (dir_mode & DIR_BITS) | (0o700 if gid is None else 0o2700)
        self.gid = gid
        self.fsync = durability == "fsync"
        self._attempt = attempt
        self.keep_mtime = keep_mtime
        # metadata operations for a file's final name: the rename, and with `keep_mtime` setting its time
        self.naming = 2 if keep_mtime else 1
        self.before = FolderBudget(spend, 1, "").before
        try:
            self._root = os.open(data, OPEN_FOLDER_OR_LINK)
        except OSError as error:
            raise storage_error(error, "cannot open the staging folder", str(data)) from None
        self._identity = _identity(self._root, data)
        self._folders = Folders(self._root, folders_kept())
        self._bases: dict[Path, tuple[int, Folders]] = {}
        self.parent: str | None = None  # the folder that was entered last
        self.parent_fd = -1  # its descriptor
        # whether a new file's access depends on its folder's setgid bit or default ACL
        self._by_folder = gid is not None or rules.has_acl
        # Modes with which new files got the right group and ACL; further files with these modes are not
        # checked. If `_by_folder` is set, this holds for the last entered folder only.
        self._certain_modes: set[int] = set()
        self.touched: set[str] = set()  # folders with new names, which `settle` makes durable
        # folders whose names, with the names of all folders above, a `settle` of this attempt has made or
        # will make durable
        self._certain: set[str] = set()
        self.preallocate = preallocate and facts(data).traits.preallocate
        self._looked = time.monotonic()
        self._prefix = ""
        self._count = 0
        self.new_prefix()

    def file_mode(self, path: str) -> int:
        """Return a file's mode, including the mask of an inherited ACL."""
        return self._rules.file(path, self._file_mode).mode if self._ruled else self._file_mode

    def access(self, path: str) -> Access:
        """Return a file's final mode and ACL."""
        return self._rules.file(path, self._file_mode)

    def discard(self, pending: Pending) -> None:
        """Close and remove an unfinished file. For a giant's part, only close the descriptor. Never raises
        OSError."""
        if pending.fd >= 0:
            fd, pending.fd = pending.fd, -1
            with contextlib.suppress(OSError):
                os.close(fd)
        if not pending.part:
            with contextlib.suppress(OSError):
                os.unlink(pending.temporary, dir_fd=self.enter(pending.parent, make=False))

    def alive(self, pending: Pending) -> None:
        """Raise FailedError if this attempt is fenced. Call it every now and then while writing a large file.

        The attempt is fenced if its file is gone, a file in parts lost its write bit, or the staging folder
        was moved. A call mostly costs one fstat.
        """
        try:
            status = os.fstat(pending.fd)
        except OSError as error:
            raise storage_error(error, "cannot look at", pending.path) from None
        if status.st_nlink == 0:
            raise self.fenced(pending.path, "its file was removed")
        if pending.part and not status.st_mode & stat.S_IWUSR:
            raise self.fenced(pending.path, "its file was sealed: it has its final mode")
        if self.is_due:
            self.look()

    def settle(self) -> None:
        """With `fsync`, make the names of new files durable (on BeeGFS and NFS they already are).

        Call it before the files get their lines in the journal. With `syncfs`, the barrier makes names
        durable instead.
        """
        touched, self.touched = self.touched, set()
        for parent in sorted(touched, reverse=True):
            try:
                os.fsync(self.enter(parent, make=False))
            except OSError as error:
                self._certain.clear()
                raise storage_error(error, "cannot make the names durable of folder", parent or ".") from None

    def close(self) -> None:
        """Close all descriptors. Finish or discard all pending files before."""
        self._folders.close()
        for fd, folders in self._bases.values():
            folders.close()
            os.close(fd)
        self._bases.clear()
        self.parent, self.parent_fd = None, -1
        if self._root >= 0:
            fd, self._root = self._root, -1
            os.close(fd)

    def at(self, parent: str, *, make: bool) -> int:
        """Do the same as `enter`, but without a system call if the folder was entered last."""
        return self.parent_fd if parent == self.parent else self.enter(parent, make=make)

    def enter(self, parent: str, *, make: bool) -> int:
        """Return the descriptor of a folder below `data`, valid until the next call. If `make` is set, a
        missing folder is made."""
        if make and self.fsync:
            fd = self._make_noting(parent)
        else:
            fd = self._folders.make(parent, self.dir_mode, self.gid) if make else self._folders.get(parent)
        if self._by_folder:
            self._certain_modes.clear()
        self.parent, self.parent_fd = parent, fd
        return fd

    def relieved(self, error: OSError) -> bool:
        """If `error` reports too many open files, close the folders kept open. Returns whether to repeat the
        failed call."""
        if error.errno not in EXHAUSTED or self.parent is None:
            return False
        self.parent, self.parent_fd = None, -1
        self._folders.close()
        for _, folders in self._bases.values():
            folders.close()
        return True

    def _make_noting(self, parent: str) -> int:
        """Make a missing folder, and note its name and the names of all folders above for `settle`.

        Existing folders are noted too: a stream or dead attempt that made them may not have synced them.
        """
        fd = self._folders.make(parent, self.dir_mode, self.gid)
        if parent not in self._certain:
            if len(self._certain) >= CERTAIN:
                self._certain.clear()
            above = parent
            while above and above not in self._certain:
                self._certain.add(above)
                above = above.rpartition("/")[0]
                self.touched.add(above)
        return fd

    def dress(self, fd: int, path: str) -> None:
        """Give a new file in the last entered folder its mode, group and ACL, unless it got them when it was
        made.

        A file system may change modes, ignore default ACLs, or set another group. The first file of each mode
        shows whether the file system does so.
        """
        mode = self.file_mode(path)
        if mode not in self._certain_modes and not self.put_right(fd, path):
            self._certain_modes.add(mode)

    def put_right(self, place: PathOrFd, path: str, also: int = 0) -> bool:
        """Give the file at `place` the access of `path`, with the additional mode bits `also`. Returns
        whether the access differed."""
        wanted = self.access(path)
        return access.put_right(place, wanted._replace(mode=wanted.mode | also), self.gid)

    def put_named_right(self, folder: int, name: str, path: str) -> None:
        """Call `put_right` for a file named `name` in an open folder. Follows no link.

        With `fsync`, make the access durable even if nothing differs: an attempt that set it may have died
        before the fsync.
        """
        held = os.open(name, HOLD, dir_fd=folder)
        try:
            self.put_right(f"/proc/self/fd/{held}", path)
            if self.fsync:
                fd = os.open(f"/proc/self/fd/{held}", os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
        finally:
            os.close(held)

    def reserve(self, fd: int, size: int) -> None:
        """Reserve `size` bytes for a new file, if that is worthwhile and supported."""
        if size >= PREALLOCATE and self.preallocate:
            try:
                libc.fallocate(fd, size)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINTR):
                    raise
                self.preallocate = False

    @property
    def is_due(self) -> bool:
        """Whether the last `look` was more than LOOK_EVERY seconds ago."""
        return time.monotonic() - self._looked > LOOK_EVERY

    def look(self) -> None:
        """Raise FailedError if the staging folder is gone or was replaced.

        Publishing renames it, and from then on nothing may be written into it.
        """
        try:
            status = os.stat(self.data)
        except FileNotFoundError:
            raise self.fenced(str(self.data), "the staging folder is gone") from None
        except OSError as error:
            raise storage_error(error, "cannot look at the staging folder", str(self.data)) from None
        if self._identity not in (None, (status.st_dev, status.st_ino)):
            raise self.fenced(str(self.data), "the staging folder is another one")
        self._looked = time.monotonic()

    def fenced(self, path: str, why: str) -> FailedError:
        """Return the error of a fenced attempt."""
        return FailedError(
            f"attempt {self._attempt} was overtaken and stops",
            where=printable(path),
            why=why,
            hint="another attempt of the same element is at work: nothing is to be done",
        )

    def temporary(self) -> str:
        """Return a new temporary name of this attempt."""
        self._count += 1
        return f"{self._prefix}{self._count:08x}"

    def at_once(self, parent: str, size: int, mode: int) -> str:
        """As `temporary`, but return "" if a new file of `size` bytes needs more calls than its creation.

        It needs more unless the folder was entered last, `dress` would change nothing with this `mode`, no
        blocks are reserved, and no `look` is due.
        """
        if (
            parent != self.parent
            or mode not in self._certain_modes
            or size >= PREALLOCATE
            or time.monotonic() - self._looked > LOOK_EVERY
        ):
            return ""
        self._count += 1
        return f"{self._prefix}{self._count:08x}"

    def new_prefix(self) -> None:
        """Draw another random prefix, as a temporary name of the current prefix already existed."""
        self._prefix, self._count = f".p.{secrets.token_hex(4)}", 0

    def base(self, data: Path) -> tuple[int, Folders]:
        """Open another tree, from which files are linked or moved. Returns its descriptor and folders, which
        stay open until `close`."""
        opened = self._bases.get(data)
        if opened is None:
            fd = os.open(data, OPEN_FOLDER_OR_LINK)
            opened = self._bases[data] = (fd, Folders(fd, min(64, folders_kept())))
        return opened


def _identity(fd: int, path: Path) -> tuple[int, int] | None:
    """Return the device and inode of this folder, or None if inode numbers change from stat to stat.

    On such file systems (FUSE without `use_ino`), `look` can only notice that a folder is missing.
    """
    held, named = os.fstat(fd), os.stat(path)
    same = (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)
    return (held.st_dev, held.st_ino) if same else None


def split(path: str) -> tuple[str, str]:
    """Split a path into folder and name. Raises FailedError if it is absolute or ends in a slash.

    `/a` would lead to the same file as `a`. Other paths that are not normalised fail when they are opened.
    """
    parent, _, name = path.rpartition("/")
    if path[:1] == "/" or not name:
        raise FailedError("not a normalised relative path", where=printable(path), hint=IMPOSSIBLE)
    return parent, name
