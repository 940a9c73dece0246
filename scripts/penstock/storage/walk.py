"""Walking a tree in canonical order, by descriptors, following nothing."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.storage.failures import storage_error
from penstock.storage.looking import failed, row
from penstock.storage.tree import BELOW, FILE, LINK, descend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.storage.looking import Row

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FORMAT, _FILE, _BITS = 0o170000, stat.S_IFREG, 0o7777
# Without the keyword arguments of a named tuple: half its cost.
_new = tuple.__new__


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
    it holds. What it costs in memory and descriptors: `tree.descend`. What vanishes meanwhile is an error.
    A folder that this account may not read is told to `unreadable`, and left out, where it is given.
    Raises by `failures.storage_error`."""
    here = ""
    try:
        root = os.open(data, _FOLDER)
        with contextlib.closing(descend(root)) as met:
            for kind, level, names, row_, error in met:
                prefix = here = level.prefix
                if kind == FILE:
                    *values, errors = level.found(names)
                    for index, (name, one) in enumerate(zip(names, zip(*values, strict=True), strict=True)):
                        if errors and index in errors:
                            here = prefix + name
                            raise failed(errors[index])
                        yield _found(prefix + name, one)
                elif kind == LINK:
                    for name in names:
                        here = prefix + name
                        yield _found(here, row(_lstat(level.fd, name)))
                else:
                    here = prefix + names[0] if kind == BELOW else prefix[:-1]
                    if row_ is not None:
                        yield _found(here, row_)
                    elif kind == BELOW:
                        yield _found(here, row(_lstat(level.fd, names[0])))
                    if error is not None:
                        if unreadable is None or not isinstance(error, PermissionError):
                            raise error
                        unreadable(here, error)
    except OSError as error:
        raise storage_error(error, "cannot walk", str(data / here)) from None


def _lstat(folder: int, name: str) -> os.stat_result:
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def _found(path: str, seen: Row) -> Found:
    mode, size, mtime_ns, ctime_ns, inode, links, uid, gid, _ = seen
    kind = "file" if mode & _FORMAT == _FILE else kind_of(mode)
    return _new(Found, (path, kind, size, mtime_ns, ctime_ns, mode & _BITS, uid, gid, inode, links))
