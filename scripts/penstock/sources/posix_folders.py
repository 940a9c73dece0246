"""Names and times of a folder tree's files, fast on a local disk and on a file system that waits.

A call that takes a microsecond is made at once, in this thread. Where calls are seen to wait (a
network file system), many are made at a time by threads: the files of a folder in groups, and
the next folders ahead of the walk. What is held ahead is bounded: in folders, and in names.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.sources.posix_reader import FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    Found = os.stat_result | OSError

FILE, BELOW, LINK = range(3)
WAITS = 1e-4
"""Seconds: when the fastest of the last LOOKS calls took longer, calls wait for something."""
LOOKS = 8
THREADS = 32
AHEAD = 32
"""Folders opened ahead in one folder; OPENED in all."""
OPENED = 128
NAMES = 200_000
"""Names held ahead, about: judged by the largest folder so far."""
GROUP = 16
BLOCK = 512

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
    return Names(fd, names, look(fd, files) if files and len(files) <= few else None, failed)


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


class Loader:
    """Decides whether calls wait, and owns the threads that then make them."""

    def __init__(self) -> None:
        self.waits = False
        self.opened = 0
        """Folders that are opened ahead now."""
        self.largest = 1
        self._recent: deque[float] = deque(maxlen=LOOKS)
        self._pool: ThreadPoolExecutor | None = None

    def saw(self, seconds: float) -> None:
        """How long one call took. One fast call of the last few says that calls do not wait."""
        self._recent.append(seconds)
        if len(self._recent) == LOOKS and min(self._recent) > WAITS:
            self.waits = True

    def pool(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="listing")
        return self._pool

    def enter(self, parent: int, name: str) -> Names | OSError:
        """`load`, measured."""
        began = perf_counter()
        loaded = load(parent, name)
        self.saw(perf_counter() - began)
        return loaded

    def look(self, fd: int, names: Sequence[str]) -> list[Found]:
        """lstat of some of one folder's names, in order, by the way that suits."""
        if self.waits:
            pool = self.pool()
            groups = [pool.submit(look, fd, names[at : at + GROUP]) for at in range(0, len(names), GROUP)]
            return [found for group in groups for found in group.result()]
        found: list[Found] = []
        for name in names[:LOOKS]:
            began = perf_counter()
            found += look(fd, (name,))
            self.saw(perf_counter() - began)
        rest = names[len(found) :]
        return found + (self.look(fd, rest) if self.waits and rest else look(fd, rest))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Level:
    """One folder on the way down: its names in order, its files' times as they are needed."""

    def __init__(self, loader: Loader, loaded: Names, prefix: str) -> None:
        self.fd, self.prefix = loaded.fd, prefix
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
        return self._loader.look(self.fd, names)

    def enter(self, name: str) -> Names | OSError:
        """The next BELOW name's folder."""
        self._entered += 1
        if not self._loader.waits and not self._ahead:
            return self._loader.enter(self.fd, name)
        loader, pool = self._loader, self._loader.pool()
        start = self._entered - 1 + len(self._ahead)
        room = min(AHEAD, NAMES // loader.largest, OPENED - loader.opened + len(self._ahead))
        for ahead in self._folders[start : start + max(room - len(self._ahead), not self._ahead)]:
            self._ahead.append(pool.submit(load, self.fd, ahead, GROUP))
            loader.opened += 1
        loader.opened -= 1
        return self._ahead.popleft().result()

    def close(self) -> None:
        """Also what was opened ahead and is not needed any more."""
        self._loader.opened -= len(self._ahead)
        for ahead in self._ahead:
            if not ahead.cancel():
                loaded = ahead.result()
                if isinstance(loaded, Names):
                    os.close(loaded.fd)
        self._ahead.clear()
        os.close(self.fd)
