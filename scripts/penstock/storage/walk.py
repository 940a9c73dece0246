"""Walking a tree in canonical order, by descriptors, following nothing."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.storage.failures import storage_error
from penstock.storage.looking import failed, part, row
from penstock.storage.tree import BELOW, FILE, LINK, descend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from penstock.storage.looking import Looked, Row

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

    def holds(self, path: str) -> bool:
        """Whether it is a folder above this path."""
        return self.kind == "dir" and path.startswith(f"{self.path}/")


def kind_of(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "link" if stat.S_ISLNK(mode) else "other"


class Neighbours(NamedTuple):
    """Some things of one folder that follow one another, none a folder and none a link, by lstat."""

    paths: list[str]
    looked: Looked


def walk(data: Path, unreadable: Callable[[str, OSError], None] | None = None) -> Iterator[Found]:
    """Everything below `data`, once, in ascending byte order of the paths, a folder counting as its name
    with "/" after it (so the files alone are in the byte order of their paths), each folder before what
    it holds. What it costs in memory and descriptors: `tree.descend`. What vanishes meanwhile is an error.
    A folder that this account may not read is told to `unreadable`, and left out, where it is given.
    Raises by `failures.storage_error`."""
    for one in walk_together(data, unreadable):
        if isinstance(one, Found):
            yield one
        else:
            yield from map(found, one.paths, zip(*one.looked[:9], strict=True))


def walk_together(
    data: Path, unreadable: Callable[[str, OSError], None] | None = None
) -> Iterator[Found | Neighbours]:
    """The same as `walk`, files many at a time."""
    here = ""
    try:
        root = os.open(data, _FOLDER)
        with contextlib.closing(descend(root)) as met:
            for kind, level, names, row_, error in met:
                prefix = here = level.prefix
                if kind == FILE:
                    looked = level.found(names)
                    for index, number in looked.errors.items():
                        here = prefix + names[index]
                        raise failed(number)
                    yield Neighbours([prefix + name for name in names], looked)
                elif kind == LINK:
                    for name in names:
                        here = prefix + name
                        yield found(here, row(_lstat(level.fd, name)))
                else:
                    here = prefix + names[0] if kind == BELOW else prefix[:-1]
                    if row_ is not None:
                        yield found(here, row_)
                    elif kind == BELOW:
                        yield found(here, row(_lstat(level.fd, names[0])))
                    if error is not None:
                        if unreadable is None or not isinstance(error, PermissionError):
                            raise error
                        unreadable(here, error)
    except OSError as error:
        raise storage_error(error, "cannot walk", str(data / here)) from None


def _lstat(folder: int, name: str) -> os.stat_result:
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def found(path: str, seen: Row) -> Found:
    """A path, and its lstat by `looking.row`."""
    mode, size, mtime_ns, ctime_ns, inode, links, uid, gid, _ = seen
    kind = "file" if mode & _FORMAT == _FILE else kind_of(mode)
    return _new(Found, (path, kind, size, mtime_ns, ctime_ns, mode & _BITS, uid, gid, inode, links))


class Cursor:
    """A walk, met with the paths of files that should be there, which come in the same order."""

    def __init__(self, data: Path, unreadable: Callable[[str, OSError], None] | None = None) -> None:
        """Raises what `walk` raises, as all that goes on does."""
        self._walk = walk_together(data, unreadable)
        self._run: Found | Neighbours | None = None
        self._at = self._size = 0
        self.go_on(0)

    def here(self) -> Found | None:
        """What comes next, or None at the end."""
        run, at = self._run, self._at
        if not isinstance(run, Neighbours):
            return run
        return found(run.paths[at], next(zip(*part(run.looked, at, at + 1)[:9], strict=True)))

    def go_on(self, count: int = 1) -> None:
        """So many were dealt with."""
        self._at += count
        if self._at >= self._size:
            self._run, self._at = next(self._walk, None), 0
            self._size = len(self._run.paths) if isinstance(self._run, Neighbours) else 1

    def before(self, path: str) -> Iterator[Found]:
        """What stands before this file in the order: beside it, or a folder that leads to it."""
        if isinstance(self._run, Neighbours) and self._run.paths[self._at] == path:
            return
        name = os.fsencode(path)
        while (here := self.here()) is not None and _order(here) < name:
            self.go_on()
            yield here

    def rest(self) -> Iterator[Found]:
        """All that is left."""
        while (here := self.here()) is not None:
            self.go_on()
            yield here

    def together(self, paths: Sequence[str], start: int) -> Looked | None:
        """The lstat of the next ones, neither folders nor links, when they stand here under the names that
        come next: as many as have been looked at and as there are names. None: look at `here`."""
        run, at = self._run, self._at
        if not isinstance(run, Neighbours):
            return None
        count = min(len(paths) - start, self._size - at)
        same = run.paths[at : at + count] == paths[start : start + count]
        return part(run.looked, at, at + count) if same else None


def _order(found: Found) -> bytes:
    name = os.fsencode(found.path)
    return name + b"/" if found.kind == "dir" else name
