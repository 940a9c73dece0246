"""`penstock diff`: computes the changes between two releases, or between a release and its source now. It
merges two streams of rows by the bytes of their paths, and pairs renamed files.
"""

from __future__ import annotations

from array import array
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.catalogue_rows import DiffCount, DiffRow
from penstock.core.errors import FailedError
from penstock.core.human import printable
from penstock.tables.row_streams import RowCursor, SpilledRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


# Merges two streams of rows in the byte order of their paths, batch by batch.
#
# Two manifests may have 10^6 rows or more and hardly differ. Python objects for all rows would take 10 s and
# more. So rows stay in Arrow's columns. One batch of each stream is in memory. Both batches are cut at the
# lower of their last paths, and a single look-up finds the common rows. If all paths are equal, as is usual,
# no look-up is needed.

BATCH = 1 << 16  # rows in one batch


class Met(NamedTuple):
    """The rows of both streams in one range of paths."""

    # rows of the first stream whose paths both streams have; `after` has the second stream's rows with these
    # paths, in the same order
    before: pa.RecordBatch
    after: pa.RecordBatch
    removed: pa.RecordBatch  # rows that only the first stream has
    added: pa.RecordBatch


def merged(before: Iterable[pa.RecordBatch], after: Iterable[pa.RecordBatch], where: str) -> Iterator[Met]:
    """Merge both streams to their ends. The column `path` is binary and must ascend. Raises FailedError,
    naming `where`, for a stream that does not ascend."""
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
    """Yield the batches that have rows. Raises FailedError if their paths do not ascend."""
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
    """Join the rows into batches of BATCH rows, since files written in small groups yield small batches."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in chain(batches, [None]):
        if batch is not None:
            waiting.append(batch)
            rows += batch.num_rows
        if waiting and (batch is None or rows >= BATCH):
            yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
            waiting, rows = [], 0


# Pairs removed and added rows that have the same bytes under different paths, in the order of their paths.
#
# A key, such as a digest with a size, proves that two files have the same bytes. A row is paired by the first
# of its key columns that has a counterpart. Each of several identical files is paired once. Memory: PASS
# rows, and 10 bytes for every row. For more rows the keys are read in several passes. Each pass takes the
# keys with certain values of the last two hexadecimal digits.

PASS = 1 << 19  # number of rows whose keys are in memory at once, at most
ENDS = [f"{number:02x}".encode() for number in range(256)]


class Pairs:
    """The pairs of removed and added rows."""

    def __init__(self, removed: int, added: int) -> None:
        # for each added row, the number of the removed row that is its partner; -1 if it has none
        self.came_from = array("q", [-1]) * added
        self.left = bytearray(removed)  # for each removed row, 1 if it has a partner, 0 if not
        self.came = bytearray(added)  # for each added row, 1 if it has a partner, 0 if not
        self.count = 0

    def add(self, removed: Sequence[int], added: Sequence[int]) -> None:
        came_from, left, came = self.came_from, self.left, self.came
        for old, new in zip(removed, added, strict=True):
            came_from[new] = old
            left[old] = came[new] = 1
        self.count += len(added)


def paired(removed: SpilledRows, added: SpilledRows, keys: Sequence[str], most: int = PASS) -> Pairs:
    """Pair rows by the columns `keys`: binary values that end in hexadecimal digits, or null for no key."""
    pairs = Pairs(len(removed), len(added))
    if not len(removed) or not len(added):
        return pairs
    passes = min(len(ENDS), -(-(len(removed) + len(added)) // most))
    for key in keys:
        for number in range(passes):
            ends = None if passes == 1 else pa.array(ENDS[number::passes], pa.binary())
            mine = _rows(removed, key, ends, pairs.left)
            theirs = _rows(added, key, ends, pairs.came)
            pairs.add(*_matched(mine, theirs))
    return pairs


def _rows(spilled: SpilledRows, key: str, ends: pa.Array | None, paired_already: bytearray) -> pa.Table:
    """Return keys and numbers of one pass's rows that have no partner yet."""
    batches = []
    for start, chunk in spilled.chunks():
        keys = chunk[key]
        free = pc.equal(flags(paired_already, start, chunk.num_rows), 0)
        wanted = pc.and_(pc.is_valid(keys), free)
        if ends is not None:
            wanted = pc.and_(wanted, pc.is_in(pc.binary_slice(keys, -2), value_set=ends))
        numbers = pa.array(range(start, start + chunk.num_rows), pa.int64())
        batches.append(pa.record_batch([keys, numbers], ["key", "number"]).filter(wanted))
    return pa.Table.from_batches(batches).combine_chunks()


def flags(values: bytearray, start: int, count: int) -> pa.Array:
    """Return the `count` flags from `start` as an array of numbers."""
    window = bytes(values[start : start + count])
    return pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(window)])


def _matched(removed: pa.Table, added: pa.Table) -> tuple[list[int], list[int]]:
    """Return the numbers of paired rows: a key's first removed with its first added row, and so on."""
    if not removed.num_rows or not added.num_rows:
        return [], []
    mine = removed.filter(pc.is_in(removed["key"], value_set=added["key"]))
    theirs = added.filter(pc.is_in(added["key"], value_set=mine["key"]))
    if not mine.num_rows:
        return [], []
    left, right = mine, theirs
    if any(pc.count_distinct(rows["key"]).as_py() < rows.num_rows for rows in (mine, theirs)):
        left, right = _ranked(mine), _ranked(theirs)
    places = pc.index_in(right["key"], value_set=left["key"])
    both = pc.is_valid(places)
    numbers = left["number"].take(places.filter(both))
    return numbers.to_pylist(), right["number"].filter(both).to_pylist()


def _ranked(rows: pa.Table) -> pa.Table:
    """Make keys unique: append to each key the number of earlier rows with that key."""
    count = rows.num_rows
    rows = rows.sort_by([("key", "ascending"), ("number", "ascending")]).combine_chunks()
    keys = rows["key"].combine_chunks() if isinstance(rows["key"], pa.ChunkedArray) else rows["key"]
    begins = pa.concat_arrays([pa.array([True]), pc.not_equal(keys[1:], keys[:-1])])
    group = pc.subtract(pc.cumulative_sum(pc.cast(begins, pa.int64())), 1)
    places = pa.array(range(count), pa.int64())
    rank = pc.subtract(places, places.filter(begins).take(group))
    named = pc.binary_join_element_wise(keys, pc.cast(pc.cast(rank, pa.string()), pa.binary()), b" ")
    return rows.set_column(0, "key", named)


def renamed(removed: SpilledRows, added: SpilledRows, pairs: Pairs) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield each pair's old path, new path and size, in the order of the new paths."""
    for start, chunk in added.chunks():
        paths, sizes = chunk["path"], chunk["size"]
        for place in range(chunk.num_rows):
            number = pairs.came_from[start + place]
            if number >= 0:
                before = removed.row(number, "path")
                assert isinstance(before, bytes)
                yield before, paths[place].as_py(), sizes[place].as_py()


def alone(rows: SpilledRows, paired_already: bytearray) -> Iterator[tuple[bytes, int]]:
    """Yield path and size of each row without a partner."""
    for start, chunk in rows.chunks():
        free = chunk.filter(pc.equal(flags(paired_already, start, chunk.num_rows), 0))
        yield from zip(free["path"].to_pylist(), free["size"].to_pylist(), strict=True)


# Counts the changes, and keeps their rows.
#
# `look.release_comparison` reads both sides as rows in byte order of the paths, and has the judges that say
# which rows are equal. Other rows are kept for `rows`, and spill into temporary files (`SpilledRows`) until
# the difference is closed.
#
# | a path is in                         | what both sides prove of the content | kind        |
# |--------------------------------------|--------------------------------------|-------------|
# | both                                 | it is equal                          | `unchanged` |
# | both                                 | it differs                           | `changed`   |
# | both                                 | neither                              | `unproven`  |
# | the former; another is in the latter | the two files are equal              | `renamed`   |
# | the former alone                     |                                      | `removed`   |
# | the latter alone                     |                                      | `added`     |

UNCHANGED, CHANGED, UNPROVEN = "unchanged", "changed", "unproven"
RENAMED, REMOVED, ADDED = "renamed", "removed", "added"
KINDS = (UNCHANGED, CHANGED, UNPROVEN, RENAMED, REMOVED, ADDED)
LISTED = (CHANGED, UNPROVEN, RENAMED, REMOVED, ADDED)  # the kinds whose rows are kept


class Judge(Protocol):
    """Decides which rows of two sides have the same content. Batches have at least the columns `path`
    (binary) and `size`."""

    keys: Sequence[str]  # names of the columns that prove a rename, best first (`paired`)

    def unlike(self, before: pa.RecordBatch, after: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """Return booleans for rows with equal paths: which changed, and which cannot be compared."""

    def before_keys(self, rows: pa.RecordBatch) -> Sequence[pa.Array]:
        """Return the columns `keys` for rows of the former side."""

    def after_keys(self, rows: pa.RecordBatch) -> Sequence[pa.Array]:
        """Return the columns `keys` for rows of the latter side."""


class ManifestDifference:
    """The result of one comparison, filled by one call of `compare`. It is a context manager, whose end
    removes the rows."""

    def __init__(self, keys: Sequence[str], in_memory: int | None = None) -> None:
        """`keys`: the judge's keys. `in_memory`: most rows of a kind in memory; None: as `SpilledRows`."""
        kept = {} if in_memory is None else {"in_memory": in_memory}
        self._files = ExitStack()
        single = pa.schema(
            [("path", pa.binary()), ("size", pa.int64()), *((key, pa.binary()) for key in keys)]
        )
        both = pa.schema([("path", pa.binary()), ("size", pa.int64()), ("before", pa.int64())])
        self.rows_of = {
            kind: self._files.enter_context(SpilledRows(schema, **kept))
            for kind, schema in ((REMOVED, single), (ADDED, single), (CHANGED, both), (UNPROVEN, both))
        }
        self.counts = dict.fromkeys(KINDS, DiffCount())
        self._pairs: Pairs | None = None
        self._keys = keys

    @property
    def equal(self) -> bool:
        """Whether every file is proven equal."""
        return not any(self.counts[kind].files for kind in LISTED)

    def compare(
        self, judge: Judge, before: Iterable[pa.RecordBatch], after: Iterable[pa.RecordBatch], where: str
    ) -> Self:
        """Compare two streams to their ends. Raises FailedError, naming `where`, unless their paths
        ascend."""
        for neighbours in merged(before, after, where):
            self._count_both(judge, neighbours.before, neighbours.after)
            self._keep_single(REMOVED, neighbours.removed, judge.before_keys)
            self._keep_single(ADDED, neighbours.added, judge.after_keys)
        for rows in self.rows_of.values():
            rows.finish()
        self._pair_renamed()
        return self

    def rows(self, kind: str) -> Iterator[DiffRow]:
        """Yield the rows of a kind of LISTED by path (the new path if renamed). Call it after `compare`."""
        assert self._pairs is not None
        if kind == RENAMED:
            for was, path, size in renamed(self.rows_of[REMOVED], self.rows_of[ADDED], self._pairs):
                yield DiffRow(kind, path, was, size, size)
        elif kind == REMOVED:
            for path, size in alone(self.rows_of[REMOVED], self._pairs.left):
                yield DiffRow(kind, path, None, None, size)
        elif kind == ADDED:
            for path, size in alone(self.rows_of[ADDED], self._pairs.came):
                yield DiffRow(kind, path, None, size, None)
        else:
            for _, chunk in self.rows_of[kind].chunks():
                for path, size, before in zip(
                    *(chunk[name].to_pylist() for name in chunk.schema.names), strict=True
                ):
                    yield DiffRow(kind, path, None, size, before)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def _count_both(self, judge: Judge, before: pa.RecordBatch, after: pa.RecordBatch) -> None:
        """Count rows whose paths both sides have, and keep the rows that are not proven equal."""
        if not before.num_rows:
            return
        changed, unproven = judge.unlike(before, after)
        alike = pc.invert(pc.or_(changed, unproven))
        sizes = after["size"]
        self.counts[UNCHANGED] += DiffCount(
            alike.true_count, _sum(sizes.filter(alike)), _sum(sizes.filter(alike))
        )
        for kind, which in ((CHANGED, changed), (UNPROVEN, unproven)):
            if which.true_count:
                columns = [after["path"], sizes, before["size"]]
                rows = pa.record_batch(
                    [column.filter(which) for column in columns], ["path", "size", "before"]
                )
                self.rows_of[kind].add(rows)
                self.counts[kind] += DiffCount(rows.num_rows, _sum(rows["size"]), _sum(rows["before"]))

    def _keep_single(
        self, kind: str, rows: pa.RecordBatch, keys: Callable[[pa.RecordBatch], Sequence[pa.Array]]
    ) -> None:
        """Count and keep rows whose paths only one side has, with the columns that prove renames."""
        if rows.num_rows:
            columns = [rows["path"], rows["size"], *keys(rows)]
            self.rows_of[kind].add(pa.record_batch(columns, ["path", "size", *self._keys]))
            size = _sum(rows["size"])
            self.counts[kind] += DiffCount(rows.num_rows, size, bytes_before=size if kind == REMOVED else 0)

    def _pair_renamed(self) -> None:
        """Count a removed and an added row with a common key (`paired`) as renamed."""
        removed, added = self.rows_of[REMOVED], self.rows_of[ADDED]
        self._pairs = pairs = paired(removed, added, self._keys)
        size = 0
        if pairs.count:
            for start, chunk in added.chunks():
                came = pc.equal(flags(pairs.came, start, chunk.num_rows), 1)
                size += _sum(chunk["size"].filter(came))
        self.counts[RENAMED] = DiffCount(pairs.count, size, size)
        self.counts[REMOVED] += DiffCount(-pairs.count, -size, -size)
        self.counts[ADDED] += DiffCount(-pairs.count, -size)


def _sum(sizes: pa.Array) -> int:
    return pc.sum(sizes).as_py() or 0
