"""Fetches a listing's pages, one page ahead of the caller. Checks the order of keys, and sorts on disk if a
store's order is not that of the keys' bytes.

A *run* of objects at a time is sorted in memory and written to a file; then the runs are merged. So memory
contains one run, whatever the number of objects. The files exist until the iteration ends.
"""

from __future__ import annotations

import heapq
import pickle
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from penstock.core.errors import STORE_AMISS, FailedError
from penstock.core.human import in_quotes
from penstock.fs import scratch
from penstock.host import waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from penstock.core.model import Listed

RUN = 200_000  # number of objects that are sorted in memory at once
FAN = 64  # number of runs that are merged at once (some 60 MiB of objects in memory)
BATCH = 2048  # number of objects in one batch of output, and in one pickle in a run's file
# Number of consecutive pages without a key after which a listing counts as endless. Stores may return such
# pages if they skip deleted objects.
EMPTY = 10_000


class DisorderError(FailedError):
    """The store lists in an order other than that of the keys' bytes (directory buckets of S3 Express,
    Storj). The caller lists again by `list_sorted`, if the source has that method."""


def disorder(key: str, last: str, where: str, hint: str = STORE_AMISS) -> FailedError:
    """Make the error for a key that does not come after `last`: `DisorderError`. If the key equals `last`,
    but size, version or time differ, make a FailedError."""
    if key == last:
        what = "the listing has a key twice, and not alike"
        return FailedError(what, where=where, why=in_quotes(key), hint=hint)
    why = f"{in_quotes(key)} after {in_quotes(last)}"
    return DisorderError("the listing is out of order", where=where, why=why, hint=hint)


def order(item: Listed) -> bytes:
    """Return the key's bytes, the sort key of listings."""
    return item.key.encode("utf-8", "surrogateescape")


def in_order(
    batches: Iterator[Sequence[Listed]], run: int = RUN, folder: Path | None = None
) -> Iterator[Sequence[Listed]]:
    """Sort the objects by the bytes of their keys, and keep duplicates. All `batches` are read first.

    A run has `run` objects. Runs are written in `folder`, or in the temporary folder if `folder` is None.
    Raises OSError if they cannot be written.
    """
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
    """Sorted runs on disk. FAN runs of one level are merged into one run of the next level. So few files are
    open at once, and an object is written only once in each level."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made = folder, 0
        self._levels: list[list[Path]] = []

    def add(self, batches: Iterable[Sequence[Listed]], level: int = 0) -> None:
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
    file = stack.enter_context(open(path, "rb"))  # noqa: SIM115 (the stack closes the file)
    size = path.stat().st_size
    while file.tell() < size:
        yield from pickle.load(file)  # noqa: S301 (by `_write`, in a folder that only this process uses)


def endless(empty: int, where: str) -> FailedError | None:
    """Return the error of a listing after `empty` consecutive pages without an object, or None."""
    if empty <= EMPTY:
        return None
    return FailedError(
        "the listing does not end",
        where=where,
        why=f"{EMPTY:,} pages in a row held no object, and each named a next one",
        hint="the server's listings cannot be trusted; or a narrower prefix passes over what was deleted",
    )


class Page(Protocol):
    """One answer of a listing."""

    @property
    def following(self) -> str:
        """The token of the next page; "" at the end."""

    @property
    def empty(self) -> bool:
        """Whether the page has no object."""


P = TypeVar("P", bound=Page)


class Objects(NamedTuple):
    rows: Sequence[Listed]  # the objects; their keys are relative to the prefix
    following: str
    markers: int = 0  # number of folders' markers, which `rows` lacks

    @property
    def empty(self) -> bool:
        return not self.rows and not self.markers


def one_by_one(fetch: Callable[[str], P], where: str, stop: Callable[[], None]) -> Iterator[P]:
    """Yield the pages, beginning with the first (token ""). Calls `stop` at the end, so that no thread waits
    for a page still being fetched. Raises FailedError for a circle or an endless listing."""
    with waits.threads(1, "listing") as pool, waits.interruptible():
        coming = pool.submit(fetch, "")
        try:
            hashes, empty = {hash("")}, 0
            while True:
                page = coming.result()
                if page.following:
                    if hash(page.following) in hashes:
                        raise FailedError("the listing runs in a circle", where=where, hint=STORE_AMISS)
                    hashes.add(hash(page.following))
                    empty = empty + 1 if page.empty else 0
                    if (error := endless(empty, where)) is not None:
                        raise error
                    coming = pool.submit(fetch, page.following)
                with waits.whole():
                    yield page
                if not page.following:
                    return
        finally:
            stop()
            coming.cancel()


def between(
    batches: Iterator[Sequence[Listed]], after: bytes, upto: bytes | None
) -> Iterator[Sequence[Listed]]:
    """Yield the objects with `after` < key <= `upto` (None: to the end) from ascending batches, and read no
    batch beyond. The batches may begin anywhere before `after`."""
    for batch in batches:
        if not batch or order(batch[-1]) <= after:
            continue
        inside = order(batch[0]) > after and (upto is None or order(batch[-1]) <= upto)
        kept = (
            batch
            if inside
            else [item for item in batch if after < order(item) and (upto is None or order(item) <= upto)]
        )
        if kept:
            yield kept
        if upto is not None and order(batch[-1]) >= upto:
            return


def ascending(
    batches: Iterator[Sequence[Listed]],
    where: str,
    hint: str = STORE_AMISS,
    twice: Callable[[int], None] = lambda _: None,
) -> Iterator[Sequence[Listed]]:
    """Check the order of the batches, and yield them without empty batches and repeats.

    `twice` gets the number of identical repeats. Raises FailedError for keys that do not ascend by their
    bytes, and for repeats with another size, version or time.
    """
    last, before = b"", None
    for batch in batches:
        doubled: set[int] = set()
        for index, item in enumerate(batch):
            key = order(item)
            if key <= last:
                if item != before:
                    raise disorder(item.key, last.decode("utf-8", "surrogateescape"), where, hint)
                doubled.add(index)
            last, before = key, item
        if doubled:
            twice(len(doubled))
            batch = [item for index, item in enumerate(batch) if index not in doubled]
        if batch:
            yield batch
