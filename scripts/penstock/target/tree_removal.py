"""Removes temporary files and trees of a target, and gives the owner's write bit again.

All by descriptors, never through a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from functools import partial
from typing import TYPE_CHECKING

from penstock.core.errors import FailedError
from penstock.core.key_paths import TEMPORARY
from penstock.core.layout import SEAL
from penstock.fs import clock
from penstock.fs.errno_map import printable, storage_error
from penstock.fs.safe_open import HOLD_FOLDER, OPEN_FOLDER, Folders, open_beneath
from penstock.fs.small_files import fsync_dir
from penstock.fs.tree import FILE, Calls, descend
from penstock.host import waits
from penstock.target.operation_budget import unlimited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

AGAIN = (0.2, 1.0, 3.0)  # seconds before each further try to remove a tree in which a folder is not empty yet
TIMED = 8192  # files removed between two reports to `moved`
_STANDING = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY})


def sweep_temporaries(data: Path) -> int:
    """Remove dead attempts' temporary files from a staging's `data`; return how many.

    Durable: after a power cut one could else come back in the published tree, whose names rely on fsync. Call
    when no attempt of copy is known to live; a temporary file that one renames or removes meanwhile is no
    error. A folder that the permissions step closed is opened to its owner meanwhile.
    """
    try:
        return _sweep(data)
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else str(data)
        raise storage_error(error, "cannot remove temporary files", where) from None


def _sweep(data: Path) -> int:
    swept = 0
    with contextlib.closing(descend(os.open(data, OPEN_FOLDER), names_only=True)) as met:
        for kind, level, names, _, error in met:
            if error is not None:
                error.filename = str(data / level.prefix / (names[0] if names else ""))
                raise error
            if kind == FILE:
                swept += remove_temporaries(level.fd, names)
    return swept


def remove_temporaries(folder: int, names: Sequence[str]) -> int:
    """`sweep_temporaries` for these names of an open folder."""
    temporaries = [name for name in names if TEMPORARY.fullmatch(name)]
    if not temporaries:
        return 0
    removed, mode = 0, _open_to_owner(folder)
    try:
        for name in temporaries:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
                removed += 1
        os.fsync(folder)
    finally:
        os.fchmod(folder, mode)
    return removed


def open_folders(data: Path) -> None:
    """Give the owner all permissions in a staging's folders again, to copy after the permissions step."""
    root = _opened_root(data)
    folders = Folders(root, 64)
    try:
        for _ in _depth_first(folders):
            pass
    except OSError as error:
        raise storage_error(error, "cannot open folders for writing", str(data)) from None
    finally:
        folders.close()
        os.close(root)


def remove_empty(data: Path, paths: Iterable[str]) -> None:
    """Remove the empty folders above these paths (relative to `data`), deepest first, durably.

    A folder in which the owner may no longer write stays.
    """
    root = os.open(data, OPEN_FOLDER)
    folders = Folders(root, 64)
    try:
        for parent in sorted({path.rpartition("/")[0] for path in paths}, reverse=True):
            _remove_upward(folders, parent)
    except OSError as error:
        raise storage_error(error, "cannot remove an empty folder", str(data)) from None
    finally:
        folders.close()
        os.close(root)


def _remove_upward(folders: Folders, folder: str) -> None:
    while folder:
        above, _, name = folder.rpartition("/")
        try:
            fd = folders.get(above)
            os.rmdir(name, dir_fd=fd)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EACCES):
                return
            raise
        else:
            os.fsync(fd)
        folder = above


def remove_tree(
    path: Path, spend: Callable[[int], None] = unlimited, *, moved: Callable[[int], None] | None = None
) -> None:
    """Remove a folder and all below it, durably, by descriptors, never through a link. A missing tree is
    fine.

    Folders closed to their owner are opened first. `moved` is called with times of the file system's clock,
    in ns since the epoch, from before the first unlink to after the last.

    On NFS, a file that a process of this node has open stays as .nfsXXXX until it is closed. Its folder is
    retried for some seconds (`AGAIN`), as is a folder in which a late writer makes a file. Raises FailedError
    that names such a file.
    """
    try:
        root = _opened_root(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error(error, "cannot remove", str(path)) from None
    folders = Folders(root, 64)
    try:
        for seconds in AGAIN:
            try:
                _empty(folders, spend, moved)
                os.rmdir(path)
                break
            except OSError as error:
                if error.errno not in _STANDING:
                    raise
                waits.pause(seconds)
        else:
            _empty(folders, spend, moved)
            os.rmdir(path)
        fsync_dir(path.parent)
    except OSError as error:
        if error.errno in _STANDING and (name := _held_open(folders)):
            raise FailedError(
                "cannot remove",
                where=printable(str(path / name)),
                why="a process of this node has the file open; NFS keeps it by this name until it is closed",
                hint="`fuser -v` of the file names the process; the same command goes on once it has ended",
            ) from None
        raise storage_error(error, "cannot remove", error.filename or str(path)) from None
    finally:
        folders.close()
        os.close(root)


def remove_release(
    path: Path, spend: Callable[[int], None] = unlimited, *, moved: Callable[[int], None] | None = None
) -> None:
    """`remove_tree` of a release, its seal first: no seal ever stands beside half a tree."""
    try:
        fd = _opened_root(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error(error, "cannot remove", str(path)) from None
    try:
        spend(1)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SEAL, dir_fd=fd)
            os.fsync(fd)
    except OSError as error:
        raise storage_error(error, "cannot remove", str(path / SEAL)) from None
    finally:
        os.close(fd)
    remove_tree(path, spend, moved=moved)


def _empty(folders: Folders, spend: Callable[[int], None], moved: Callable[[int], None] | None) -> None:
    with Calls() as calls:
        for folder, files, lower in _depth_first(folders):
            fd = folders.get(folder)
            if moved is not None and files:
                moved(clock.touch(fd))
            for at in range(0, len(files), TIMED):
                calls.each(partial(_remove, os.unlink, fd, spend), files[at : at + TIMED])
                if moved is not None:
                    # An unlink moves its folder's times, too.
                    moved(os.fstat(fd).st_ctime_ns)
            calls.each(partial(_remove, os.rmdir, fd, spend), lower)


def _held_open(folders: Folders) -> str:
    """Find a file that NFS renamed, since it was removed while open (fs/nfs/unlink.c); "" for none."""
    with contextlib.suppress(OSError):
        for folder, files, _ in _depth_first(folders):
            for name in files:
                if name.startswith(".nfs"):
                    return f"{folder}/{name}" if folder else name
    return ""


def _open_to_owner(folder: int) -> int:
    """Give the owner all bits; return the mode of before."""
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    if mode & 0o700 != 0o700:
        os.fchmod(folder, mode | 0o700)
    return mode


def _remove(
    call: Callable[..., None], folder: int, spend: Callable[[int], None], names: Sequence[str]
) -> list[str]:
    for name in names:
        spend(1)
        with contextlib.suppress(FileNotFoundError):
            call(name, dir_fd=folder)
    return list(names)


def _opened_root(path: Path) -> int:
    """Open a folder, after giving its owner all bits."""
    try:
        fd = os.open(path, OPEN_FOLDER)
    except PermissionError:
        _give_bits(os.open(path, HOLD_FOLDER))
        fd = os.open(path, OPEN_FOLDER)
    try:
        _open_to_owner(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _opened(folders: Folders, folder: str) -> int:
    """As `_opened_root`, for a folder below."""
    try:
        fd = folders.get(folder)
    except PermissionError:
        _give_bits(open_beneath(folders.root_fd, folder, HOLD_FOLDER))
        fd = folders.get(folder)
    _open_to_owner(fd)
    return fd


def _give_bits(held: int) -> None:
    """Give a folder's owner all bits by a descriptor that needs no read permission, and close it.

    Another account's folder stays as it is: the open that follows reports it by name.
    """
    try:
        with contextlib.suppress(PermissionError):
            os.chmod(f"/proc/self/fd/{held}", stat.S_IMODE(os.fstat(held).st_mode) | 0o700)
    finally:
        os.close(held)


def _depth_first(folders: Folders) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield (folder, other names, folder names), deepest first, giving each folder its owner's bits on the
    way down."""
    stack: list[tuple[str, list[str] | None, list[str]]] = [("", None, [])]
    while stack:
        folder, files, lower = stack.pop()
        if files is not None:
            yield folder, files, lower
            continue
        fd = _opened(folders, folder)
        files, lower = [], []
        with os.scandir(fd) as entries:
            for entry in entries:
                (lower if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
        stack.append((folder, files, lower))
        stack.extend((f"{folder}/{name}" if folder else name, None, []) for name in lower)
