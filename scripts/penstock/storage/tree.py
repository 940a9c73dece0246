"""A folder tree in canonical order, by descriptors, fast on a local disk and on a file system that waits.

Where calls are seen to wait (a network file system; see `waiting`), many are made at a time: the files
of a folder in groups, and the next folders ahead of the walk. What is held ahead is bounded: in folders,
and in names.
Sources are listed by it, and stagings and releases are looked at (`walk`).
"""

from __future__ import annotations

import os
from collections import deque
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from penstock.storage.beneath import FOLDER, open_dir
from penstock.storage.waiting import GROUP, Calls

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from concurrent.futures import Future

    Found = os.stat_result | OSError

FILE, BELOW, LINK, BROKEN = range(4)
"""Kinds by the folder that holds a name. FILE: whatever is neither folder nor link. BROKEN: names are
missing, since listing the folder ended early."""
AHEAD = 32
"""Folders opened ahead in one folder; OPENED in all."""
OPENED = 128
NAMES = 200_000
"""Names held ahead, about: judged by the largest folder so far."""
BLOCK = 512
DEPTH = 64
"""Levels of which the folders are held open; those above are opened again on the way back."""

Name = tuple[bytes, str, int]
"""Sorts as the bytes of the paths at and below it do; the name; FILE (or special), BELOW, LINK."""


class Names(NamedTuple):
    """One folder, opened and listed."""

    fd: int
    """Of the folder; the caller closes it."""
    names: list[Name]
    found: list[Found] | None
    """Of the FILE names in order, when they were looked at ahead."""
    error: OSError | None
    """Listing ended early."""
    seen: os.stat_result
    """Of the folder itself."""


def look(fd: int, names: Sequence[str]) -> list[Found]:
    """lstat of each name, or its error."""
    found: list[Found] = []
    stat, add = os.stat, found.append
    for name in names:
        try:
            add(stat(name, dir_fd=fd, follow_symlinks=False))
        except OSError as error:
            add(error)
    return found


def load(parent: int, name: str, few: int = 0) -> Names | OSError:
    """Open and list a folder; look at its files too when there are no more than `few`."""
    try:
        fd = os.open(name, FOLDER, dir_fd=parent)
    except OSError as error:
        return error
    names, failed = names_of(fd)
    files = [item for _, item, kind in names if kind == FILE] if few else []
    return Names(fd, names, look(fd, files) if files and len(files) <= few else None, failed, os.fstat(fd))


def names_of(fd: int) -> tuple[list[Name], OSError | None]:
    """A folder's names, sorted; what stopped the listing, if something did."""
    found: list[Name] = []
    add = found.append
    error: OSError | None = None
    try:
        with os.scandir(fd) as items:
            for item in items:
                name = item.name
                order = name.encode("utf-8", "surrogateescape")
                if item.is_dir(follow_symlinks=False):
                    add((order + b"/", name, BELOW))
                else:
                    add((order, name, LINK if item.is_symlink() else FILE))
    except OSError as failed:
        error = failed
    found.sort()
    return found, error


class Loader(Calls):
    """Opens folders and looks at their files, by the way that suits."""

    def __init__(self, few: int) -> None:
        super().__init__()
        self.few = few
        """Of folders opened ahead with so few files these are looked at too."""
        self.opened = 0
        """Folders that are opened ahead now."""
        self.largest = 1

    def enter(self, parent: int, name: str) -> Names | OSError:
        """`load`, measured."""
        began = perf_counter()
        loaded = load(parent, name)
        self.saw(perf_counter() - began)
        return loaded


class Level:
    """One folder on the way down: its names in order, its files' times as they are needed."""

    def __init__(self, loader: Loader, loaded: Names, prefix: str) -> None:
        self.fd, self.prefix = loaded.fd, prefix
        self.error = loaded.error
        self._names, self._at = loaded.names, 0
        self._loader = loader
        loader.largest = max(loader.largest, len(loaded.names))
        self._folders = [name for _, name, kind in loaded.names if kind == BELOW]
        self._found, self._looked = loaded.found, 0
        self._entered = 0
        self._ahead: deque[Future[Names | OSError]] = deque()

    def runs(self) -> Iterator[tuple[int, Sequence[str]]]:
        """What is left, in order: (kind, names). Files and links come as neighbours, at most BLOCK
        at a time; a folder comes alone."""
        names, end = self._names, len(self._names)
        while self._at < end:
            start = self._at
            kind = names[start][2]
            stop = start + 1
            if kind != BELOW:
                limit = min(end, start + BLOCK)
                while stop < limit and names[stop][2] == kind:
                    stop += 1
            self._at = stop
            yield kind, [name for _, name, _ in names[start:stop]]

    def found(self, names: Sequence[str]) -> Sequence[Found]:
        """The lstat, or the error it met, of the next FILE names."""
        if self._found is not None:
            found = self._found[self._looked : self._looked + len(names)]
            self._looked += len(names)
            return found
        return self._loader.each(partial(look, self.fd), names)

    def enter(self, name: str) -> Names | OSError:
        """The next BELOW name's folder."""
        self._entered += 1
        if not self._loader.waits and not self._ahead:
            return self._loader.enter(self.fd, name)
        loader, pool = self._loader, self._loader.pool()
        start = self._entered - 1 + len(self._ahead)
        room = min(AHEAD, NAMES // loader.largest, OPENED - loader.opened + len(self._ahead))
        for ahead in self._folders[start : start + max(room - len(self._ahead), not self._ahead)]:
            self._ahead.append(pool.submit(load, self.fd, ahead, loader.few))
            loader.opened += 1
        loader.opened -= 1
        return self._ahead.popleft().result()

    def drop(self) -> None:
        """Leave out what is left."""
        self._at = len(self._names)

    def rest(self) -> None:
        """Give the descriptors back until `wake`."""
        self._loader.opened -= len(self._ahead)
        for ahead in self._ahead:
            if not ahead.cancel():
                loaded = ahead.result()
                if isinstance(loaded, Names):
                    os.close(loaded.fd)
        self._ahead.clear()
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def wake(self, root: int) -> None:
        """Open the folder again, below `root`, if it rested. Raises OSError."""
        if self.fd < 0:
            self.fd = open_dir(root, self.prefix[:-1])


class Met(NamedTuple):
    """Neighbours of one folder."""

    kind: int
    level: Level
    """Their folder, with its `prefix` ("" or ending in a slash)."""
    names: Sequence[str]
    """Of a BELOW one: it is entered next, unless it could not be opened. Of BROKEN none."""
    seen: Found | None = None
    """Of a BELOW its fstat, or the OSError why it could not be opened; of BROKEN what went wrong."""


def descend(root: int, *, names_only: bool = False) -> Generator[Met]:
    """Everything below the folder `root`, a descriptor that is closed at the end: in ascending byte order
    of the paths, a folder counting as its name with "/" after it, and met before what it holds. Of files
    the lstat is had by `level.found`, which is to be asked once for each Met of FILE, or never
    (`names_only`). Links are not followed.

    At most DEPTH and OPENED descriptors are held. Memory grows with the largest folder (some dozen of
    small ones where calls wait).
    """
    with Loader(few=0 if names_only else GROUP) as loader:
        inside, failed = names_of(root)
        levels = [Level(loader, Names(root, inside, None, failed, os.fstat(root)), "")]
        try:
            while levels:
                level = levels[-1]
                try:
                    level.wake(root)
                    error, level.error = level.error, None
                except OSError as gone:
                    level.drop()
                    error = gone
                if error is not None:
                    yield Met(BROKEN, level, (), error)
                for kind, names in level.runs():
                    if kind != BELOW:
                        yield Met(kind, level, names)
                        continue
                    loaded = level.enter(names[0])
                    if isinstance(loaded, OSError):
                        yield Met(BELOW, level, names, loaded)
                        continue
                    levels.append(Level(loader, loaded, f"{level.prefix}{names[0]}/"))
                    if len(levels) > DEPTH:
                        # Never the first: the others are found from there.
                        levels[-DEPTH].rest()
                    yield Met(BELOW, level, names, loaded.seen)
                    break
                else:
                    levels.pop().rest()
        finally:
            for level in levels:
                level.rest()
