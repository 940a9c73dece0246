"""The frozen listing: all objects of the sources that are to be copied, in byte order of their paths.

Its digest identifies the listed objects, whatever the page sizes of the listing. It is the SHA-256 of the
line `penstock listing 1\\n`, then of each group of 65,536 rows (the last may be shorter). A group consists of
its number of rows as a little-endian 64-bit integer, and of the columns with `Column.identity`, in the order
of `FORM`. A number column is a sequence of little-endian 64-bit integers. A text column has running offsets
(one more than rows, little-endian, 32 bit, from 0), followed by its bytes. These are Arrow's own buffers, so
hashing needs no copy.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from penstock.core import row_codec
from penstock.core.model import EARLIEST, LATEST, Entry, Listed, nearest_time
from penstock.core.row_codec import by_field, filled
from penstock.tables.tables import GROUP, Form, OnTable, TableWriter, read_batches, stored, values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa


FORM = Form(row_codec.LISTING, Entry._fields)
# This is independent of the file's format number, so that a new column does not make a new run of the same
# source.
_DIGEST_BEGINS = b"penstock listing 1\n"


class ListingWriter(OnTable):
    """Takes batches of any size. `close` makes the complete file appear. Raises `TableWriter`'s errors."""

    def __init__(self, path: Path) -> None:
        self._table = TableWriter(path, FORM)
        self._waiting: list[list[Any]] = [[] for _ in FORM.columns]
        self._sha = hashlib.sha256(_DIGEST_BEGINS)
        self._count = 0
        self._bytes = 0

    def add(self, batch: Sequence[Listed], *, paths: Sequence[str] | None = None, source: int = 0) -> None:
        """Append objects, in ascending byte order of their paths (by default their keys). Sizes must be below
        2**63. A time outside a row's range becomes the nearest time in it."""
        if not batch:
            return
        listed = by_field(Listed, batch)
        if min(listed["modified_ns"]) < EARLIEST or max(listed["modified_ns"]) > LATEST:
            listed["modified_ns"] = list(map(nearest_time, listed["modified_ns"]))
        self._count += len(batch)
        self._bytes += sum(listed["size"])
        listed |= {"path": paths or listed["key"], "source": [source] * len(batch)}
        for column, waiting in zip(FORM.columns, self._waiting, strict=True):
            waiting.extend(listed[column.name])
        while len(self._waiting[0]) >= GROUP:
            self._flush(GROUP)

    def close(self) -> tuple[str, int, int]:
        """Make the file complete and durable. Return the digest of its rows (`sha256:<hex>`; not of the
        file), the number of rows, and the sum of their sizes in bytes."""
        if self._waiting[0]:
            self._flush(len(self._waiting[0]))
        self._table.close()
        return f"sha256:{self._sha.hexdigest()}", self._count, self._bytes

    def _flush(self, rows: int) -> None:
        arrays = []
        self._sha.update(rows.to_bytes(8, "little"))
        for column, waiting in zip(FORM.columns, self._waiting, strict=True):
            array = stored(column, waiting[:rows])
            del waiting[:rows]
            if column.identity:
                for encoded in _canonical(array, rows, text=column.kind.text):
                    self._sha.update(encoded)
            arrays.append(array)
        self._table.write(arrays)


def _canonical(array: pa.Array, rows: int, *, text: bool) -> Iterator[pa.Buffer]:
    _, *buffers = array.buffers()
    if not text:
        yield buffers[0].slice(0, rows * 8)
        return
    offsets, content = buffers
    yield offsets.slice(0, (rows + 1) * 4)
    if array.total_values_length:
        yield content.slice(0, array.total_values_length)


def read_listing(path: Path) -> Iterator[list[Entry]]:
    """Read whole entries in order, in batches of at most 8,192. Raises FailedError."""
    return map(entries, read_columns(path))


def read_columns(path: Path) -> Iterator[pa.RecordBatch]:
    """Read the columns of `FORM` as stored, in batches. Raises the errors of `read_listing`."""
    return read_batches(
        path, FORM, hint=f"if it is damaged, remove {path.parent}: `penstock run` makes it anew"
    )


def entries(batch: pa.RecordBatch) -> list[Entry]:
    """Convert rows of a listing to entries: whole files that are not linked."""
    listed = values(batch)
    return filled(Entry, {**listed, "length": listed["size"]}, batch.num_rows)
