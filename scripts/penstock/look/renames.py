"""Pairs removed and added rows that hold the same bytes under different paths, in the order of their paths.

A key proves that two files hold the same bytes, such as a digest and a size. A row is paired by the first of
its key columns that has a counterpart; identical files are each paired once. Memory: PASS rows, and 10 bytes
for every row. For more rows the keys are read in several passes, each for certain last two hexadecimal
digits.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.tables.spilled_rows import SpilledRows

PASS = 1 << 19  # rows whose keys are held at once
ENDS = [f"{number:02x}".encode() for number in range(256)]


class Pairs:
    """Which removed row became which added row."""

    def __init__(self, removed: int, added: int) -> None:
        self.came_from = array("q", [-1]) * added  # for each added row the number of the removed row; -1: new
        self.left = bytearray(removed)  # for each removed row 1 if it has another path now
        self.came = bytearray(added)  # for each added row 1 if it had another path before
        self.count = 0

    def add(self, removed: Sequence[int], added: Sequence[int]) -> None:
        came_from, left, came = self.came_from, self.left, self.came
        for old, new in zip(removed, added, strict=True):
            came_from[new] = old
            left[old] = came[new] = 1
        self.count += len(added)


def paired(removed: SpilledRows, added: SpilledRows, keys: Sequence[str], most: int = PASS) -> Pairs:
    """Pair by the columns `keys`: binary, ending in hexadecimal digits, null without a key."""
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
    """Return keys and numbers of the rows of one pass that have no partner yet."""
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
    """Return some of these flags as an array of numbers."""
    window = bytes(values[start : start + count])
    return pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(window)])


def _matched(removed: pa.Table, added: pa.Table) -> tuple[list[int], list[int]]:
    """Return the numbers of paired rows: the first of a key with the first of that key, and so on."""
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
    """Make keys unique by adding the number of earlier rows with the same key."""
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
    """Yield old path, new path and size of each pair, in the order of the new paths."""
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
