"""Two streams of rows in the byte order of their paths, merged batch by batch.

The problem: two manifests of 10^6 rows and more, of which nearly all are the same. An object of Python for
each row would take 10 s and more. So rows stay in Arrow's columns: of each stream one batch is held, both are
cut at the lower of their last paths, and what the two parts have in common is found by one look-up of paths
in paths; where the paths are the same on both sides, which is the rule, not even that.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.text import printable
from penstock.errors import FailedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BATCH = 1 << 16
"""Rows of one batch."""


class Met(NamedTuple):
    """Some neighbouring paths of both streams."""

    before: pa.RecordBatch
    """Rows that both have, as the first stream has them; `after` has the same paths, in the same order."""
    after: pa.RecordBatch
    removed: pa.RecordBatch
    """Of the first stream alone."""
    added: pa.RecordBatch


def merged(before: Iterable[pa.RecordBatch], after: Iterable[pa.RecordBatch], where: str) -> Iterator[Met]:
    """Both streams to their ends, each row once. A column `path` is binary, and ascends. Raises FailedError,
    which names `where`, for a stream that does not ascend."""
    one, two = _Stream(before, where), _Stream(after, where)
    while one.rows is not None or two.rows is not None:
        if two.rows is None and one.rows is not None:
            rows = one.take(one.rows.num_rows)
            yield Met(rows.slice(0, 0), rows.slice(0, 0), rows, rows.slice(0, 0))
        elif one.rows is None and two.rows is not None:
            rows = two.take(two.rows.num_rows)
            yield Met(rows.slice(0, 0), rows.slice(0, 0), rows.slice(0, 0), rows)
        else:
            last = min(one.last, two.last)
            yield _met(one.take(one.upto(last)), two.take(two.upto(last)))


def _met(one: pa.RecordBatch, two: pa.RecordBatch) -> Met:
    mine, theirs = one["path"], two["path"]
    if mine.equals(theirs):
        return Met(one, two, one.slice(0, 0), two.slice(0, 0))
    places = pc.index_in(theirs, value_set=mine)
    both = pc.is_valid(places)
    return Met(
        one.take(places.drop_null()),
        two.filter(both),
        one.filter(pc.invert(pc.is_in(mine, value_set=theirs))),
        two.filter(pc.invert(both)),
    )


class _Stream:
    """What is left of a stream: `rows` is the next batch, None at the end."""

    def __init__(self, batches: Iterable[pa.RecordBatch], where: str) -> None:
        self._batches, self._where = iter(batches), where
        self.rows: pa.RecordBatch | None = None
        self.last = b""
        self._next()

    def take(self, count: int) -> pa.RecordBatch:
        """The next rows; no more than are in `rows`."""
        assert self.rows is not None
        taken, self.rows = self.rows.slice(0, count), self.rows.slice(count)
        if not self.rows.num_rows:
            self._next()
        return taken

    def upto(self, path: bytes) -> int:
        """How many rows of the batch have this path or a lower one."""
        assert self.rows is not None
        low, high = 0, int(self.rows.num_rows)
        if self.last <= path:
            return high
        paths = self.rows["path"]
        while low < high:
            middle = (low + high) // 2
            if paths[middle].as_py() <= path:
                low = middle + 1
            else:
                high = middle
        return low

    def _next(self) -> None:
        before, first = self.last, self.rows is None
        self.rows = next((batch for batch in self._batches if batch.num_rows), None)
        if self.rows is None:
            return
        paths = self.rows["path"]
        self.last = paths[-1].as_py()
        ascends = paths.is_valid().false_count == 0 and (first or before < paths[0].as_py())
        if not ascends or pc.any(pc.greater_equal(paths[:-1], paths[1:])).as_py():
            raise FailedError(
                "the rows are not in the order of their paths",
                where=self._where,
                why=f"near {printable(self.last.decode('utf-8', 'surrogateescape'))}",
                hint="the manifest is damaged: `penstock audit` says what else is",
            )


def together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of BATCH rows: files written in small groups give small ones."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in chain(batches, [None]):
        if batch is not None:
            waiting.append(batch)
            rows += batch.num_rows
        if waiting and (batch is None or rows >= BATCH):
            yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
            waiting, rows = [], 0
