"""Removes temporary files and trees of a target, and gives folders their owner's write bit again.

All functions use descriptors, and never follow a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from functools import partial
from typing import TYPE_CHECKING

from penstock.core.errors import FailedError
from penstock.core.layout import SEAL, TEMPORARY
from penstock.fs import capabilities
from penstock.fs.safe_open import HOLD_FOLDER, OPEN_FOLDER, Folders, open_beneath, printable, storage_error
from penstock.fs.small_files import fsync_dir
from penstock.fs.tree import FILE, Calls, descend
from penstock.host import waits
from penstock.host.pacing import unlimited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

AGAIN = (0.2, 1.0, 3.0)  # seconds before each further try to remove a tree with a folder that is not empty
TIMED = 8192  # number of files removed between two calls of `moved`
_STANDING = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY})


def sweep_temporaries(data: Path) -> int:
    """Remove dead attempts' temporary files from a staging's `data`, durably, and return their number.

    Otherwise a file could come back in the published tree after a power cut. Call it when no attempt of copy
    should be running. If an attempt renames or removes a temporary file meanwhile, that is no error. If a
    folder's owner has no write bit, it is set during the removal.
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
    """Remove the temporary files among these names in an open folder, and return their number."""
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
    """Give the owner all permissions in a staging's folders again, so that files can be copied after the
    permissions step."""
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
    """Durably remove the empty folders above these paths (relative to `data`), the deepest first.

    A folder stays if its owner may not write in the folder above.
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
    """Durably remove a folder and all its content. A missing tree is no error.

    Folders first get all their owner's bits. `moved` is called before, between and after the unlinks, with
    the time of the file system's clock in ns since the epoch.

    On NFS, a file that a process of this node has open stays as .nfsXXXX until it is closed. The removal of
    its folder is tried again for some seconds (`AGAIN`). This also covers a folder in which a late writer
    makes a file. Raises FailedError, which names such a file.
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
    """Remove a release's seal, and then its tree with `remove_tree`, so that no partial tree has a seal."""
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
                moved(capabilities.touch(fd))
            for at in range(0, len(files), TIMED):
                calls.each(partial(_remove, os.unlink, fd, spend), files[at : at + TIMED])
                if moved is not None:
                    # An unlink changes the folder's times too.
                    moved(os.fstat(fd).st_ctime_ns)
            calls.each(partial(_remove, os.rmdir, fd, spend), lower)


def _held_open(folders: Folders) -> str:
    """Return a file that NFS renamed because it was removed while open (fs/nfs/unlink.c), or ""."""
    with contextlib.suppress(OSError):
        for folder, files, _ in _depth_first(folders):
            for name in files:
                if name.startswith(".nfs"):
                    return f"{folder}/{name}" if folder else name
    return ""


def _open_to_owner(folder: int) -> int:
    """Give the owner all bits, and return the previous mode."""
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
    """Open a folder, and give its owner all bits."""
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
    """Do the same as `_opened_root`, for a folder below the root."""
    try:
        fd = folders.get(folder)
    except PermissionError:
        _give_bits(open_beneath(folders.root_fd, folder, HOLD_FOLDER))
        fd = folders.get(folder)
    _open_to_owner(fd)
    return fd


def _give_bits(held: int) -> None:
    """Give a folder's owner all bits through a descriptor that needs no read permission, and close it.

    A folder of another account is not changed, and the caller's next open fails with an error that names it.
    """
    try:
        with contextlib.suppress(PermissionError):
            os.chmod(f"/proc/self/fd/{held}", stat.S_IMODE(os.fstat(held).st_mode) | 0o700)
    finally:
        os.close(held)


def _depth_first(folders: Folders) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield (folder, names of its files, names of its folders), the deepest first. Gives each folder's owner
    all bits on the way down."""
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
