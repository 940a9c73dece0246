"""A shard: the rows of one element, a contiguous run of the planned rows in the paths' order.

A row is an `Entry`: a whole file, or one part of a giant. A row's index is its running number
in the file. The file's SHA-256 is the shard's identity: journals and receipts name it.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.core.model import Entry
from penstock.core.runs import ShardInfo
from penstock.formats.tables import (
    GROUP,
    OnTable,
    TableWriter,
    plain,
    read_batches,
    texts,
    tuples,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

KIND = "shard 1"
_NUMBERS = frozenset({"size", "modified_ns", "source", "part", "offset", "length"})
_SCHEMA = pa.schema(
    [
        pa.field(name, pa.int64() if name in _NUMBERS else pa.binary(), nullable=False)
        for name in Entry._fields
    ]
)


class ShardWriter(OnTable):
    """Takes rows in order; the file appears whole when it is closed."""

    def __init__(self, path: Path, index: int) -> None:
        self._table = TableWriter(
            path,
            _SCHEMA,
            KIND,
            use_dictionary=["source", "version", "checksum", "part"],
            column_encoding={"path": "DELTA_BYTE_ARRAY", "key": "DELTA_BYTE_ARRAY"},
        )
        self._index = index
        self._waiting: list[Entry] = []
        self._rows = self._files = self._bytes = self._reused = 0

    def add(self, rows: Iterable[Entry]) -> None:
        """Rows in the file's order. Raises NoSpaceError, FailedError."""
        self._waiting.extend(rows)
        while len(self._waiting) >= GROUP:
            self._group(GROUP)

    def close(self) -> ShardInfo:
        """The file is whole and durable."""
        if self._waiting:
            self._group(len(self._waiting))
        digest = self._table.close()
        return ShardInfo(self._index, self._rows, self._files, self._bytes, self._reused, digest)

    def _group(self, count: int) -> None:
        batch = self._waiting[:count]
        del self._waiting[:count]
        self._rows += count
        self._table.write(self._columns(batch))

    def _columns(self, rows: Sequence[Entry]) -> list[pa.Array]:
        columns = list(zip(*rows, strict=True))
        parts, offsets, lengths = columns[8], columns[9], columns[10]
        self._bytes += sum(lengths)
        self._reused += len(rows) - columns[11].count("")
        whole = parts.count(-1)
        self._files += whole
        if whole != len(rows):
            self._files += sum(
                part >= 0 and offset + length == size
                for part, offset, length, size in zip(parts, offsets, lengths, columns[2], strict=True)
            )
        return [
            pa.array(values, pa.int64()) if name in _NUMBERS else texts(values)
            for name, values in zip(Entry._fields, columns, strict=True)
        ]


def write_shard(path: Path, index: int, entries: Iterable[Entry]) -> ShardInfo:
    """Write one shard whole and durably, in bounded memory. Raises FailedError, NoSpaceError."""
    rows = iter(entries)
    with ShardWriter(path, index) as writer:
        while batch := list(islice(rows, 8192)):
            writer.add(batch)
        return writer.close()


def read_shard(path: Path) -> Iterator[list[Entry]]:
    """The rows in order, in batches of at most 8,192. Raises FailedError."""
    for batch in read_batches(path, KIND):
        yield tuples(Entry, zip(*map(plain, batch.columns), strict=True))
