"""The frozen listing: every object of the sources that is to be copied, in the paths' byte order.

Its digest says what was listed, whatever the sizes of the pages it came in: SHA-256 over the
line `penstock listing 1\\n`, then, for each group of 65,536 rows (the last may be shorter), the
number of rows as a little-endian 64-bit integer and then the columns in the order of `COLUMNS`:
a number column as little-endian 64-bit integers, a text column as its rows + 1 running offsets
(little-endian, 32 bit, from 0) followed by its bytes. These are Arrow's own buffers, so that
hashing costs no copy.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.core.model import EARLIEST, LATEST, Entry, nearest_time
from penstock.formats.tables import GROUP, Form, OnTable, TableWriter, plain, read_batches, texts, tuples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.core.model import Listed

KIND = "listing 1"
COLUMNS = ("path", "key", "size", "token", "modified_ns", "source", "version", "checksum")
_NUMBERS = frozenset({"size", "modified_ns", "source"})
_SCHEMA = pa.schema(
    [pa.field(name, pa.int64() if name in _NUMBERS else pa.binary(), nullable=False) for name in COLUMNS]
)

_FORM = Form(_SCHEMA, Entry._field_defaults)


class ListingWriter(OnTable):
    """Takes batches of any size; the file appears whole when it is closed."""

    def __init__(self, path: Path) -> None:
        self._table = TableWriter(
            path,
            _SCHEMA,
            KIND,
            use_dictionary=["source", "version", "checksum"],
            column_encoding={"path": "DELTA_BYTE_ARRAY", "key": "DELTA_BYTE_ARRAY"},
        )
        self._waiting: list[list[Any]] = [[] for _ in COLUMNS]
        self._sha = hashlib.sha256(f"penstock {KIND}\n".encode())
        self._count = 0
        self._bytes = 0

    def add(self, batch: Sequence[Listed], *, paths: Sequence[str] | None = None, source: int = 0) -> None:
        """Append objects, in ascending byte order of their paths (the keys, if none are given). Sizes are
        below 2**63; a time that no row can hold becomes the nearest one."""
        if not batch:
            return
        keys, sizes, tokens, modified, versions, checksums = zip(*batch, strict=True)
        if min(modified) < EARLIEST or max(modified) > LATEST:
            modified = tuple(map(nearest_time, modified))
        self._count += len(batch)
        self._bytes += sum(sizes)
        rows: tuple[Sequence[Any], ...] = (
            paths or keys, keys, sizes, tokens, modified, [source] * len(keys), versions, checksums,
        )  # fmt: skip
        for waiting, values in zip(self._waiting, rows, strict=True):
            waiting.extend(values)
        while len(self._waiting[0]) >= GROUP:
            self._flush(GROUP)

    def close(self) -> tuple[str, int, int]:
        """The file is whole and durable. Returns its digest (`sha256:<hex>`, of the rows, not of the
        file), the number of rows and the sum of their sizes in bytes."""
        if self._waiting[0]:
            self._flush(len(self._waiting[0]))
        self._table.close()
        return f"sha256:{self._sha.hexdigest()}", self._count, self._bytes

    def _flush(self, rows: int) -> None:
        columns = []
        self._sha.update(rows.to_bytes(8, "little"))
        for name, waiting in zip(COLUMNS, self._waiting, strict=True):
            values = waiting[:rows]
            del waiting[:rows]
            column = pa.array(values, pa.int64()) if name in _NUMBERS else texts(values)
            for part in _canonical(column, rows, number=name in _NUMBERS):
                self._sha.update(part)
            columns.append(column)
        self._table.write(columns)


def _canonical(column: pa.Array, rows: int, *, number: bool) -> Iterator[memoryview]:
    buffers = column.buffers()
    if number:
        yield memoryview(buffers[1])[: rows * 8]
        return
    offsets = memoryview(buffers[1])[: (rows + 1) * 4]
    yield offsets
    length = offsets[rows * 4 :].cast("b").tobytes()
    if buffers[2] is not None:
        yield memoryview(buffers[2])[: int.from_bytes(length, "little")]


def read_listing(path: Path) -> Iterator[list[Entry]]:
    """The listing as whole entries, in order, in batches of at most 8,192. Raises FailedError."""
    return map(entries, read_columns(path))


def read_columns(path: Path) -> Iterator[pa.RecordBatch]:
    """The same, as it is stored: the columns `COLUMNS`."""
    return read_batches(
        path, KIND, _FORM, hint=f"if it is damaged, remove {path.parent}: the same command makes it anew"
    )


def entries(batch: pa.RecordBatch) -> list[Entry]:
    """Rows of a listing."""
    paths, keys, sizes, tokens, modified, sources, versions, checksums = map(plain, batch.columns)
    n = len(paths)
    columns = (
        paths, keys, sizes, tokens, modified, sources, versions, checksums,
        [-1] * n, [0] * n, sizes, [""] * n,
    )  # fmt: skip
    return tuples(Entry, zip(*columns, strict=True))
