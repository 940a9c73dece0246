"""The Parquet files of a run: the frozen listing of all objects to copy, in byte order of their paths; its
shards, each with the rows of one element, contiguous in the planned order of paths; the survey of a shard's
rows in a tree that penstock did not write; and `elements.parquet`, a row for each element.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from array import array
from itertools import compress, islice
from os import fsdecode
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pyarrow as pa

from penstock.core import element_documents, row_codec
from penstock.core.element_documents import COLUMNS, TIME, ElementRow
from penstock.core.findings import SAME
from penstock.core.model import EARLIEST, LATEST, Entry, Expected, Listed, Surveyed, nearest_time
from penstock.core.row_codec import by_field, filled
from penstock.core.row_codec import rows as rows_of
from penstock.core.run_documents import ShardInfo
from penstock.tables.tables import (
    BATCH,
    GROUP,
    Form,
    OnTable,
    TableWriter,
    default,
    read_batches,
    stored,
    strings,
    values,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.core.run_documents import Cut


# The frozen listing: all objects of the sources that are to be copied, in byte order of their paths.
#
# Its digest identifies the listed objects, whatever the page sizes of the listing. It is the SHA-256 of the
# line `penstock listing 1\n`, then of each group of 65,536 rows (the last may be shorter). A group consists
# of its number of rows as a little-endian 64-bit integer, and of the columns with `Column.identity`, in the
# order of `LISTING_FORM`. A number column is a sequence of little-endian 64-bit integers. A text column has
# running offsets (one more than rows, little-endian, 32 bit, from 0), followed by its bytes. These are
# Arrow's own buffers, so hashing needs no copy.

LISTING_FORM = Form(row_codec.LISTING, Entry._fields)
# This is independent of the file's format number, so that a new column does not make a new run of the same
# source.
_DIGEST_BEGINS = b"penstock listing 1\n"


class ListingWriter(OnTable):
    """Takes batches of any size. `close` makes the complete file appear. Raises `TableWriter`'s errors."""

    def __init__(self, path: Path) -> None:
        self._table = TableWriter(path, LISTING_FORM)
        self._waiting: list[list[Any]] = [[] for _ in LISTING_FORM.columns]
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
        for column, waiting in zip(LISTING_FORM.columns, self._waiting, strict=True):
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
        for column, waiting in zip(LISTING_FORM.columns, self._waiting, strict=True):
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
    return map(entries, read_listing_columns(path))


def read_listing_columns(path: Path) -> Iterator[pa.RecordBatch]:
    """Read the columns of `LISTING_FORM` as stored, in batches. Raises the errors of `read_listing`."""
    return read_batches(
        path, LISTING_FORM, hint=f"if it is damaged, remove {path.parent}: `penstock run` makes it anew"
    )


def entries(batch: pa.RecordBatch) -> list[Entry]:
    """Convert rows of a listing to entries: whole files that are not linked."""
    listed = values(batch)
    return filled(Entry, {**listed, "length": listed["size"]}, batch.num_rows)


# Shards: an element is one task of a job array.
#
# A row is an `Entry`: a whole file, or one part of a giant. The row's index is its running number in the
# file. The file's SHA-256 identifies the shard in journals and receipts.

SHARD_FORM = Form(row_codec.SHARD, Entry._fields)
# the form of an audit's shard: the files that a release must have, according to its manifest
EXPECTED = Form(row_codec.AUDIT_SHARD, Expected._fields)


class ShardWriter(OnTable):
    """Takes rows in order. `close` makes the complete file appear."""

    def __init__(self, path: Path, index: int, form: Form = SHARD_FORM) -> None:
        self._table = TableWriter(path, form)
        self._form = form
        self._index = index
        self._rows = self._files = self._bytes = self._reused = 0

    def add(self, rows: Iterable[Entry] | Iterable[Expected], files: int | None = None) -> None:
        """Add rows in the file's order, in bounded memory. `files` is the number of files to count for these
        rows. If it is None, files that end in these rows are counted. Raises NoSpaceError, FailedError."""
        before = self._files
        for batch in as_columns(rows, self._form):
            self.add_columns(batch)
        if files is not None:
            self._files = before + files

    def add_columns(self, batch: pa.RecordBatch) -> None:
        parts, lengths = batch["part"].to_pylist(), batch["length"].to_pylist()
        whole = parts.count(-1)
        self._rows += len(parts)
        self._files += whole
        self._bytes += sum(lengths)
        if whole != len(parts):
            offsets, sizes = batch["offset"].to_pylist(), batch["size"].to_pylist()
            places = zip(parts, offsets, lengths, sizes, strict=True)
            self._files += sum(part >= 0 and offset + length == size for part, offset, length, size in places)
        self._reused += count_reused(batch) if self._form is SHARD_FORM else 0
        self._table.add(batch)

    def close(self) -> ShardInfo:
        """Make the file complete and durable."""
        digest = self._table.close()
        return ShardInfo(self._index, self._rows, self._files, self._bytes, self._reused, digest)


class ShardsWriter:
    """Writes the shards of a plan one after another. A `Cut` assigns rows to shards. As a context manager, it
    leaves no partial shard after an error."""

    def __init__(self, path: Callable[[int], Path], cut: Cut, form: Form = SHARD_FORM) -> None:
        self._path, self._cut, self._form = path, cut, form
        self._writer: ShardWriter | None = None
        self._index = -1
        self._made: list[ShardInfo] = []

    def runs(self, costs: Sequence[int]) -> Iterator[tuple[ShardWriter, int, int]]:
        """Yield (writer, start, end) for each run of rows in one shard. `costs`: the costs of the next
        rows."""
        for index, start, end in self._cut.runs(costs):
            yield self.at(index), start, end

    def at(self, index: int) -> ShardWriter:
        """Return this shard's writer, after closing the previous shard."""
        if self._writer is None or index != self._index:
            self.close()
            self._writer, self._index = ShardWriter(self._path(index), index, self._form), index
        return self._writer

    def close(self) -> list[ShardInfo]:
        """Close the last shard, and return all shards, complete and durable."""
        if self._writer is not None:
            self._made.append(self._writer.close())
            self._writer = None
        return self._made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._writer is not None:
            self._writer.abandon()


def read_shard(path: Path) -> Iterator[list[Entry]]:
    """Read the rows in order, in batches of at most 8,192. Raises FailedError."""
    return map(as_rows, read_batches(path, SHARD_FORM))


def read_expected(path: Path) -> Iterator[list[Expected]]:
    """Read the rows of an audit's shard, as `read_shard` does."""
    for batch in read_batches(path, EXPECTED):
        yield filled(Expected, values(batch), batch.num_rows)


def numbered(path: Path) -> Iterator[tuple[Sequence[int], pa.RecordBatch]]:
    """Read the stored rows with their numbers, in the groups as written. Raises FailedError."""
    row = 0
    for batch in read_batches(path, SHARD_FORM, batch=GROUP):
        yield range(row, row + batch.num_rows), batch
        row += batch.num_rows


def ends(path: Path) -> tuple[bytes, bytes]:
    """Return a shard's first and last path; both are empty if it has no rows. Raises FailedError."""
    first = last = b""
    for batch in read_batches(path, SHARD_FORM, batch=GROUP, names=("path",)):
        paths = batch["path"]
        first = first or paths[0].as_py()
        last = paths[len(paths) - 1].as_py()
    return first, last


def giants(path: Path) -> set[str]:
    """Return the paths of giants with parts in a shard. For groups that have only whole files, this reads one
    column and makes no Python objects. Raises FailedError."""
    parts = (batch["part"] for batch in read_batches(path, SHARD_FORM, batch=GROUP, names=("part",)))
    groups = [n for n, part in enumerate(parts) if not part.equals(default(SHARD_FORM, "part", len(part)))]
    paths: set[bytes] = set()
    for batch in read_batches(path, SHARD_FORM, batch=GROUP, names=("path", "part"), groups=groups):
        paths.update(compress(batch["path"].to_pylist(), (part >= 0 for part in batch["part"].to_pylist())))
    return set(map(fsdecode, paths))


def crossing(path: Path) -> tuple[str, str]:
    """Return the path of the giant that continues from the previous shard, and of the giant that continues
    into the next shard. A path is "" if there is no such giant. Raises FailedError."""
    names = ("path", "part", "offset", "length", "size")
    ends = [
        [batch[name][place].as_py() for name in names]
        for batch in read_batches(path, SHARD_FORM, batch=GROUP, names=names)
        for place in (0, batch.num_rows - 1)
    ]
    if not ends:
        return "", ""
    first, begun, *_ = ends[0]
    last, part, offset, length, size = ends[-1]
    goes_on = part >= 0 and offset + length < size
    return fsdecode(first) if begun > 0 else "", fsdecode(last) if goes_on else ""


def as_rows(batch: pa.RecordBatch) -> list[Entry]:
    return filled(Entry, values(batch), batch.num_rows)


def as_columns(
    rows: Iterable[Entry] | Iterable[Expected], form: Form = SHARD_FORM
) -> Iterator[pa.RecordBatch]:
    """Convert rows to a shard's stored form, in batches of at most 8,192."""
    left = iter(rows)
    while some := list(islice(left, BATCH)):
        yield pa.record_batch(form.arrays(by_field(type(some[0]), some)), schema=form.schema)


def whole_files(listed: pa.RecordBatch) -> pa.RecordBatch:
    """Convert rows of a listing to a shard's stored form: whole files that are not reused."""
    count = listed.num_rows
    have = dict(zip(listed.schema.names, listed.columns, strict=True)) | {"length": listed["size"]}
    arrays = [
        have[name] if name in have else default(SHARD_FORM, name, count) for name in SHARD_FORM.schema.names
    ]
    return pa.record_batch(arrays, schema=SHARD_FORM.schema)


def count_reused(batch: pa.RecordBatch) -> int:
    nothing: int = batch["reuse"].null_count
    return int(batch.num_rows) - nothing


# The survey of a shard's rows in a tree that penstock did not write: a folder of small files.
#
# An element adds a durable file every few seconds, and joins many files into one. If several files have a
# row, the last file counts. So a killed element loses some seconds of work, and a later file can mark a row
# to be read again.

SURVEY_FORM = Form(row_codec.SURVEY, Surveyed._fields)
MANY = 32  # number of files that are joined into one
_NAME = ".parquet"


class ShardSurvey:
    """The survey of a shard's `count` rows, as columns in memory."""

    def __init__(self, folder: Path, count: int) -> None:
        """Raises FailedError for an unreadable file."""
        self._folder = folder
        self._batches = [
            batch for name in _names(folder) for batch in read_batches(folder / name, SURVEY_FORM)
        ]
        self._table = pa.Table.from_batches(self._batches, schema=SURVEY_FORM.schema).combine_chunks()
        self._last = array("q", [-1]) * count
        for place, row in enumerate(self._table["row"].to_pylist()):
            self._last[row] = place
        self._states = strings(_one(self._table["state"]))

    def state(self, row: int) -> str:
        """Return a row's state; "" if it is not surveyed yet."""
        place = self._last[row]
        return self._states[place] if place >= 0 else ""

    def differed(self, numbers: Iterable[int]) -> frozenset[int]:
        """Select those surveyed rows that only a comparison of bytes can clear (see `Surveyed.how`)."""
        rows = list(numbers)
        surveyed = self.rows(rows) if rows else ()
        return frozenset(row.row for row in surveyed if row.state != SAME and row.how)

    def rows(self, numbers: Sequence[int]) -> list[Surveyed]:
        """Return the rows of these numbers. All must have been surveyed."""
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
    """Write a further file, durable on return, with rows that `host` read at time `seen_ns`. Raises the
    errors of `safe_open.storage_error`."""
    if not rows:
        return
    names = _names(folder)
    if len(names) >= MANY:
        _join(folder, names)
    values = by_field(Surveyed, rows)
    values |= {"verified_host": [host] * len(rows), "seen_ns": [seen_ns] * len(rows)}
    _write(folder, [pa.record_batch(SURVEY_FORM.arrays(values), schema=SURVEY_FORM.schema)])


def put(folder: Path, groups: Iterator[list[Surveyed]]) -> None:
    """Write a further file as `add` does, from complete rows in groups."""
    batches = (
        pa.record_batch(SURVEY_FORM.arrays(by_field(Surveyed, some)), schema=SURVEY_FORM.schema)
        for some in groups
        if some
    )
    _write(folder, batches)


def _write(folder: Path, batches: Iterator[pa.RecordBatch] | Sequence[pa.RecordBatch]) -> None:
    number = int(names[-1].partition("-")[0]) + 1 if (names := _names(folder)) else 0
    # Two attempts of an element may overlap. Neither may replace the other's file.
    with TableWriter(folder / f"{number:08d}-{secrets.token_hex(4)}{_NAME}", SURVEY_FORM) as writer:
        for batch in batches:
            writer.add(batch)
        writer.close()


def _join(folder: Path, names: Sequence[str]) -> None:
    """Join files into one, and remove them."""
    table = pa.Table.from_batches(
        [b for name in names for b in read_batches(folder / name, SURVEY_FORM)], schema=SURVEY_FORM.schema
    )
    last = {row: place for place, row in enumerate(table["row"].to_pylist())}
    _write(folder, table.take(sorted(last.values())).combine_chunks().to_batches(max_chunksize=GROUP))
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(folder / name)


_ELEMENT_TYPES: Mapping[object, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    TIME: pa.timestamp("ms", tz="UTC"),
}


class _ElementsForm(NamedTuple):
    """A form like `tables.tables.Form`, for rows that do not describe files."""

    kind: str
    schema: pa.Schema
    options: dict[str, object]


def _element_schema() -> pa.Schema:
    return pa.schema(
        [
            pa.field(
                column.name,
                _ELEMENT_TYPES[column.kind],
                metadata={"means": column.means, **({"unit": column.unit} if column.unit else {})},
            )
            for column in COLUMNS
        ]
    )


def write_elements(path: Path, rows: Sequence[ElementRow]) -> None:
    """Write the file, durable on return and readable for everybody. Raises NoSpaceError, FailedError."""
    form = _ElementsForm(f"elements {element_documents.FORMAT}", _element_schema(), {})
    columns = []
    for column in COLUMNS:
        values = [getattr(row, column.name) for row in rows]
        if column.kind == TIME:
            values = [None if value is None else round(value * 1000) for value in values]
        columns.append(pa.array(values, _ELEMENT_TYPES[column.kind]))
    with TableWriter(path, form, mode=0o644) as writer:
        writer.write(columns)
        writer.close()
