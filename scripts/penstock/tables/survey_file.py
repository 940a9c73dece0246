"""What was seen of a shard's rows in a tree that penstock did not write: a folder of small files.

An element writes a further file every few seconds, whole and durable, and joins them when there are many. Of
a row that stands in several files the last one counts. So an element that is killed loses some seconds, and a
row that has to be read again is said to be by a file that says so.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from array import array
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.core import columns
from penstock.core.documents.differences import SAME
from penstock.core.model import Surveyed
from penstock.core.row_codec import by_field
from penstock.core.row_codec import rows as rows_of
from penstock.tables.tables import GROUP, Form, TableWriter, read_batches, strings, values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

FORM = Form(columns.SURVEY, Surveyed._fields)
MANY = 32
"""Files that are joined to one."""
_NAME = ".parquet"


class ShardSurvey:
    """All that the files of a shard's folder say of the shard's `count` rows, as columns, all in memory."""

    def __init__(self, folder: Path, count: int) -> None:
        """Raises FailedError where a file cannot be read."""
        self._folder = folder
        self._batches = [batch for name in _names(folder) for batch in read_batches(folder / name, FORM)]
        self._table = pa.Table.from_batches(self._batches, schema=FORM.schema).combine_chunks()
        self._last = array("q", [-1]) * count
        for place, row in enumerate(self._table["row"].to_pylist()):
            self._last[row] = place
        self._states = strings(_one(self._table["state"]))

    def state(self, row: int) -> str:
        """ "" of a row that was not seen yet."""
        place = self._last[row]
        return self._states[place] if place >= 0 else ""

    def differed(self, numbers: Iterable[int]) -> frozenset[int]:
        """Of rows that were all seen, those that only their bytes clear: see `Surveyed.how`."""
        rows = list(numbers)
        seen = self.rows(rows) if rows else ()
        return frozenset(one.row for one in seen if one.state != SAME and one.how)

    def rows(self, numbers: Sequence[int]) -> list[Surveyed]:
        """Rows that were all seen, by their numbers."""
        batches = self._table.take([self._last[number] for number in numbers]).combine_chunks().to_batches()
        return [one for batch in batches for one in rows_of(Surveyed, values(batch))]


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(_NAME) and name[0] != ".")
    except FileNotFoundError:
        return []


def add(folder: Path, rows: Sequence[Surveyed], *, host: str, seen_ns: int) -> None:
    """Write a further file, durable on return: these rows, read by this host at this time. Raises by
    `errno_map.storage_error`."""
    if not rows:
        return
    names = _names(folder)
    if len(names) >= MANY:
        _join(folder, names)
    values = by_field(Surveyed, rows)
    values |= {"verified_host": [host] * len(rows), "seen_ns": [seen_ns] * len(rows)}
    _write(folder, [pa.record_batch(FORM.arrays(values), schema=FORM.schema)])


def put(folder: Path, groups: Iterator[list[Surveyed]]) -> None:
    """As `add`, of rows as they are, many at a time."""
    batches = (
        pa.record_batch(FORM.arrays(by_field(Surveyed, some)), schema=FORM.schema) for some in groups if some
    )
    _write(folder, batches)


def _write(folder: Path, batches: Iterator[pa.RecordBatch] | Sequence[pa.RecordBatch]) -> None:
    number = int(names[-1].partition("-")[0]) + 1 if (names := _names(folder)) else 0
    # Two attempts of an element may overlap: neither replaces what the other wrote.
    with TableWriter(folder / f"{number:08d}-{secrets.token_hex(4)}{_NAME}", FORM) as writer:
        for batch in batches:
            writer.add(batch)
        writer.close()


def _join(folder: Path, names: Sequence[str]) -> None:
    """Make one file of these, which are gone then."""
    table = pa.Table.from_batches(
        [b for name in names for b in read_batches(folder / name, FORM)], schema=FORM.schema
    )
    last = {row: place for place, row in enumerate(table["row"].to_pylist())}
    _write(folder, table.take(sorted(last.values())).combine_chunks().to_batches(max_chunksize=GROUP))
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(folder / name)
