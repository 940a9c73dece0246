"""Replaces damaged files of a published release, each whole: a reader sees the old or the new.

For `penstock repair` (`keep.repair`), which fetched good bytes into a staging beside the release; repair's
elements and adoption use `copy_range`. Changes files and folders below the release's `data`.

Folders of a release carry no write bit: the owner gets it while files in them are replaced, and loses it when
the last replacement there has ended. A killed repair leaves such folders and temporary files behind; the next
repair that enters the folder removes the files and the write bit.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from penstock.config.access_rules import NO_RULES
from penstock.core.errors import ObjectError
from penstock.core.key_paths import TEMPORARY
from penstock.fs.errno_map import printable, storage_error
from penstock.fs.safe_open import open_beneath, open_dir, read_at
from penstock.target.access import look, put_right, right
from penstock.target.operation_budget import FolderBudget, unlimited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.config.access_rules import AccessRules

_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_AT_ONCE = 128
"""Folders that a mender keeps open."""
_BLOCK = 1 << 20
"""Bytes that are copied through this process at a time."""
_OF_A_FILE = 4
"""Metadata operations that a file costs: its mode, its times, and two renames."""
_OF_A_FOLDER = 2
"""Metadata operations that a folder costs: it is opened to its owner, and closed again."""
_REMOVE_IT = "nothing is deleted that penstock did not write: move it away, audit and repair again"


@dataclass
class _Folder:
    fd: int
    users: int = 0


class Mender:
    """Replaces files below `data`; paths are relative to it. May be used by several threads at once, for
    different paths. To be closed: only then do all folders have their published mode again.

    Files and folders get the published mode, group, ACL and, where this account may give it, owner; a group
    or owner of None is left as it is. Where `data` itself is gone, it is made again. Raises OSError where
    something else stands in its place. `spend` waits for metadata operations (`budget`).
    """

    def __init__(
        self,
        data: Path,
        *,
        file_mode: int,
        dir_mode: int,
        gid: int | None,
        uid: int | None = None,
        rules: AccessRules = NO_RULES,
        spend: Callable[[int], None] = unlimited,
    ) -> None:
        self._spend, self._before = spend, FolderBudget(spend, _OF_A_FOLDER).before
        self._file_mode, self._dir_mode, self._gid, self._uid = file_mode, dir_mode, gid, uid
        self._rules = rules
        self._data = data
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _Folder] = OrderedDict()
        try:
            self._root = os.open(data, _FOLDER)
        except FileNotFoundError:
            self._root = _made_again(data)
            # So that it gets its published mode when this is closed.
            self._enter("")

    def check(self, path: str) -> None:
        """Enter the folder of `path` as `replace` does, to see before anything is fetched whether that can
        work. Raises ObjectError when a folder stands at `path`, or something else in a folder's place;
        penstock's storage errors (`errno_map.storage_error`)."""
        parent, _, name = path.rpartition("/")
        with _telling("cannot repair", path), self.within(parent) as folder:
            _refuse_folder(folder, name)

    def replace(self, path: str, mtime_ns: int, new: Path) -> None:
        """Put the file `new`, which lies on the same file system and whose bytes are durable, at `path`:
        mode, group, time and fsync, a temporary name in the folder of `path`, and the rename there, durable
        on return. On an error `path` is as it was. Raises as `check`."""
        self._before(path, _OF_A_FILE)
        parent, _, name = path.rpartition("/")
        temporary = f".p.{secrets.token_hex(8)}"
        with _telling("cannot repair", path), self.within(parent) as folder:
            _refuse_folder(folder, name)
            self._dress(path, mtime_ns, new)
            # Between folders not every file system renames in one step; readers see only the second one.
            os.rename(new, temporary, dst_dir_fd=folder)
            _name(folder, temporary, name)

    def dress(self, path: str, mtime_ns: int, new: Path) -> None:
        """Give the file `new` the mode, group, owner, ACL and time that it is to have at `path`; durable on
        return. Raises storage errors."""
        self._spend(2)
        with _telling("cannot repair", path):
            self._dress(path, mtime_ns, new)

    def link_or_copy(self, path: str, mtime_ns: int, new: Path) -> None:
        """Put a file at `path` that is a link to the dressed file `new`, or a copy of it where `path` is to
        have another mode, group, owner, ACL or time, or no link can be made; durable on return. On an error
        `path` is as it was. Raises as `check`."""
        self._before(path, _OF_A_FILE)
        parent, _, name = path.rpartition("/")
        temporary = f".p.{secrets.token_hex(8)}"
        with _telling("cannot repair", path), self.within(parent) as folder:
            _refuse_folder(folder, name)
            fd = os.open(new, _OLD)
            try:
                if not (self._alike(fd, path, mtime_ns) and _linked(new, folder, temporary)):
                    self._copy(fd, path, mtime_ns, folder, temporary)
            finally:
                os.close(fd)
            _name(folder, temporary, name)

    def _dress(self, path: str, mtime_ns: int, new: Path) -> None:
        fd = os.open(new, _OLD)
        try:
            self._finish(fd, path, mtime_ns)
        finally:
            os.close(fd)

    def _finish(self, fd: int, path: str, mtime_ns: int) -> None:
        self._own(fd)
        put_right(fd, self._rules.file(path, self._file_mode), self._gid)
        os.utime(fd, ns=(mtime_ns, mtime_ns))
        os.fsync(fd)

    def _alike(self, fd: int, path: str, mtime_ns: int) -> bool:
        """Whether a file has what `path` is to have, so that it can be the same inode."""
        seen, wanted = os.fstat(fd), self._rules.file(path, self._file_mode)
        owner = self._uid is None or os.geteuid() != 0 or seen.st_uid == self._uid
        return owner and seen.st_mtime_ns == mtime_ns and right(look(fd, wanted), wanted, self._gid)

    def _copy(self, fd: int, path: str, mtime_ns: int, folder: int, temporary: str) -> None:
        made = os.open(temporary, _NEW, 0o600, dir_fd=folder)
        try:
            size = os.fstat(fd).st_size
            if not copy_range(fd, made, 0, size):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            os.ftruncate(made, size)
            self._finish(made, path, mtime_ns)
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise
        finally:
            os.close(made)

    def set_mode(self, path: str) -> None:
        """Give a file or folder its published mode, group, owner and ACL again ("." is `data` itself).
        Raises ObjectError when that is not for this account to give."""
        self._spend(1)
        try:
            fd = os.open(".", _PATH, dir_fd=self._root) if path == "." else self._any(path)
            try:
                # A descriptor that only names it: also what may not be read can be set right.
                self._set(f"/proc/self/fd/{fd}", fd, path)
            finally:
                os.close(fd)
        except OSError as error:
            raise _file_error(error, "cannot set mode or owner", path) from None

    def sweep(self, path: str) -> bool:
        """Remove what a killed repair left, where `path` is a temporary name; else change nothing and return
        False."""
        self._before(path, 1)
        parent, _, name = path.rpartition("/")
        if parent == ".." or not TEMPORARY.fullmatch(name):
            return False
        with _telling("cannot remove", path), self.within(parent):
            return True

    def make(self, path: str) -> bool:
        """Make a folder that is not there, and those above it; False where it stands already. Durable, with
        its published mode, once the mender is closed. Raises ObjectError when something else stands there."""
        self._before(f"{path}/", 1)
        there = self.holds(path)
        with _telling("cannot make the folder", path), self.within(path):
            return not there

    def holds(self, path: str) -> bool:
        """Whether anything is there under this name (`../name`: beside `data`)."""
        above, below = path.startswith("../"), path.removeprefix("../")
        try:
            if above:
                os.stat(self._data.parent / below, follow_symlinks=False)
            else:
                os.close(open_beneath(self._root, below, _PATH))
        except OSError as error:
            return error.errno == errno.ELOOP
        return True

    @contextlib.contextmanager
    def within(self, parent: str) -> Iterator[int]:
        """A folder's descriptor; within the context its owner may write in it. At the first entry, temporary
        files that a killed repair left there are removed. A folder that vanished is made again. Raises
        OSError."""
        self._before(f"{parent}/", 0)
        with self._lock:
            folder = self._enter(parent)
            folder.users += 1
        try:
            yield folder.fd
        finally:
            with self._lock:
                folder.users -= 1

    def close(self) -> None:
        """Give every folder that was opened its published mode again. Raises when one could not be closed,
        after the others were."""
        problem: OSError | None = None
        with self._lock:
            while self._open:
                name, folder = self._open.popitem()
                try:
                    self._shut(name, folder)
                except OSError as error:
                    problem = error
            if self._root >= 0:
                fd, self._root = self._root, -1
                os.close(fd)
        if problem is not None:
            raise _file_error(problem, "a folder could not be closed to writing again", "") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _enter(self, parent: str) -> _Folder:
        folder = self._open.get(parent)
        if folder is not None:
            self._open.move_to_end(parent)
            return folder
        for name, idle in list(self._open.items()):
            if len(self._open) < _OPEN_AT_ONCE:
                break
            if not idle.users:
                del self._open[name]
                self._shut(name, idle)
        try:
            fd = open_dir(self._root, parent)
        except FileNotFoundError:
            fd = self._make(parent)
        try:
            self._writable(fd)
            for name in os.listdir(fd):
                if TEMPORARY.fullmatch(name):
                    with contextlib.suppress(IsADirectoryError):
                        os.unlink(name, dir_fd=fd)
        except BaseException:
            os.close(fd)
            raise
        folder = self._open[parent] = _Folder(fd)
        return folder

    def _make(self, path: str) -> int:
        """Make a folder that vanished, in one that is entered first."""
        above, _, name = path.rpartition("/")
        folder = self._enter(above)
        os.mkdir(name, 0o700, dir_fd=folder.fd)
        os.fsync(folder.fd)
        return open_dir(folder.fd, name)

    def _shut(self, path: str, folder: _Folder) -> None:
        try:
            self._own(folder.fd)
            put_right(folder.fd, self._rules.folder(path, self._dir_mode), self._gid)
            os.fsync(folder.fd)
        finally:
            os.close(folder.fd)

    def _any(self, path: str) -> int:
        fd = open_beneath(self._root, path, _PATH)
        if stat.S_ISLNK(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return fd

    def _set(self, name: str, fd: int, path: str) -> None:
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            wanted = self._rules.folder(path, self._dir_mode)
        else:
            wanted = self._rules.file(path, self._file_mode)
        # As audits have it: the owner's own is as published, also where root gave it the dataset since.
        mine = os.geteuid() != 0 and status.st_uid == os.geteuid()
        uid = -1 if mine or self._uid is None or status.st_uid == self._uid else self._uid
        gid = -1 if self._gid is None or status.st_gid == self._gid else self._gid
        if (uid, gid) != (-1, -1):
            try:
                os.chown(name, uid, gid)
            except PermissionError:
                raise ObjectError(
                    "its owner or group is not for this account to give back",
                    where=printable(path),
                    why=f"owner {status.st_uid}, group {status.st_gid}",
                ) from None
        put_right(name, wanted, None)

    def _own(self, fd: int) -> None:
        """Only root gives files away; anybody else is the owner of what they make."""
        if self._uid is not None and os.geteuid() == 0 and os.fstat(fd).st_uid != self._uid:
            os.fchown(fd, self._uid, -1)

    def _writable(self, fd: int) -> None:
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        if mode & 0o300 != 0o300:
            os.fchmod(fd, mode | 0o300)


def _made_again(data: Path) -> int:
    """Make the folder `data` of a release, whose own folder has its owner's write bit meanwhile. Raises
    OSError."""
    release = os.open(data.parent, _FOLDER)
    try:
        mode = stat.S_IMODE(os.fstat(release).st_mode)
        os.fchmod(release, mode | 0o300)
        try:
            os.mkdir(data.name, 0o700, dir_fd=release)
            os.fsync(release)
            return os.open(data.name, _FOLDER, dir_fd=release)
        finally:
            os.fchmod(release, mode)
    finally:
        os.close(release)


def _name(folder: int, temporary: str, name: str) -> None:
    """Give a file that is whole its name, durably; on an error it is removed."""
    try:
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def _linked(new: Path, folder: int, temporary: str) -> bool:
    """Link a file into the folder. False where that is refused, or a symbolic link is made (BeeGFS)."""
    try:
        os.link(new, temporary, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            return False
        raise
    if stat.S_ISREG(os.stat(temporary, dir_fd=folder, follow_symlinks=False).st_mode):
        return True
    os.unlink(temporary, dir_fd=folder)
    return False


@contextlib.contextmanager
def standing(data: Path, path: str) -> Iterator[int | None]:
    """A descriptor of the file at `path` below `data`, to read its good parts, closed at the end; None when
    no regular file there can be read. No link is followed."""
    fd = None
    try:
        with contextlib.suppress(OSError):
            root = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fd = open_beneath(root, path, _OLD)
            finally:
                os.close(root)
        regular = fd is not None and stat.S_ISREG(os.fstat(fd).st_mode)
        yield fd if regular else None
    finally:
        if fd is not None:
            os.close(fd)


def copy_range(old: int, new: int, offset: int, length: int) -> bool:
    """Copy these bytes between two files, by reference where the file system shares blocks, else within
    it (servers may do it among themselves), else through this process; where `old` has a hole, `new` is
    left as it is: a hole too in a file that was just made. False when `old` cannot be read or is too
    short. Nothing is compared. Raises OSError when `new` cannot be written."""
    end = offset + length
    if os.fstat(old).st_size < end:
        return False
    while offset < end:
        try:
            start = os.lseek(old, offset, os.SEEK_DATA)
            stop = min(end, os.lseek(old, start, os.SEEK_HOLE))
        except OSError as error:
            if error.errno == errno.ENXIO:
                # Nothing but a hole up to the file's end.
                return True
            start = stop = offset
        if stop <= start < end:
            # A file system that cannot tell its holes: all of it may be data.
            stop = end
        if start < stop and not _copy(old, new, start, stop - start):
            return False
        offset = max(start, stop)
    return True


def _copy(old: int, new: int, offset: int, length: int) -> bool:
    done = 0
    # Not here, not between these two, or a read error: the plain way tells which.
    with contextlib.suppress(OSError):
        while done < length:
            count = os.copy_file_range(old, new, length - done, offset + done, offset + done)
            if not count:
                break
            done += count
    buffer = memoryview(bytearray(min(_BLOCK, length - done)))
    while done < length:
        try:
            count = read_at(old, buffer[: length - done], offset + done)
        except OSError:
            return False
        if not count:
            return False
        _write_at(new, buffer[:count], offset + done)
        done += count
    return True


def _write_at(fd: int, view: memoryview, offset: int) -> None:
    """All of it. Raises OSError."""
    while view:
        done = os.pwrite(fd, view, offset)
        offset, view = offset + done, view[done:]


def _refuse_folder(parent: int, name: str) -> None:
    """Raises ObjectError for a folder at the path, before anything is fetched."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)


@contextlib.contextmanager
def _telling(what: str, path: str) -> Iterator[None]:
    """Turns an OSError into a penstock error."""
    try:
        yield
    except IsADirectoryError:
        raise ObjectError(
            "a folder stands in a file's place", where=printable(path), hint=_REMOVE_IT
        ) from None
    except OSError as error:
        raise _file_error(error, what, path) from None


def _file_error(error: OSError, what: str, path: str) -> Exception:
    """A link or a file in a folder's place is this path's own trouble."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EXDEV):
        return ObjectError(
            "a link or a file stands in a folder's place", where=printable(path), hint=_REMOVE_IT
        )
    return storage_error(error, what, path)
