"""Walks a tree in canonical order, by descriptors, following no link.

Canonical: in ascending byte order of the paths, a folder counting as its name with "/" after it. For
permissions, the seal, audits and adoption, which compare a tree with rows in the same order (`Cursor`). Reads
folders and lstat; opens no file, changes nothing.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.model import nearest_time
from penstock.fs.dir_stat import failed, row, sliced
from penstock.fs.errno_map import storage_error
from penstock.fs.tree import BELOW, FILE, LINK, OTHER, descend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from penstock.fs.dir_stat import Looked, Row

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FORMAT, _FILE, _BITS = 0o170000, stat.S_IFREG, 0o7777
# Without the keyword arguments of a named tuple: half its cost.
_new = tuple.__new__


class WalkedPath(NamedTuple):
    """One thing below `data`, by lstat."""

    path: str
    kind: str
    """`file`, `dir`, `link` or `other`."""
    size: int
    mtime_ns: int  # as a record can hold it (`nearest_time`)
    ctime_ns: int
    mode: int
    """Permission bits with setuid, setgid, sticky."""
    uid: int
    gid: int
    inode: int
    links: int

    def holds(self, path: str) -> bool:
        """Whether it is a folder above this path."""
        return self.kind == "dir" and path.startswith(f"{self.path}/")


def kind_of(mode: int) -> str:
    """`WalkedPath.kind` of a `st_mode`."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "link" if stat.S_ISLNK(mode) else "other"


class _Neighbours(NamedTuple):
    """Some things of one folder that follow one another, none a folder and none a link, by lstat."""

    paths: list[str]
    looked: Looked


def walk(data: Path) -> Iterator[WalkedPath]:
    """Everything below `data`, once, in ascending byte order of the paths, a folder counting as its name
    with "/" after it (so the files alone are in the byte order of their paths), each folder before what
    it holds. What it costs in memory and descriptors: `tree.descend`. What vanishes meanwhile is an error,
    as is a folder that this account may not read. Raises by `errno_map.storage_error`."""
    for walked in _walk(data, None):
        if isinstance(walked, WalkedPath):
            yield walked
        else:
            yield from map(_walked_path, walked.paths, zip(*walked.looked[:10], strict=True))


def _walk(
    data: Path, unreadable: Callable[[str, OSError], None] | None
) -> Iterator[WalkedPath | _Neighbours]:
    """The same as `walk`, files many at a time. With `unreadable` a folder that this account may not read is
    passed to that function and left out."""
    path = ""
    try:
        root = os.open(data, _FOLDER)
        with contextlib.closing(descend(root)) as met:
            for kind, level, names, row_, error in met:
                prefix = path = level.prefix
                if kind == FILE:
                    looked = level.stats(names)
                    if looked.errors:
                        index, number = next(iter(looked.errors.items()))
                        path = prefix + names[index]
                        raise failed(number)
                    yield _Neighbours([prefix + name for name in names], looked)
                elif kind in (LINK, OTHER):
                    for name in names:
                        path = prefix + name
                        yield _walked_path(path, row(_lstat(level.fd, name)))
                else:
                    path = prefix + names[0] if kind == BELOW else prefix[:-1]
                    if row_ is not None:
                        yield _walked_path(path, row_)
                    elif kind == BELOW:
                        yield _walked_path(path, row(_lstat(level.fd, names[0])))
                    if error is not None:
                        if unreadable is None or not isinstance(error, PermissionError):
                            raise error
                        unreadable(path, error)
    except OSError as error:
        raise storage_error(error, "cannot walk", str(data / path)) from None


def _lstat(folder: int, name: str) -> os.stat_result:
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def _walked_path(path: str, seen: Row) -> WalkedPath:
    """A path, and its lstat by `dir_stat.row`."""
    mode, size, mtime_ns, ctime_ns, inode, links, uid, gid = seen[:8]
    kind = "file" if mode & _FORMAT == _FILE else kind_of(mode)
    mtime_ns = nearest_time(mtime_ns)
    return _new(WalkedPath, (path, kind, size, mtime_ns, ctime_ns, mode & _BITS, uid, gid, inode, links))


class Cursor:
    """A walk that is compared with the paths of the files that should be there, given in the same order."""

    def __init__(self, data: Path, unreadable: Callable[[str, OSError], None] | None = None) -> None:
        """With `unreadable` a folder that this account may not read is passed to that function as soon as the
        walk reaches it. Raises what `walk` raises, as the methods do."""
        self._walk = _walk(data, unreadable)
        self._run: WalkedPath | _Neighbours | None = None
        self._at = self._size = 0
        self._go_on(0)

    def against(
        self, paths: Sequence[str], alike: Callable[[Looked, int], bool]
    ) -> Iterator[tuple[int, WalkedPath | None, bool]]:
        """What has to be looked at by itself, as (index of the path whose turn it is, what stands here,
        whether that has the path's own name). Before a path: what stands beside it, or is a folder that
        leads to it. In its turn: what has its name, None when nothing has or a folder. Left out are those
        of which `alike` says, for the lstat of files from some index on, that all are as they should be."""
        start, most = 0, len(paths)
        while start < len(paths):
            run, at = self._run, self._at
            if isinstance(run, _Neighbours) and run.paths[at] == paths[start]:
                count = min(len(paths) - start, self._size - at, most)
                if run.paths[at : at + count] == paths[start : start + count] and alike(
                    sliced(run.looked, at, at + count), start
                ):
                    start, most = start + count, most * 2
                    self._go_on(count)
                    continue
                if count > 1:
                    # Where it is that they differ is found by halves.
                    most = count // 2
                    continue
            walked = self._current()
            name = os.fsencode(paths[start])
            if walked is not None and _order(walked) < name:
                yield start, walked, False
                self._go_on()
                continue
            own = walked is not None and walked.path == paths[start] and walked.kind != "dir"
            yield start, walked if own else None, True
            start += 1
            if own:
                self._go_on()

    def rest(self) -> Iterator[WalkedPath]:
        """What the walk has still to report, after the last of the expected paths."""
        while (here := self._current()) is not None:
            yield here
            self._go_on()

    def _current(self) -> WalkedPath | None:
        run, at = self._run, self._at
        if not isinstance(run, _Neighbours):
            return run
        return _walked_path(run.paths[at], next(zip(*sliced(run.looked, at, at + 1)[:10], strict=True)))

    def _go_on(self, count: int = 1) -> None:
        self._at += count
        if self._at >= self._size:
            self._run, self._at = next(self._walk, None), 0
            self._size = len(self._run.paths) if isinstance(self._run, _Neighbours) else 1


def _order(found: WalkedPath) -> bytes:
    name = os.fsencode(found.path)
    return name + b"/" if found.kind == "dir" else name
