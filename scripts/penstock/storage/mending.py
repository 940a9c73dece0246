"""Replacing damaged files of a published release, each whole: a reader sees the old or the new.

Folders of a release carry no write bit: it is given to the owner while files in them are replaced
and taken back by `close`. After a kill, the next audit names such a folder and what was left in it,
and the next repair sets both right.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import threading
from typing import TYPE_CHECKING, Self

from penstock.errors import ObjectError
from penstock.storage.beneath import make_dir, open_beneath, open_dir, set_owner_mode
from penstock.storage.failures import printable, storage_error
from penstock.storage.staging import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Mender:
    """Replaces files below `data`. May be used by several threads at once, for different paths."""

    def __init__(self, data: Path, *, file_mode: int, dir_mode: int, gid: int | None) -> None:
        self._file_mode, self._dir_mode, self._gid = file_mode, dir_mode, gid
        self._root = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._open: dict[str, int] = {}

    def replace(self, path: str, mtime_ns: int | None, fill: Callable[[int, str], None]) -> None:
        """Put a new file at `path`. `fill(fd, temporary)` writes it, and raises to leave all as it
        was; then mode, group, time, fsync and the rename, durable on return.

        Raises what `fill` raises, ObjectError when a folder stands there, storage errors.
        """
        parent, _, name = path.rpartition("/")
        temporary = f".p.{secrets.token_hex(8)}"
        try:
            folder = self._enter(parent)
            fd = os.open(temporary, _NEW, 0o600, dir_fd=folder)
            try:
                fill(fd, f"{parent}/{temporary}" if parent else temporary)
                set_owner_mode(fd, self._file_mode, self._gid)
                if mtime_ns is not None:
                    os.utime(fd, ns=(mtime_ns, mtime_ns))
                os.fsync(fd)
                os.close(fd)
                fd = -1
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)
            except BaseException:
                if fd >= 0:
                    os.close(fd)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
                raise
        except IsADirectoryError:
            raise ObjectError(
                "a folder stands in a file's place",
                where=printable(path),
                hint="nothing is deleted that penstock did not write: move it away and repair again",
            ) from None
        except OSError as error:
            raise storage_error(error, "cannot repair", path) from None

    @contextlib.contextmanager
    def old(self, path: str) -> Iterator[int | None]:
        """The file that is there now, to read its good parts; None when there is none."""
        fd = None
        try:
            with contextlib.suppress(OSError):
                fd = open_beneath(self._root, path, _OLD)
            if fd is not None and not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                fd = None
            yield fd
        finally:
            if fd is not None:
                os.close(fd)

    def set_mode(self, path: str) -> None:
        """Give a file or folder its published mode and group again ("." is `data` itself)."""
        try:
            fd = open_dir(self._root, "") if path == "." else open_beneath(self._root, path, _OLD)
            try:
                folder = stat.S_ISDIR(os.fstat(fd).st_mode)
                set_owner_mode(fd, self._dir_mode if folder else self._file_mode, self._gid)
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise storage_error(error, "cannot set the mode", path) from None

    def sweep(self, path: str) -> bool:
        """Remove what a killed repair left: only files with a temporary name. False for all else."""
        parent, _, name = path.rpartition("/")
        if not TEMPORARY.fullmatch(name):
            return False
        try:
            os.unlink(name, dir_fd=self._enter(parent))
        except OSError as error:
            raise storage_error(error, "cannot remove", path) from None
        return True

    def close(self) -> None:
        """Every folder that was opened has its published mode again."""
        with self._lock:
            for fd in self._open.values():
                with contextlib.suppress(OSError):
                    set_owner_mode(fd, self._dir_mode, self._gid)
                    os.fsync(fd)
                os.close(fd)
            self._open.clear()
            if self._root >= 0:
                os.close(self._root)
                self._root = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _enter(self, parent: str) -> int:
        with self._lock:
            fd = self._open.get(parent)
            if fd is not None:
                return fd
            try:
                fd = open_dir(self._root, parent)
            except FileNotFoundError:
                # A folder that vanished is made again, in one that must be writable first.
                self._above(parent)
                fd = make_dir(self._root, parent, self._dir_mode | stat.S_IWUSR, self._gid)
            self._open[parent] = fd
            self._writable(fd)
            return fd

    def _above(self, parent: str) -> None:
        while parent:
            parent = parent.rpartition("/")[0]
            if parent in self._open:
                return
            with contextlib.suppress(FileNotFoundError):
                self._open[parent] = fd = open_dir(self._root, parent)
                self._writable(fd)
                return

    def _writable(self, fd: int) -> None:
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        if not mode & stat.S_IWUSR:
            os.fchmod(fd, mode | stat.S_IWUSR)
