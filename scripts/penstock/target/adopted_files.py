"""Takes a tree that penstock did not write into staging, for `penstock adopt --seal`.

One rename moves the tree's top folder; then each file gets its final access ("is settled"). No file is
deleted: files that do not belong in the release are moved aside, to a folder beside the tree's old place. A
file's mode, group, time and ACL are changed only if six facts hold. The file's inode, size and time are those
of the file that was read. The file has only one name, belongs to this account, and is not open for writing.
If only some of the last three facts do not hold, the file is moved aside, and the release gets a copy
(`own`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import signal
import stat
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.config.access_rules import FILE_BITS, NO_RULES
from penstock.core.errors import FailedError, PreflightError
from penstock.core.layout import ADOPT_TRIAL
from penstock.core.model import nearest_time
from penstock.fs.owners import account
from penstock.fs.safe_open import OPEN_FOLDER, open_beneath, printable, storage_error
from penstock.fs.small_files import fsync_dir
from penstock.host.kernel_facts import mounts
from penstock.host.pacing import unlimited
from penstock.target import access
from penstock.target.dataset_folders import ADOPT_TRIALS, sweep_old
from penstock.target.file_replacement import copy_range
from penstock.target.links import keeps

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.config.access_rules import AccessRules

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_HOLD = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
OPERATIONS = 4  # number of metadata operations for settling a file, at most


def try_move(tree: Path, releases: Path, aside: Path) -> None:
    """Try whether `move_tree` can work, by renaming an empty folder from beside the tree into `releases`.

    Also removes trial folders of this account that killed commands left an hour ago or earlier. Raises
    PreflightError if the rename fails, a mount is inside the tree, or no file could be moved to `aside`.
    """
    _refuse_mounts(tree)
    _refuse_aside(aside)
    sweep_old(tree.parent, ADOPT_TRIALS)
    name = f"{ADOPT_TRIAL}{secrets.token_hex(8)}"
    beside, trial = tree.parent / name, releases / name
    try:
        os.mkdir(beside, 0o700)
        try:
            os.rename(beside, trial)
        except BaseException:
            os.rmdir(beside)
            raise
        os.rmdir(trial)
    except OSError as error:
        raise _immovable(tree, releases, error) from None


def _refuse_mounts(tree: Path) -> None:
    """Raise PreflightError if mounts are in the tree: elsewhere, or after a reboot, their files are
    missing."""
    inside = sorted(mount.point for mount in mounts() if f"{mount.point}/".startswith(f"{tree}/"))
    if inside:
        raise PreflightError(
            "the tree cannot become a release by a rename",
            where=str(tree),
            why=", ".join(f"{printable(point)} is a mount" for point in inside[:5]),
            hint="unmount it, and compare again; or stage the dataset by `penstock run`, which copies it",
        )


def _refuse_aside(aside: Path) -> None:
    why = ""
    try:
        status = os.lstat(aside)
        if not stat.S_ISDIR(status.st_mode):
            why = "something that is no folder stands there"
        elif status.st_uid != os.geteuid():
            why = f"that folder is of {account(status.st_uid)}"
        elif status.st_dev != os.stat(aside.parent).st_dev:
            why = "that folder is on another file system"
    except FileNotFoundError:
        return
    except OSError as error:
        why = error.strerror or str(error)
    if why:
        raise PreflightError(
            "what the release will not hold cannot be moved aside",
            where=str(aside),
            why=why,
            hint="rename what stands there, or give the tree another name",
        )


def _immovable(tree: Path, releases: Path, error: OSError) -> PreflightError:
    why = error.strerror or str(error)
    if error.errno == errno.EXDEV:
        why = f"they are not on one file system, or in two quota trees ({why})"
    elsewhere = "choose a `target.root` on the tree's own file system and quota tree"
    if error.errno in (errno.EACCES, errno.EPERM):
        why = f"{account(os.geteuid())} has to write in {tree.parent} and in {releases} for that ({why})"
        elsewhere = "ask for that permission"
    return PreflightError(
        "the tree cannot become a release by a rename",
        where=str(tree),
        why=f"to {releases}: {why}",
        hint=f"{elsewhere}, or stage the dataset by `penstock run`, which copies it",
    )


def move_tree(tree: Path, data: Path, inode: int) -> None:
    """Durably rename the folder `tree` with this inode to `data`, unless `data` already is this folder.

    Raises PreflightError if the folder cannot be renamed, FailedError if it is in neither place.
    """
    if _inode(data) != inode:
        if _inode(tree) != inode:
            raise FailedError(
                "the tree is neither where it was nor in the staging",
                where=str(tree),
                why=f"no folder of inode {inode} is there or at {data}",
                hint="find out who moved it; nothing else was changed",
            )
        try:
            # Remove the old folder first, as BeeGFS cannot rename a folder over another.
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(data)
            try:
                os.rename(tree, data)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.mkdir(data, 0o700)
                raise
        except OSError as error:
            if error.errno in (errno.EXDEV, errno.EBUSY):
                raise _immovable(tree, data.parent, error) from None
            raise storage_error(error, "cannot rename", str(tree)) from None
    for folder in {tree.parent, data.parent}:
        with contextlib.suppress(FileNotFoundError):
            fsync_dir(folder)


def _inode(path: Path) -> int:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return 0
    return status.st_ino if stat.S_ISDIR(status.st_mode) else 0


class Settled(NamedTuple):
    """The result of settling a file of an adopted tree."""

    why: str  # why the file is not taken over; "" if it is taken over
    mtime_ns: int = 0
    # like `mtime_ns`, a time of the file after settling, in ns since the epoch; 0 if `why` is set
    ctime_ns: int = 0
    certain: bool = False  # whether the file was not touched since it was read
    # whether the file is the one that was read, but does not belong to this account alone, so that
    # `AdoptedFiles.own` may help
    others: bool = False


class AdoptedFiles:
    """Takes over the files of an adopted tree, which `move_tree` made a staging's `data`. Paths are relative
    to `data`."""

    def __init__(
        self,
        data: Path,
        aside: Path,
        *,
        file_mode: int,
        gid: int | None,
        keep_mtime: bool,
        fsync: bool,
        rules: AccessRules = NO_RULES,
        note: Callable[[str, str], None] = lambda _path, _to: None,
        spend: Callable[[int], None] = unlimited,
    ) -> None:
        """`aside` is the folder for files that do not belong in the release. Before each move to it, `note`
        is called with the path and its new place. If `keep_mtime` is set, files get the source's time."""
        self._note = note
        self._mode, self._gid, self._keep_mtime, self._fsync = file_mode & FILE_BITS, gid, keep_mtime, fsync
        self._rules, self._spend, self._aside, self._data = rules, spend, aside, data
        self._uid, self._leases = os.geteuid(), True
        try:
            # If another process opens a file on which this one has a lease, the kernel sends this signal,
            # which would end the process.
            signal.signal(signal.SIGIO, signal.SIG_IGN)
        except ValueError:
            self._leases = False
        try:
            self._root = os.open(data, OPEN_FOLDER)
        except OSError as error:
            raise storage_error(error, "cannot open the staging folder", str(data)) from None

    def settle(
        self, path: str, *, inode: int, size: int, mtime_ns: int, ctime_ns: int, wanted_ns: int
    ) -> Settled:
        """Give a file its final mode, group and ACL, and with `keep_mtime` the time `wanted_ns`.

        It changes only the file that was read with this `inode`, `size` and these times (ns). `Settled.why`
        says why a file was not changed. Thread-safe for different paths.
        """
        self._spend(OPERATIONS)
        try:
            fd, readable = self._open(path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return Settled("it is not there, or a link stands in its place")
            raise storage_error(error, "cannot open", path) from None
        try:
            return self._settled(fd, path, readable, inode, size, mtime_ns, ctime_ns, wanted_ns)
        except OSError as error:
            raise storage_error(error, "cannot set the permissions of", path) from None
        finally:
            os.close(fd)

    def _open(self, path: str) -> tuple[int, bool]:
        try:
            return open_beneath(self._root, path, _READ), True
        except PermissionError:
            return open_beneath(self._root, path, _HOLD), False

    def _settled(
        self,
        fd: int,
        path: str,
        readable: bool,
        inode: int,
        size: int,
        mtime_ns: int,
        ctime_ns: int,
        wanted_ns: int,
    ) -> Settled:
        status = os.fstat(fd)
        set_before = self._keep_mtime and keeps(status.st_mtime_ns, wanted_ns)
        if not stat.S_ISREG(status.st_mode) or (status.st_ino, status.st_size) != (inode, size):
            return Settled("another file stands in its place")
        seen_ns = nearest_time(status.st_mtime_ns)
        if seen_ns != mtime_ns and not set_before:
            return Settled("it was written to since it was read")
        if status.st_nlink != 1:
            return Settled(f"it has {status.st_nlink} names", others=True)
        if status.st_uid != self._uid:
            return Settled(f"it is of the account {status.st_uid}", others=True)
        if readable and self._is_being_written(fd):
            return Settled("it is open for writing", others=True)
        certain = (seen_ns, status.st_ctime_ns) == (mtime_ns, ctime_ns)
        wanted = self._rules.file(path, self._mode)
        held = f"/proc/self/fd/{fd}"
        had = access.look(held, wanted)
        if not access.right(had, wanted, self._gid):
            access.give(held, had, wanted, self._gid)
        if self._keep_mtime and not set_before:
            os.utime(held, ns=(wanted_ns, wanted_ns))
        if self._fsync and readable:
            os.fsync(fd)
        now = os.fstat(fd)
        if now.st_size != size or not (
            now.st_mtime_ns == status.st_mtime_ns or (self._keep_mtime and keeps(now.st_mtime_ns, wanted_ns))
        ):
            return Settled("it was written to while it was taken over")
        return Settled("", nearest_time(now.st_mtime_ns), now.st_ctime_ns, certain)

    def _is_being_written(self, fd: int) -> bool:
        """Return whether a process has the file open for writing, since the kernel then refuses a read lease.

        The answer covers this machine, or all clients if the file system asks them. Returns False if leases
        are unsupported.
        """
        if not self._leases:
            return False
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EBUSY):
                return True
            self._leases = False
        return False

    def own(self, path: str, *, inode: int, size: int) -> int:
        """Move a file aside, and put a copy that only this account owns in its place, durably.

        File and copy share blocks if possible. Returns the copy's inode, or 0 without any change if no file
        of this inode and size can be read. Bytes are not compared here, so the caller must have the copy read
        back.
        """
        parent, _, name = path.rpartition("/")
        temporary = f".p.{secrets.token_hex(8)}"
        with contextlib.ExitStack() as stack:
            try:
                old = open_beneath(self._root, path, _READ)
                stack.callback(os.close, old)
                status = os.fstat(old)
                if not stat.S_ISREG(status.st_mode) or (status.st_ino, status.st_size) != (inode, size):
                    return 0
            except OSError:
                return 0
            try:
                above = open_beneath(self._root, parent, OPEN_FOLDER) if parent else os.dup(self._root)
                stack.callback(os.close, above)
                new = os.open(temporary, _MAKE, 0o600, dir_fd=above)
                stack.callback(os.close, new)
                try:
                    os.ftruncate(new, size)
                    if not copy_range(old, new, 0, size):
                        os.unlink(temporary, dir_fd=above)
                        return 0
                    os.utime(new, ns=(status.st_mtime_ns, status.st_mtime_ns))
                    os.fsync(new)
                    self.set_aside(path)
                except BaseException:
                    os.unlink(temporary, dir_fd=above)
                    raise
                os.rename(temporary, name, src_dir_fd=above, dst_dir_fd=above)
                os.fsync(above)
                return os.fstat(new).st_ino
            except OSError as error:
                raise storage_error(error, "cannot copy", path) from None

    def set_aside(self, path: str) -> str:
        """Durably move `path` out of the release, to the same path below `aside`.

        If that path exists, a number is added. Returns the new place, or "" if `path` is missing.
        """
        parent, _, name = path.rstrip("/").rpartition("/")
        try:
            above = open_beneath(self._root, parent, OPEN_FOLDER) if parent else os.dup(self._root)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return ""
            raise storage_error(error, "cannot open the folder of", path) from None
        try:
            if not _is_there(name, above):
                return ""
            folder = self._aside / parent
            _make_folders(folder)
            aside_fd = os.open(folder, OPEN_FOLDER)
            try:
                free, number = name, 1
                while _is_there(free, aside_fd):
                    free, number = f"{name}.{number}", number + 1
                self._note(path, str(folder / free))
                os.rename(name, free, src_dir_fd=above, dst_dir_fd=aside_fd)
                os.fsync(aside_fd)
                os.fsync(above)
            finally:
                os.close(aside_fd)
        except OSError as error:
            raise storage_error(error, "cannot move aside", path) from None
        finally:
            os.close(above)
        return printable(str(folder / free))

    def close(self) -> None:
        os.close(self._root)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_there(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _make_folders(folder: Path) -> None:
    """Make a folder and missing folders above it, for this account alone. Fails if a link is in the way."""
    missing: list[Path] = []
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = folder.parent
    for new_folder in reversed(missing):
        os.mkdir(new_folder, 0o700)
        fsync_dir(new_folder.parent)
