"""What verify saw of a shard: one row for each of the shard's rows, in the shard's order.

The file appears under its name only when it is whole and durable. A giant's parts are rows of
their own here; publish joins them into the manifest's records.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.core.model import Entry, Record
from penstock.formats.shards import KIND as SHARD
from penstock.formats.tables import GROUP, RowWriter, TableWriter, read_batches, strings, texts, tuples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

KIND = "records 1"
_PLACE = ("row", "part", "offset", "length")
_NUMBERS = frozenset({"size", "modified_ns", "source", "mtime_ns", "ctime_ns", *_PLACE})
_RAW = frozenset({"parts"})
# Few different values: a dictionary makes them almost free.
_REPEATED = [
    "version",
    "source",
    "source_grade",
    "storage_grade",
    "method",
    "written_host",
    "verified_host",
    "attempt",
    "parts",
    "digests",
    "part",
]
_NAMES = (*_PLACE, *Record._fields)
_SCHEMA = pa.schema(
    [pa.field(name, pa.int64() if name in _NUMBERS else pa.binary(), nullable=False) for name in _NAMES]
)


class SeenRow(NamedTuple):
    """One row of a shard as verify saw it."""

    row: int
    part: int
    """-1: a whole file. Else `record` speaks of this part: its digest, proof and grades."""
    offset: int
    length: int
    record: Record


class RecordWriter(RowWriter[SeenRow]):
    """Takes rows in the shard's order; `finish` makes the file appear."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            TableWriter(
                path,
                _SCHEMA,
                KIND,
                use_dictionary=_REPEATED,
                column_encoding={"path": "DELTA_BYTE_ARRAY", "key": "DELTA_BYTE_ARRAY"},
            )
        )

    def _columns(self, rows: Sequence[SeenRow]) -> list[pa.Array]:
        columns = zip(*((*row[:4], *row[4]) for row in rows), strict=True)
        return [_column(name, values) for name, values in zip(_NAMES, columns, strict=True)]

    def add_table(self, columns: Sequence[pa.Array]) -> None:
        """One row group, column by column in the file's order; not to be mixed with `add`."""
        self._table.write(columns)
        self.rows += len(columns[0])


def write_records(path: Path, rows: Iterable[SeenRow]) -> str:
    """Write a file of records whole; returns its `sha256:<hex>`."""
    left = iter(rows)
    with RecordWriter(path) as writer:
        while batch := list(islice(left, 8192)):
            writer.add(batch)
        return writer.finish()


def extend_shard(
    path: Path, shard: Path, columns: Callable[[int, int], Mapping[str, Sequence[object]]]
) -> None:
    """Write the records of a whole shard without touching its rows one by one: what an `Entry`
    has comes from the shard's file as it is, the rest from `columns(start, count)`, by name."""
    row = 0
    with RecordWriter(path) as writer:
        for batch in read_batches(shard, SHARD, batch=GROUP):
            count = batch.num_rows
            have = dict(zip(Entry._fields, batch.columns, strict=True))
            more = columns(row, count)
            writer.add_table(
                [
                    pa.array(range(row, row + count), pa.int64())
                    if name == "row"
                    else have[name]
                    if name in have
                    else _column(name, more[name])
                    for name in _NAMES
                ]
            )
            row += count
        writer.finish()


def _column(name: str, values: Sequence[object]) -> pa.Array:
    if name in _NUMBERS:
        return pa.array(values, pa.int64())
    return pa.array(values, pa.binary()) if name in _RAW else texts(values)  # type: ignore[arg-type]


def read_records(path: Path) -> Iterator[list[SeenRow]]:
    """The rows in order, in batches of at most 8,192. Raises FailedError."""
    for batch in read_batches(path, KIND):
        columns = [
            column.to_pylist() if name in _NUMBERS or name in _RAW else strings(column)
            for name, column in zip(_NAMES, batch.columns, strict=True)
        ]
        place = len(_PLACE)
        records = tuples(Record, zip(*columns[place:], strict=True))
        yield tuples(SeenRow, zip(*columns[:place], records, strict=True))
