"""The survey of a shard's rows in a tree that penstock did not write: a folder of small files.

An element adds a file every few seconds, durable, and joins many into one. The last file with a row counts.
So a killed element loses some seconds, and a row to be read again is marked by a later file.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from array import array
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.core import row_codec
from penstock.core.differences import SAME
from penstock.core.model import Surveyed
from penstock.core.row_codec import by_field
from penstock.core.row_codec import rows as rows_of
from penstock.tables.tables import GROUP, Form, TableWriter, read_batches, strings, values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

FORM = Form(row_codec.SURVEY, Surveyed._fields)
MANY = 32  # files that are joined to one
_NAME = ".parquet"


class ShardSurvey:
    """The survey of the shard's `count` rows, as columns in memory."""

    def __init__(self, folder: Path, count: int) -> None:
        """Raises FailedError for an unreadable file."""
        self._folder = folder
        self._batches = [batch for name in _names(folder) for batch in read_batches(folder / name, FORM)]
        self._table = pa.Table.from_batches(self._batches, schema=FORM.schema).combine_chunks()
        self._last = array("q", [-1]) * count
        for place, row in enumerate(self._table["row"].to_pylist()):
            self._last[row] = place
        self._states = strings(_one(self._table["state"]))

    def state(self, row: int) -> str:
        """Return a row's state; "": not surveyed yet."""
        place = self._last[row]
        return self._states[place] if place >= 0 else ""

    def differed(self, numbers: Iterable[int]) -> frozenset[int]:
        """Select the rows that only their bytes clear (see `Surveyed.how`); all must have been surveyed."""
        rows = list(numbers)
        surveyed = self.rows(rows) if rows else ()
        return frozenset(row.row for row in surveyed if row.state != SAME and row.how)

    def rows(self, numbers: Sequence[int]) -> list[Surveyed]:
        """Return rows by number; all must have been surveyed."""
        batches = self._table.take([self._last[number] for number in numbers]).combine_chunks().to_batches()
        return [row for batch in batches for row in rows_of(Surveyed, values(batch))]


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(_NAME) and name[0] != ".")
    except FileNotFoundError:
        return []


def add(folder: Path, rows: Sequence[Surveyed], *, host: str, seen_ns: int) -> None:
    """Write a further file, durable on return: rows read by this host at this time. Raises by
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
    """Do as `add`, for complete rows, many at a time."""
    batches = (
        pa.record_batch(FORM.arrays(by_field(Surveyed, some)), schema=FORM.schema) for some in groups if some
    )
    _write(folder, batches)


def _write(folder: Path, batches: Iterator[pa.RecordBatch] | Sequence[pa.RecordBatch]) -> None:
    number = int(names[-1].partition("-")[0]) + 1 if (names := _names(folder)) else 0
    # Two attempts of an element may overlap: neither replaces the other's file.
    with TableWriter(folder / f"{number:08d}-{secrets.token_hex(4)}{_NAME}", FORM) as writer:
        for batch in batches:
            writer.add(batch)
        writer.close()


def _join(folder: Path, names: Sequence[str]) -> None:
    """Join files into one, and remove them."""
    table = pa.Table.from_batches(
        [b for name in names for b in read_batches(folder / name, FORM)], schema=FORM.schema
    )
    last = {row: place for place, row in enumerate(table["row"].to_pylist())}
    _write(folder, table.take(sorted(last.values())).combine_chunks().to_batches(max_chunksize=GROUP))
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(folder / name)
