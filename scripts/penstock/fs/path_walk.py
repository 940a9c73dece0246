"""Walks a tree in canonical order, by descriptors, without following links.

Canonical order is the ascending byte order of the paths, in which a folder counts as its name with "/" after
it. `Cursor` compares a tree with rows in this order.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.model import nearest_time
from penstock.fs.safe_open import storage_error
from penstock.fs.tree import BELOW, FILE, LINK, OTHER, descend, failed, row, sliced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from penstock.fs.tree import Looked, Row

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FORMAT, _FILE, _BITS = 0o170000, stat.S_IFREG, 0o7777
# Makes a named tuple from a sequence, at half the cost of the class's constructor.
_new = tuple.__new__


class WalkedPath(NamedTuple):
    """A file, folder, link or other entry below `data`, as lstat shows it."""

    path: str
    kind: str  # `file`, `dir`, `link` or `other`
    size: int
    mtime_ns: int  # the modification time as a record stores it (`nearest_time`)
    ctime_ns: int
    mode: int  # permission bits, with setuid, setgid and sticky
    uid: int
    gid: int
    inode: int
    links: int

    def holds(self, path: str) -> bool:
        """Return whether this is a folder above `path`."""
        return self.kind == "dir" and path.startswith(f"{self.path}/")


def kind_of(mode: int) -> str:
    """Return the `WalkedPath.kind` for an `st_mode`."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "link" if stat.S_ISLNK(mode) else "other"


class _Neighbours(NamedTuple):
    """Consecutive entries of a folder that are no folders and no links, as lstat shows them."""

    paths: list[str]
    looked: Looked


def walk(data: Path) -> Iterator[WalkedPath]:
    """Walk everything below `data` once, in canonical order, with each folder before its content. So files
    come in the byte order of their paths. For memory and descriptors see `tree.descend`. An entry that
    vanishes during the walk, or a folder that this account may not read, is an error. Raises the errors of
    `safe_open.storage_error`."""
    for walked in _walk(data, None):
        if isinstance(walked, WalkedPath):
            yield walked
        else:
            yield from map(_walked_path, walked.paths, zip(*walked.looked[:10], strict=True))


def _walk(
    data: Path, unreadable: Callable[[str, OSError], None] | None
) -> Iterator[WalkedPath | _Neighbours]:
    """Walk as `walk` does, but yield many files at a time. `unreadable` gets folders that this account may
    not read, which are then omitted."""
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


def _walked_path(path: str, status: Row) -> WalkedPath:
    """Return a path with its lstat from `tree.row`."""
    mode, size, mtime_ns, ctime_ns, inode, links, uid, gid = status[:8]
    kind = "file" if mode & _FORMAT == _FILE else kind_of(mode)
    mtime_ns = nearest_time(mtime_ns)
    return _new(WalkedPath, (path, kind, size, mtime_ns, ctime_ns, mode & _BITS, uid, gid, inode, links))


class Cursor:
    """A walk that is compared with the expected paths of files, which are in the walk's order."""

    def __init__(self, data: Path, unreadable: Callable[[str, OSError], None] | None = None) -> None:
        """`unreadable` gets a folder that this account may not read, as soon as the walk reaches it. This and
        the methods raise the errors of `walk`."""
        self._walk = _walk(data, unreadable)
        self._run: WalkedPath | _Neighbours | None = None
        self._at = self._size = 0
        self._go_on(0)

    def against(
        self, paths: Sequence[str], alike: Callable[[Looked, int], bool]
    ) -> Iterator[tuple[int, WalkedPath | None, bool]]:
        """Yield the entries that need a check, as (index of a path, entry, whether the entry has this path).
        First come entries before the path that are not in `paths`, and folders above the path. Then comes the
        path's own entry, or None if it is missing or a folder. `alike` gets the lstat of consecutive files,
        and the first path's index. If it returns True, these files are as expected, and are omitted."""
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
                    # Search for the files that differ by halves.
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
        """Yield the walk's remaining entries after the last expected path."""
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


def _order(walked: WalkedPath) -> bytes:
    name = os.fsencode(walked.path)
    return name + b"/" if walked.kind == "dir" else name
