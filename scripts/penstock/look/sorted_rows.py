"""Merges two streams of rows in the byte order of their paths, batch by batch.

The problem: two manifests of 10^6 rows or more that hardly differ; a Python object for each row would take 10
s and more. So rows stay in Arrow's columns. One batch of each stream is held. Both are cut at the lower of
their last paths, and one look-up finds the common rows. It is skipped if the paths are equal, as is usual.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import FailedError
from penstock.core.human import printable
from penstock.tables.row_cursor import RowCursor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BATCH = 1 << 16  # rows of one batch


class Met(NamedTuple):
    """Some neighbouring paths of both streams."""

    # rows of both, as the first stream has them; `after` has the same paths in the same order
    before: pa.RecordBatch
    after: pa.RecordBatch
    removed: pa.RecordBatch  # of the first stream alone
    added: pa.RecordBatch


def merged(before: Iterable[pa.RecordBatch], after: Iterable[pa.RecordBatch], where: str) -> Iterator[Met]:
    """Merge both streams to their ends, each row once. The column `path` is binary and ascends. Raises
    FailedError, naming `where`, for a stream that does not ascend."""
    left, right = RowCursor(_ascending(before, where)), RowCursor(_ascending(after, where))
    while left.rows is not None and right.rows is not None:
        last = min(left.last, right.last)
        yield _met(left.take(left.count(last)), right.take(right.count(last)))
    for rows in left.rest():
        none = rows.slice(0, 0)
        yield Met(none, none, rows, none)
    for rows in right.rest():
        none = rows.slice(0, 0)
        yield Met(none, none, none, rows)


def _met(left: pa.RecordBatch, right: pa.RecordBatch) -> Met:
    mine, theirs = left["path"], right["path"]
    if mine.equals(theirs):
        return Met(left, right, left.slice(0, 0), right.slice(0, 0))
    places = pc.index_in(theirs, value_set=mine)
    both = pc.is_valid(places)
    return Met(
        left.take(places.drop_null()),
        right.filter(both),
        left.filter(pc.invert(pc.is_in(mine, value_set=theirs))),
        right.filter(pc.invert(both)),
    )


def _ascending(batches: Iterable[pa.RecordBatch], where: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches that have rows; raise FailedError unless their paths ascend."""
    before: bytes | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        paths = batch["path"]
        first, last = paths[0].as_py(), paths[-1].as_py()
        ascends = paths.is_valid().false_count == 0 and (before is None or before < first)
        if not ascends or pc.any(pc.greater_equal(paths[:-1], paths[1:])).as_py():
            raise FailedError(
                "the rows are not in the order of their paths",
                where=where,
                why=f"near {printable(last.decode('utf-8', 'surrogateescape'))}",
                hint="the manifest is damaged: `penstock audit` says what else is",
            )
        before = last
        yield batch


def together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join the rows into batches of BATCH rows: files written in small groups give small batches."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in chain(batches, [None]):
        if batch is not None:
            waiting.append(batch)
            rows += batch.num_rows
        if waiting and (batch is None or rows >= BATCH):
            yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
            waiting, rows = [], 0
