"""The staging folder as one attempt sees it: its folders, its modes, and whether it is still this attempt's.

An attempt is one start of an element (the process that copies one shard). It is overtaken, or fenced, when
another attempt or a later step took its work over. This module makes folders below a staging's `data`,
removes unfinished files, and makes names durable.

Guarantees: no path leaves `data`, and no link is followed. An attempt that was overtaken and still writes
stops at its next check (`alive`, `look`). The modules that write into staging (`staging_writer`,
`part_files`, `links`) share one `StagingFolder`: its open descriptors, and the names that are not durable
yet.
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
from penstock.core.text import in_quotes
from penstock.fs import libc
from penstock.fs.capabilities import facts
from penstock.fs.errno_map import printable, storage_error
from penstock.fs.safe_open import EXHAUSTED, HOLD, Folders, folders_kept
from penstock.target import access
from penstock.target.operation_budget import FolderBudget, unlimited

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.config.access_rules import Access, AccessRules
    from penstock.fs.acl_xattrs import PathOrFd
    from penstock.target.pending_file import Pending

OPEN_FOLDER_OR_LINK = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
PREALLOCATE = 1 << 20
"""Bytes from which blocks are reserved before the first write, where the file system can."""
LOOK_EVERY = 1.0
"""Seconds after which the staging folder is looked at again: one stat, so an attempt that was overtaken
writes that long at most."""
CERTAIN = 1 << 16
"""Folders whose names an attempt remembers as durable: some MiB. Folders that it forgot are synced once
more."""


class StagingFolder:
    """What all ways of writing below `data` share; for one thread. `attempt` names it in messages.

    `durability` is `fsync` or `syncfs`, `keep_mtime` whether files get the source's time; modes, group
    (None: as the folder gives it) and rules are those of the release. Where `preallocate` is False, no blocks
    are reserved. `spend` waits for metadata operations (`budget`).
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
        # While the tree grows, the owner may write in every folder, and the group comes from the setgid
        # bit; the permissions step gives folders their final mode.
        self.dir_mode = (dir_mode & DIR_BITS) | (0o700 if gid is None else 0o2700)
        self.gid = gid
        self.fsync = durability == "fsync"
        self._attempt = attempt
        self.keep_mtime = keep_mtime
        self.naming = 2 if keep_mtime else 1
        """Metadata operations that give a file its name: a rename, and its time before."""
        self.before = FolderBudget(spend, 1, "").before
        try:
            self._root = os.open(data, OPEN_FOLDER_OR_LINK)
        except OSError as error:
            raise storage_error(error, "cannot open the staging folder", str(data)) from None
        self._identity = _identity(self._root, data)
        self._folders = Folders(self._root, folders_kept())
        self._bases: dict[Path, tuple[int, Folders]] = {}
        self.parent: str | None = None
        """The folder that was entered last, and its descriptor."""
        self.parent_fd = -1
        self._by_folder = gid is not None or rules.has_acl
        """Whether what a new file gets depends on its folder: by its setgid bit, or its default ACL."""
        self._certain_modes: set[int] = set()
        """Modes that a new file got with the right group and ACL, in that folder or in all: further files of
        such a mode are not looked at."""
        self.touched: set[str] = set()
        """Folders whose names `settle` makes durable."""
        self._certain: set[str] = set()
        """Folders whose own names, and those of all above them, a `settle` of this attempt makes durable."""
        self.preallocate = preallocate and facts(data).traits.preallocate
        self._looked = time.monotonic()
        self._prefix = ""
        self._count = 0
        self.new_prefix()

    def file_mode(self, path: str) -> int:
        """The mode that a file gets; with an ACL, which it inherits from its folder, the mask is in it."""
        return self._rules.file(path, self._file_mode).mode if self._ruled else self._file_mode

    def access(self, path: str) -> Access:
        """Mode and ACL that a file is to have in the end."""
        return self._rules.file(path, self._file_mode)

    def discard(self, pending: Pending) -> None:
        """Close and remove a file that is not finished; of a giant's part only close the descriptor. Never
        raises OSError."""
        if pending.fd >= 0:
            fd, pending.fd = pending.fd, -1
            with contextlib.suppress(OSError):
                os.close(fd)
        if not pending.part:
            with contextlib.suppress(OSError):
                os.unlink(pending.temporary, dir_fd=self.enter(pending.parent, make=False))

    def alive(self, pending: Pending) -> None:
        """Raises FailedError when this attempt was fenced: its file is gone, a file in parts lost its
        write bit, or the staging folder moved. One fstat; to be called now and then while a large file
        is written."""
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
        """With `fsync`: make the names durable that files got since the last call (on BeeGFS and NFS they are
        already). To be called before a journal records the files. With `syncfs` it does nothing, since the
        barrier does it. Raises by `errno_map.storage_error`."""
        touched, self.touched = self.touched, set()
        for parent in sorted(touched, reverse=True):
            try:
                os.fsync(self.enter(parent, make=False))
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
        self.parent, self.parent_fd = None, -1
        if self._root >= 0:
            fd, self._root = self._root, -1
            os.close(fd)

    def at(self, parent: str, *, make: bool) -> int:
        """As `enter`, without a call where the folder is the one that was entered last."""
        return self.parent_fd if parent == self.parent else self.enter(parent, make=make)

    def enter(self, parent: str, *, make: bool) -> int:
        """The descriptor of a folder below `data`, good until the next call; with `make` the folder is made
        where it is missing. Raises OSError."""
        if make and self.fsync:
            fd = self._make_noting(parent)
        else:
            fd = self._folders.make(parent, self.dir_mode, self.gid) if make else self._folders.get(parent)
        if self._by_folder:
            self._certain_modes.clear()
        self.parent, self.parent_fd = parent, fd
        return fd

    def relieved(self, error: OSError) -> bool:
        """Where `error` says that too many files are open: close the folders that are kept here. Returns
        whether that was done, so that the call may be repeated."""
        if error.errno not in EXHAUSTED or self.parent is None:
            return False
        self.parent, self.parent_fd = None, -1
        self._folders.close()
        for _, folders in self._bases.values():
            folders.close()
        return True

    def _make_noting(self, parent: str) -> int:
        """Make a folder where it is missing. Its name and those of the folders above are noted for `settle`,
        also where another stream or a dead attempt made them, which may not have made them durable."""
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
        """Give a new file of the folder that was entered last its mode, group and ACL, where its creation did
        not: a file system may change modes, keep default ACLs from new files, or give another group. The
        first file of each mode says whether it does; each file is set only where it does. Raises OSError."""
        mode = self.file_mode(path)
        if mode not in self._certain_modes and not self.put_right(fd, path):
            self._certain_modes.add(mode)

    def put_right(self, place: PathOrFd, path: str, also: int = 0) -> bool:
        """Give the file at `place` the mode, group and ACL of `path`, and the mode bits `also`. Returns
        whether it had others. Raises OSError."""
        wanted = self.access(path)
        return access.put_right(place, wanted._replace(mode=wanted.mode | also), self.gid)

    def put_named_right(self, folder: int, name: str, path: str) -> None:
        """`put_right` of the file that has this name in an open folder, durably with `fsync`; no link is
        followed. It may have been put right by an attempt that died before that was durable."""
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
        """Reserve `size` bytes of a new file where that is worth it, and the file system can. Raises
        OSError."""
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
        """Raises FailedError where the staging folder is gone or another one has its name: it is renamed when
        it is published, and nothing may be written into it from then on."""
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
        """The error of an attempt that was overtaken."""
        return FailedError(
            f"attempt {self._attempt} was overtaken and stops",
            where=printable(path),
            why=why,
            hint="another attempt of the same element is at work: nothing is to be done",
        )

    def temporary(self) -> str:
        """A temporary name that no file of this attempt has had."""
        self._count += 1
        return f"{self._prefix}{self._count:08x}"

    def at_once(self, parent: str, size: int, mode: int) -> str:
        """As `temporary`, for a file of `size` bytes that has only to be created with `mode`: its folder was
        entered last, `dress` changes nothing, the size is not worth a reservation, and no `look` is due. Else
        ""."""
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
        """Draw another prefix, after a temporary name was taken already by another attempt."""
        self._prefix, self._count = f".p.{secrets.token_hex(4)}", 0

    def base(self, data: Path) -> tuple[int, Folders]:
        """Another tree that files are linked or moved from: its descriptor, and its folders. Both are open
        until `close`. Raises OSError."""
        known = self._bases.get(data)
        if known is None:
            fd = os.open(data, OPEN_FOLDER_OR_LINK)
            known = self._bases[data] = (fd, Folders(fd, min(64, folders_kept())))
        return known


def _identity(fd: int, path: Path) -> tuple[int, int] | None:
    """What distinguishes this folder from another one of its name; None where inode numbers change from one
    look to the next (FUSE without `use_ino`): there only a folder that is gone can be noticed."""
    held, named = os.fstat(fd), os.stat(path)
    same = (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)
    return (held.st_dev, held.st_ino) if same else None


def split(path: str) -> tuple[str, str]:
    """Folder and name of a path. Raises for absolute paths (`/a` would name the same file as `a`) and for
    paths that end in a slash; other paths that are not normalised fail when their folder is opened."""
    parent, _, name = path.rpartition("/")
    if path[:1] == "/" or not name:
        raise FailedError("not a normalised relative path", where=printable(path), hint=IMPOSSIBLE)
    return parent, name
