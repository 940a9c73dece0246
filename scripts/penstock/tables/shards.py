"""Shards: a shard is a Parquet file with the rows of one element, contiguous in the planned order of paths.
Also the survey of a shard's rows in a tree that penstock did not write.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from array import array
from itertools import compress, islice
from os import fsdecode
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from penstock.core import row_codec
from penstock.core.differences import SAME
from penstock.core.model import Entry, Expected, Surveyed
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
    strings,
    values,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from penstock.core.balance import Cut


# Shards: an element is one task of a job array.
#
# A row is an `Entry`: a whole file, or one part of a giant. The row's index is its running number in the
# file. The file's SHA-256 identifies the shard in journals and receipts.

FORM = Form(row_codec.SHARD, Entry._fields)
# the form of an audit's shard: the files that a release must have, according to its manifest
EXPECTED = Form(row_codec.AUDIT_SHARD, Expected._fields)


class ShardWriter(OnTable):
    """Takes rows in order. `close` makes the complete file appear."""

    def __init__(self, path: Path, index: int, form: Form = FORM) -> None:
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
        self._reused += count_reused(batch) if self._form is FORM else 0
        self._table.add(batch)

    def close(self) -> ShardInfo:
        """Make the file complete and durable."""
        digest = self._table.close()
        return ShardInfo(self._index, self._rows, self._files, self._bytes, self._reused, digest)


class ShardsWriter:
    """Writes the shards of a plan one after another. A `Cut` assigns rows to shards. As a context manager, it
    leaves no partial shard after an error."""

    def __init__(self, path: Callable[[int], Path], cut: Cut, form: Form = FORM) -> None:
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
    return map(as_rows, read_batches(path, FORM))


def read_expected(path: Path) -> Iterator[list[Expected]]:
    """Read the rows of an audit's shard, as `read_shard` does."""
    for batch in read_batches(path, EXPECTED):
        yield filled(Expected, values(batch), batch.num_rows)


def numbered(path: Path) -> Iterator[tuple[Sequence[int], pa.RecordBatch]]:
    """Read the stored rows with their numbers, in the groups as written. Raises FailedError."""
    row = 0
    for batch in read_batches(path, FORM, batch=GROUP):
        yield range(row, row + batch.num_rows), batch
        row += batch.num_rows


def ends(path: Path) -> tuple[bytes, bytes]:
    """Return a shard's first and last path; both are empty if it has no rows. Raises FailedError."""
    first = last = b""
    for batch in read_batches(path, FORM, batch=GROUP, names=("path",)):
        paths = batch["path"]
        first = first or paths[0].as_py()
        last = paths[len(paths) - 1].as_py()
    return first, last


def giants(path: Path) -> set[str]:
    """Return the paths of giants with parts in a shard. For groups that have only whole files, this reads one
    column and makes no Python objects. Raises FailedError."""
    parts = (batch["part"] for batch in read_batches(path, FORM, batch=GROUP, names=("part",)))
    groups = [n for n, part in enumerate(parts) if not part.equals(default(FORM, "part", len(part)))]
    paths: set[bytes] = set()
    for batch in read_batches(path, FORM, batch=GROUP, names=("path", "part"), groups=groups):
        paths.update(compress(batch["path"].to_pylist(), (part >= 0 for part in batch["part"].to_pylist())))
    return set(map(fsdecode, paths))


def crossing(path: Path) -> tuple[str, str]:
    """Return the path of the giant that continues from the previous shard, and of the giant that continues
    into the next shard. A path is "" if there is no such giant. Raises FailedError."""
    names = ("path", "part", "offset", "length", "size")
    ends = [
        [batch[name][place].as_py() for name in names]
        for batch in read_batches(path, FORM, batch=GROUP, names=names)
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


def as_columns(rows: Iterable[Entry] | Iterable[Expected], form: Form = FORM) -> Iterator[pa.RecordBatch]:
    """Convert rows to a shard's stored form, in batches of at most 8,192."""
    left = iter(rows)
    while some := list(islice(left, BATCH)):
        yield pa.record_batch(form.arrays(by_field(type(some[0]), some)), schema=form.schema)


def whole_files(listed: pa.RecordBatch) -> pa.RecordBatch:
    """Convert rows of a listing to a shard's stored form: whole files that are not reused."""
    count = listed.num_rows
    have = dict(zip(listed.schema.names, listed.columns, strict=True)) | {"length": listed["size"]}
    arrays = [have[name] if name in have else default(FORM, name, count) for name in FORM.schema.names]
    return pa.record_batch(arrays, schema=FORM.schema)


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
    errors of `errno_map.storage_error`."""
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
