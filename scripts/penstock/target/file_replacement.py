"""Replaces damaged files of a published release. Readers see either the old file or the whole new file.

Folders of a release have no write bit. While files in a folder are replaced, the folder's owner has the write
bit. A killed repair may leave this bit and temporary files; the next repair in the folder removes both.
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
from penstock.core.layout import TEMPORARY
from penstock.fs.safe_open import open_beneath, open_dir, printable, read_at, storage_error
from penstock.host.pacing import FolderBudget, unlimited
from penstock.target.access import look, put_right, right

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.config.access_rules import AccessRules

_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_AT_ONCE = 128  # number of folders that a `Mender` keeps open, at most
_BLOCK = 1 << 20  # number of bytes that this process copies at a time
_OF_A_FILE = 4  # metadata operations for a file: setting its mode and times, and two renames
_OF_A_FOLDER = 2  # metadata operations for a folder: setting its owner's write bit, and removing it
_REMOVE_IT = "nothing is deleted that penstock did not write: move it away, audit and repair again"


@dataclass
class _Folder:
    fd: int
    users: int = 0


class Mender:
    """Replaces files below `data`. Thread-safe for different paths, which are relative to `data`.

    Files and folders get the published mode, group and ACL, and if this account may set it, the owner. A
    group or owner of None is left as it is. Only `close` gives all folders their published mode again. A
    missing `data` is made again. The constructor raises OSError if `data` is no folder.
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
            # Enter the folder, so that `close` gives it the published mode.
            self._enter("")

    def check(self, path: str) -> None:
        """Enter the folder of `path`, to find out before any fetch whether `replace` can work.

        Raises ObjectError if `path` is a folder, or a folder above it is a link or file. Also raises storage
        errors.
        """
        parent, _, name = path.rpartition("/")
        with _telling("cannot repair", path), self.within(parent) as folder:
            _refuse_folder(folder, name)

    def replace(self, path: str, mtime_ns: int, new: Path) -> None:
        """Move the file `new` to `path`. `new` must be on the same file system, and its bytes must be
        durable.

        On an error, `path` is unchanged. Raises the errors of `check`.
        """
        self._before(path, _OF_A_FILE)
        parent, _, name = path.rpartition("/")
        temporary = f".p.{secrets.token_hex(8)}"
        with _telling("cannot repair", path), self.within(parent) as folder:
            _refuse_folder(folder, name)
            self._dress(path, mtime_ns, new)
            # Not every file system renames atomically between folders. So there are two renames, and readers
            # see only the second.
            os.rename(new, temporary, dst_dir_fd=folder)
            _name(folder, temporary, name)

    def dress(self, path: str, mtime_ns: int, new: Path) -> None:
        """Durably give the file `new` the mode, group, owner and ACL published for `path`, and the time."""
        self._spend(2)
        with _telling("cannot repair", path):
            self._dress(path, mtime_ns, new)

    def link_or_copy(self, path: str, mtime_ns: int, new: Path) -> None:
        """Durably make a hard link at `path` to the file `new`, which `dress` has prepared.

        If `path` needs another mode, group, owner, ACL or time, or no link can be made, it becomes a copy. On
        an error, `path` is unchanged. Raises the errors of `check`.
        """
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
        """Return whether a file already has the access and time of `path`, so that both can be one inode."""
        status, wanted = os.fstat(fd), self._rules.file(path, self._file_mode)
        owner = self._uid is None or os.geteuid() != 0 or status.st_uid == self._uid
        return owner and status.st_mtime_ns == mtime_ns and right(look(fd, wanted), wanted, self._gid)

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
        """Give `path` its published mode, group, owner and ACL again ("." is `data`). Raises ObjectError if
        this account may not."""
        self._spend(1)
        try:
            fd = os.open(".", _PATH, dir_fd=self._root) if path == "." else self._any(path)
            try:
                # The descriptor needs no read access, so even unreadable files can be corrected.
                self._set(f"/proc/self/fd/{fd}", fd, path)
            finally:
                os.close(fd)
        except OSError as error:
            raise _file_error(error, "cannot set mode or owner", path) from None

    def sweep(self, path: str) -> bool:
        """If `path` is a temporary name, remove this file of a killed repair. Otherwise return False."""
        self._before(path, 1)
        parent, _, name = path.rpartition("/")
        if parent == ".." or not TEMPORARY.fullmatch(name):
            return False
        with _telling("cannot remove", path), self.within(parent):
            return True

    def make(self, path: str) -> bool:
        """Make a folder and the folders above it, durable after `close`. Returns False if it exists."""
        self._before(f"{path}/", 1)
        existing = self.holds(path)
        with _telling("cannot make the folder", path), self.within(path):
            return not existing

    def holds(self, path: str) -> bool:
        """Return whether any file or folder has this name. `../name` is a name beside `data`."""
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
        """Yield a folder's descriptor. Meanwhile the folder's owner may write in it.

        Entering a folder first removes temporary files of a killed repair. A missing folder is made again.
        """
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
        """Give every opened folder its published mode again, even if that fails for some of them."""
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
        """Enter the parent of a missing folder, and make the folder."""
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
        # As in audits, a file of this account has the right owner, even if root gave the dataset to another.
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
        """As root, give a file its published owner. Other accounts own the files that they make."""
        if self._uid is not None and os.geteuid() == 0 and os.fstat(fd).st_uid != self._uid:
            os.fchown(fd, self._uid, -1)

    def _writable(self, fd: int) -> None:
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        if mode & 0o300 != 0o300:
            os.fchmod(fd, mode | 0o300)


def _made_again(data: Path) -> int:
    """Make a release's folder `data` again. Meanwhile the release's folder has the owner's write bit."""
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
    """Durably rename a whole file to its final name, or remove it on an error."""
    try:
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def _linked(new: Path, folder: int, temporary: str) -> bool:
    """Link a file into the folder. Returns False if that fails, or makes a symbolic link (BeeGFS)."""
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
    """Open the file at `path` below `data`, without following links, and yield its descriptor to read it.
    Yields None if there is no regular file."""
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
    """Copy these bytes from `old` to `new`. Returns False if `old` cannot be read or is too short.

    The file system shares the blocks or copies them, if it can. Otherwise this process copies them. For a
    hole of `old` it writes nothing, so a new file has a hole too. Raises OSError if `new` cannot be written.
    """
    end = offset + length
    if os.fstat(old).st_size < end:
        return False
    while offset < end:
        try:
            start = os.lseek(old, offset, os.SEEK_DATA)
            stop = min(end, os.lseek(old, start, os.SEEK_HOLE))
        except OSError as error:
            if error.errno == errno.ENXIO:
                # A hole up to the file's end.
                return True
            start = stop = offset
        if stop <= start < end:
            # The file system does not report holes, so copy all bytes up to the end.
            stop = end
        if start < stop and not _copy(old, new, start, stop - start):
            return False
        offset = max(start, stop)
    return True


def _copy(old: int, new: int, offset: int, length: int) -> bool:
    done = 0
    # An error means that the call is not supported, or that reading fails. The loop below shows which is the
    # case.
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
    while view:
        done = os.pwrite(fd, view, offset)
        offset, view = offset + done, view[done:]


def _refuse_folder(parent: int, name: str) -> None:
    """Raise IsADirectoryError if the path is a folder, before anything is fetched."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)


@contextlib.contextmanager
def _telling(what: str, path: str) -> Iterator[None]:
    """Turn an OSError into a penstock error."""
    try:
        yield
    except IsADirectoryError:
        raise ObjectError(
            "a folder stands in a file's place", where=printable(path), hint=_REMOVE_IT
        ) from None
    except OSError as error:
        raise _file_error(error, what, path) from None


def _file_error(error: OSError, what: str, path: str) -> Exception:
    """Return a penstock error. It concerns this path alone if a link or file is in a folder's place."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EXDEV):
        return ObjectError(
            "a link or a file stands in a folder's place", where=printable(path), hint=_REMOVE_IT
        )
    return storage_error(error, what, path)
