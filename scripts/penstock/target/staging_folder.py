"""The staging folder as one attempt sees it: its folders, its modes, whether it is still this attempt's, and
a file that is being written in order, under a temporary or its final name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from typing import TYPE_CHECKING

from penstock.config.access_rules import DIR_BITS, FILE_BITS, NO_RULES
from penstock.core.errors import IMPOSSIBLE, FailedError
from penstock.core.human import in_quotes
from penstock.fs import libc
from penstock.fs.capabilities import facts
from penstock.fs.errno_map import printable, storage_error
from penstock.fs.libc import clear_range
from penstock.fs.safe_open import EXHAUSTED, HOLD, Folders, folders_kept, read_at
from penstock.target import access
from penstock.target.operation_budget import FolderBudget, unlimited

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.config.access_rules import Access, AccessRules
    from penstock.fs.owners import PathOrFd


_NO_REFLINK = frozenset(
    {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS, errno.EPERM}
)


class Pending:
    """A file, or one part of a large file, that is being written: `fd` takes the bytes, from `position`.

    `path` is relative to `data`; `parent` and `name` are its folder and last name. `temporary` is its present
    name, "" for a giant, which has its final name. `size` is the whole file's. `part`: other attempts write
    the same file. `holes`: zeros were skipped.
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
        """Write a block at `position`, also by short writes."""
        try:
            while view:
                done = os.pwrite(self.fd, view, self.position)
                self.position += done
                view = view[done:]
        except OSError as error:
            raise storage_error(error, "cannot write", self.path) from None

    def reflink(self, fd: int) -> bool:
        """Share all blocks of another file of this size; return False where the file system cannot."""
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
        """Leave a hole for `count` zeros where possible. In a giant's file, older bytes there are zeroed."""
        self.holes = True
        if self.part:
            try:
                clear_range(self.fd, self.position, count)
            except OSError as error:
                raise storage_error(error, "cannot write", self.path) from None
        self.position += count


# The staging folder as one attempt sees it: its folders, its modes, and whether it is still this attempt's.
#
# An attempt is one start of an element (the process that copies one shard). It is fenced when another attempt
# or a later step took over its work, and stops at its next check (`alive`, `look`). No path leaves `data`,
# and no link is followed.

OPEN_FOLDER_OR_LINK = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
PREALLOCATE = 1 << 20  # bytes from which blocks are reserved before the first write, where possible
# seconds between checks of the staging folder, by one stat: how long an overtaken attempt writes on
LOOK_EVERY = 1.0
# folders whose names an attempt remembers as durable: some MiB; forgotten ones are synced again
CERTAIN = 1 << 16


class StagingFolder:
    """The shared base of all ways of writing below `data`; for one thread.

    `attempt` names it in messages. `durability` is `fsync` or `syncfs`. `keep_mtime`: files get the source's
    time. Modes, group (None: the folder's) and rules are the release's. `preallocate` False: no blocks are
    reserved.
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
        # While the tree grows, the owner may write in every folder, and the group comes from the setgid bit.
        # The permissions step sets the final mode.
        self.dir_mode = (dir_mode & DIR_BITS) | (0o700 if gid is None else 0o2700)
        self.gid = gid
        self.fsync = durability == "fsync"
        self._attempt = attempt
        self.keep_mtime = keep_mtime
        # metadata operations that name a file: a rename, and its time before
        self.naming = 2 if keep_mtime else 1
        self.before = FolderBudget(spend, 1, "").before
        try:
            self._root = os.open(data, OPEN_FOLDER_OR_LINK)
        except OSError as error:
            raise storage_error(error, "cannot open the staging folder", str(data)) from None
        self._identity = _identity(self._root, data)
        self._folders = Folders(self._root, folders_kept())
        self._bases: dict[Path, tuple[int, Folders]] = {}
        self.parent: str | None = None  # the folder that was entered last, and its descriptor
        self.parent_fd = -1
        # whether a new file's access depends on its folder, by its setgid bit or default ACL
        self._by_folder = gid is not None or rules.has_acl
        # Modes with which new files got the right group and ACL, in that folder or in all: further files of
        # such a mode are not checked.
        self._certain_modes: set[int] = set()
        self.touched: set[str] = set()  # folders whose names `settle` makes durable
        # folders whose names, up to the top, a `settle` of this attempt makes durable
        self._certain: set[str] = set()
        self.preallocate = preallocate and facts(data).traits.preallocate
        self._looked = time.monotonic()
        self._prefix = ""
        self._count = 0
        self.new_prefix()

    def file_mode(self, path: str) -> int:
        """Return a file's mode; it includes the mask of an inherited ACL."""
        return self._rules.file(path, self._file_mode).mode if self._ruled else self._file_mode

    def access(self, path: str) -> Access:
        """Return a file's final mode and ACL."""
        return self._rules.file(path, self._file_mode)

    def discard(self, pending: Pending) -> None:
        """Close and remove an unfinished file; of a giant's part only close the descriptor. Never raises
        OSError."""
        if pending.fd >= 0:
            fd, pending.fd = pending.fd, -1
            with contextlib.suppress(OSError):
                os.close(fd)
        if not pending.part:
            with contextlib.suppress(OSError):
                os.unlink(pending.temporary, dir_fd=self.enter(pending.parent, make=False))

    def alive(self, pending: Pending) -> None:
        """Raise FailedError when this attempt was fenced; call now and then while a large file is written.

        That is: its file is gone, a file in parts lost its write bit, or the staging folder moved. One fstat.
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
        """With `fsync`: make the names of new files durable (on BeeGFS and NFS they are). Call before
        journaling them.

        With `syncfs` the barrier does it.
        """
        touched, self.touched = self.touched, set()
        for parent in sorted(touched, reverse=True):
            try:
                os.fsync(self.enter(parent, make=False))
            except OSError as error:
                self._certain.clear()
                raise storage_error(error, "cannot make the names durable of folder", parent or ".") from None

    def close(self) -> None:
        """Close the descriptors, after all pending files were finished or discarded."""
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
        """As `enter`, without a call for the folder that was entered last."""
        return self.parent_fd if parent == self.parent else self.enter(parent, make=make)

    def enter(self, parent: str, *, make: bool) -> int:
        """Return the descriptor of a folder below `data`, valid until the next call; `make` makes it where
        missing."""
        if make and self.fsync:
            fd = self._make_noting(parent)
        else:
            fd = self._folders.make(parent, self.dir_mode, self.gid) if make else self._folders.get(parent)
        if self._by_folder:
            self._certain_modes.clear()
        self.parent, self.parent_fd = parent, fd
        return fd

    def relieved(self, error: OSError) -> bool:
        """Close the folders kept here if `error` reports too many open files; return whether to repeat the
        call."""
        if error.errno not in EXHAUSTED or self.parent is None:
            return False
        self.parent, self.parent_fd = None, -1
        self._folders.close()
        for _, folders in self._bases.values():
            folders.close()
        return True

    def _make_noting(self, parent: str) -> int:
        """Make a missing folder, and note its name and those above for `settle`.

        Also where another stream or a dead attempt made them, which may not have made them durable.
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
        """Give a new file of the last entered folder its mode, group and ACL, where its creation did not.

        A file system may change modes, not apply default ACLs, or give another group: the first file of each
        mode shows it.
        """
        mode = self.file_mode(path)
        if mode not in self._certain_modes and not self.put_right(fd, path):
            self._certain_modes.add(mode)

    def put_right(self, place: PathOrFd, path: str, also: int = 0) -> bool:
        """Give the file at `place` the access of `path`, with the mode bits `also`; return whether it
        differed."""
        wanted = self.access(path)
        return access.put_right(place, wanted._replace(mode=wanted.mode | also), self.gid)

    def put_named_right(self, folder: int, name: str, path: str) -> None:
        """`put_right` of a file by its name in an open folder, durably with `fsync`; follows no link.

        An attempt that put it right may have died before that was durable.
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
        """Reserve `size` bytes of a new file, where worthwhile and supported."""
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
        """Raise FailedError where the staging folder is gone or replaced.

        Publishing renames it, and nothing may be written into it from then on.
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
        """Make the error of an attempt that was overtaken."""
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
        """As `temporary`, if creating a file of `size` bytes with `mode` is all that is needed; else "".

        So its folder was entered last, `dress` changes nothing, no blocks are reserved, and no `look` is due.
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
        """Draw another prefix, after another attempt had a temporary name already."""
        self._prefix, self._count = f".p.{secrets.token_hex(4)}", 0

    def base(self, data: Path) -> tuple[int, Folders]:
        """Open another tree that files are linked or moved from; return its descriptor and folders, open
        until `close`."""
        opened = self._bases.get(data)
        if opened is None:
            fd = os.open(data, OPEN_FOLDER_OR_LINK)
            opened = self._bases[data] = (fd, Folders(fd, min(64, folders_kept())))
        return opened


def _identity(fd: int, path: Path) -> tuple[int, int] | None:
    """Return what identifies this folder; None where inode numbers change from stat to stat.

    On such file systems (FUSE without `use_ino`) only a missing folder can be noticed.
    """
    held, named = os.fstat(fd), os.stat(path)
    same = (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)
    return (held.st_dev, held.st_ino) if same else None


def split(path: str) -> tuple[str, str]:
    """Split a path into folder and name; raise for absolute paths and for paths that end in a slash.

    `/a` would name the same file as `a`. Other paths that are not normalised fail when opened.
    """
    parent, _, name = path.rpartition("/")
    if path[:1] == "/" or not name:
        raise FailedError("not a normalised relative path", where=printable(path), hint=IMPOSSIBLE)
    return parent, name
