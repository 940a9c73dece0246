"""Listings that come in another order than that of the key's bytes, put in order on disk.

A *run* here is as much of the listing as is sorted in memory and written to one file; the runs are then
merged. Memory holds one run at a time, whatever the number of objects. The runs lie in a temporary folder,
which is removed when the iteration ends. Sources whose store lists in no order sort here, and so do
inventories and lists of keys.
"""

from __future__ import annotations

import heapq
import pickle
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING

from penstock.core.errors import STORE_AMISS, FailedError
from penstock.core.text import in_quotes
from penstock.fs import scratch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from penstock.core.model import Listed

RUN = 200_000
"""Objects sorted in memory at once."""
FAN = 64
"""Runs that are merged at once: some 60 MiB of objects."""
BATCH = 2048
"""Objects of one batch that comes out, and of one pickle of a run."""
EMPTY = 10_000
"""Pages without a key, in a row, after which a listing counts as endless. Stores may give some, where they
pass over deleted objects."""


class DisorderError(FailedError):
    """A listing's keys are in another order than that of their bytes: the store lists in no order, or in one
    of its own (directory buckets of S3 Express, Storj). `port.Sortable` sources are then listed anew."""


def disorder(key: str, last: str, where: str, hint: str = STORE_AMISS) -> FailedError:
    """The error of a key that does not come behind the last one in the order of bytes: `DisorderError`, or a
    plain FailedError where it is the same key again, with another size, version or time."""
    if key == last:
        what = "the listing has a key twice, and not alike"
        return FailedError(what, where=where, why=in_quotes(key), hint=hint)
    why = f"{in_quotes(key)} after {in_quotes(last)}"
    return DisorderError("the listing is out of order", where=where, why=why, hint=hint)


def order(item: Listed) -> bytes:
    """The key's bytes, by which listings are in order."""
    return item.key.encode("utf-8", "surrogateescape")


def in_order(
    batches: Iterator[Sequence[Listed]], run: int = RUN, folder: Path | None = None
) -> Iterator[Sequence[Listed]]:
    """The same objects in ascending byte order of their keys, in batches; one that is there twice stays so.
    Begins when `batches` ended. `run`: objects of one run. `folder`: where the runs lie meanwhile; None:
    where temporary files do. Raises OSError where they cannot be written."""
    with scratch.folder(folder) as runs_in, ExitStack() as stack:
        runs = _Runs(runs_in)
        held: list[Listed] = []
        for batch in batches:
            held.extend(batch)
            if len(held) >= run:
                held.sort(key=order)
                runs.add([held])
                held = []
        held.sort(key=order)
        yield from _merged(stack, runs.paths(), held)


class _Runs:
    """Sorted runs on disk. Each FAN of one length are merged into one, so that few are open at once, and an
    object is written once for each power of FAN runs."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made = folder, 0
        self._levels: list[list[Path]] = []

    def add(self, batches: Iterable[Sequence[Listed]], level: int = 0) -> None:
        """One more run, of batches that are in order."""
        if level == len(self._levels):
            self._levels.append([])
        mine = self._levels[level]
        mine.append(_write(self._folder / str(self._made), batches))
        self._made += 1
        if len(mine) == FAN:
            with ExitStack() as stack:
                self.add(_merged(stack, mine, ()), level + 1)
            for path in mine:
                path.unlink()
            mine.clear()

    def paths(self) -> list[Path]:
        return [path for level in self._levels for path in level]


def _merged(stack: ExitStack, paths: Sequence[Path], held: Iterable[Listed]) -> Iterator[Sequence[Listed]]:
    merged = heapq.merge(*(_read(stack, path) for path in paths), held, key=order)
    while some := list(islice(merged, BATCH)):
        yield some


def _write(path: Path, batches: Iterable[Sequence[Listed]]) -> Path:
    with open(path, "wb") as file:
        for items in batches:
            for at in range(0, len(items), BATCH):
                pickle.dump(items[at : at + BATCH], file, protocol=pickle.HIGHEST_PROTOCOL)
    return path


def _read(stack: ExitStack, path: Path) -> Iterator[Listed]:
    file = stack.enter_context(open(path, "rb"))  # noqa: SIM115 (the stack closes it)
    size = path.stat().st_size
    while file.tell() < size:
        yield from pickle.load(file)  # noqa: S301 (written above, in a folder of this process alone)


def endless(empty: int, where: str) -> FailedError | None:
    """What is wrong with a listing of which so many pages in a row held no object, if anything."""
    if empty <= EMPTY:
        return None
    return FailedError(
        "the listing does not end",
        where=where,
        why=f"{EMPTY:,} pages in a row held no object, and each named a next one",
        hint="the server's listings cannot be trusted; or a narrower prefix passes over what was deleted",
    )
