"""Walking a tree in canonical order, by descriptors, following nothing."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.storage.beneath import Folders
from penstock.storage.failures import storage_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FORMAT, _FILE, _BITS = 0o170000, stat.S_IFREG, 0o7777


class Found(NamedTuple):
    """One thing below `data`, by lstat."""

    path: str
    kind: str
    """`file`, `dir`, `link` or `other`."""
    size: int
    mtime_ns: int
    ctime_ns: int
    mode: int
    """Permission bits with setuid, setgid, sticky."""
    uid: int
    gid: int
    inode: int
    links: int


def kind_of(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "link" if stat.S_ISLNK(mode) else "other"


def walk(data: Path, unreadable: Callable[[str, OSError], None] | None = None) -> Iterator[Found]:
    """Everything below `data`, once, in ascending byte order of the paths, a folder counting as its name
    with "/" after it (so the files alone are in the byte order of their paths), each folder before what
    it holds. Memory: the names of the folders on the way down. What vanishes meanwhile is an error.
    A folder that this account may not read is told to `unreadable`, and left out, where it is given.
    Raises by `failures.storage_error`."""
    try:
        root = os.open(data, _FOLDER)
    except OSError as error:
        raise storage_error(error, "cannot walk", str(data)) from None
    folders = Folders(root, 64)
    here = ""
    try:
        stack = [("", iter(_names(folders.get(""))))]
        while stack:
            folder, names = stack[-1]
            here = folder
            fd = folders.get(folder)
            below = None
            for name, is_dir in names:
                here = path = f"{folder}/{name}" if folder else name
                seen = os.stat(name, dir_fd=fd, follow_symlinks=False)
                found = _found(path, seen)
                yield found
                # The generator slept: another folder's descriptor cannot have taken this one's place,
                # since `folders` is used by this loop alone.
                if is_dir or found.kind == "dir":
                    below = path
                    break
            if below is None:
                stack.pop()
            else:
                try:
                    lower = _names(folders.get(below))
                except PermissionError as error:
                    if unreadable is None:
                        raise
                    unreadable(below, error)
                    lower = []
                stack.append((below, iter(lower)))
    except OSError as error:
        raise storage_error(error, "cannot walk", str(data / here)) from None
    finally:
        folders.close()
        os.close(root)


def _names(fd: int) -> list[tuple[str, bool]]:
    with os.scandir(fd) as entries:
        names = [(e.name, e.is_dir(follow_symlinks=False)) for e in entries]
    if any(is_dir for _, is_dir in names) or not all(name.isascii() for name, _ in names):
        names.sort(key=lambda item: os.fsencode(item[0]) + (b"/" if item[1] else b""))
    else:
        names.sort()
    return names


def _found(path: str, seen: os.stat_result) -> Found:
    mode = seen.st_mode
    return Found(
        path,
        "file" if mode & _FORMAT == _FILE else kind_of(mode),
        seen.st_size,
        seen.st_mtime_ns,
        seen.st_ctime_ns,
        mode & _BITS,
        seen.st_uid,
        seen.st_gid,
        seen.st_ino,
        seen.st_nlink,
    )
