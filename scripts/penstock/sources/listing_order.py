"""A listing's pages and their order: fetched one ahead, checked, and sorted on disk where a store's keys come
in another order than that of their bytes.

A *run* here is as much of a listing as is sorted in memory and written to one file; the runs are then merged.
Memory holds one run at a time, whatever the number of objects. The runs lie in a temporary folder, which is
removed when the iteration ends. Sources whose store lists in no order sort here, and so do inventories and
lists of keys. Nothing else is written."""

from __future__ import annotations

import heapq
import pickle
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from penstock.core.errors import STORE_AMISS, FailedError
from penstock.core.text import in_quotes
from penstock.fs import scratch
from penstock.host import waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
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
    of its own (directory buckets of S3 Express, Storj). Sources with `list_sorted` are listed anew."""


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


class Page(Protocol):
    """One answer of a listing."""

    @property
    def following(self) -> str:
        """The token of the next page; "" at the end."""

    @property
    def empty(self) -> bool:
        """Whether it names no object."""


P = TypeVar("P", bound=Page)


class Objects(NamedTuple):
    """A page, taken apart."""

    rows: Sequence[Listed]  # keys are relative to the prefix
    following: str
    markers: int = 0  # of folders, left out

    @property
    def empty(self) -> bool:
        return not self.rows and not self.markers


def one_by_one(fetch: Callable[[str], P], where: str, stop: Callable[[], None]) -> Iterator[P]:
    """The pages from the first (token "") on. `stop` is called at the end: nobody waits for a page that is
    still fetched. Raises FailedError for a listing that runs in a circle or does not end."""
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
    """Of batches in ascending order, the objects behind the key `after`, up to and with `upto` (None: to the
    end); reads no further.
    A store that does not know where to begin may begin anywhere before."""
    for batch in batches:
        if not batch or order(batch[-1]) <= after:
            continue
        inside = order(batch[0]) > after and (upto is None or order(batch[-1]) <= upto)
        kept = (
            batch
            if inside
            else [one for one in batch if after < order(one) and (upto is None or order(one) <= upto)]
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
    """The same batches, without empty ones. An object that is listed again and alike in all comes once;
    `twice` is called with how many there were. Raises FailedError for keys that are not in ascending order
    of their bytes, or stand there twice and not alike."""
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
