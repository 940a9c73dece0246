"""Records and manifests: records of many files as columns, the rows that verify read of a shard, and a
release's manifests. These are a Parquet file and checksum files for common tools.
"""

from __future__ import annotations

import os
from itertools import groupby
from operator import lt
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pyarrow as pa

from penstock.core import model
from penstock.core import row_codec as table
from penstock.core.errors import IMPOSSIBLE, LOOK_AT_FILE, STATE_ANEW, FailedError
from penstock.core.model import Record
from penstock.core.row_codec import BY_NAME, MANIFEST, RECORDS, by_field, rows
from penstock.fs import small_files
from penstock.tables import tables
from penstock.tables.tables import (
    BATCH,
    UNREADABLE,
    Form,
    OnTable,
    TableWriter,
    group_starts,
    opened,
    plain,
    read_batches,
    reason,
    stored,
    strings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


# Records as columns: publish handles all files of a release in one process, so the work per file must be
# small. A record describes one copied file: path, digest, grades, times (`core.model.Record`).

_FORM = Form(RECORDS, Record._fields)


class Files:
    def __init__(self, batch: pa.RecordBatch) -> None:
        """`batch`: rows of records or of a manifest, with at least the columns that will be requested."""
        self._batch = batch
        self._values: dict[str, list[Any]] = {}

    @classmethod
    def of(cls, records: Sequence[Record]) -> Self:
        """Make columns from records, in their order."""
        return cls(pa.record_batch(_FORM.arrays(by_field(Record, records)), schema=_FORM.schema))

    def __len__(self) -> int:
        count: int = self._batch.num_rows
        return count

    def __getitem__(self, name: str) -> list[Any]:
        """Return a field of all records, in order. The caller must not change the list."""
        if name not in self._values:
            self._values[name] = plain(BY_NAME[name], self._batch[name])
        return self._values[name]

    def stored(self, name: str) -> pa.Array:
        """Return a field as the file's Arrow array."""
        return self._batch[name]

    def record(self, index: int) -> Record:
        return Record(*(self[name][index] for name in Record._fields))

    def records(self) -> list[Record]:
        """Return all records, in order. Each becomes an object, so call it for few records only."""
        return rows(Record, self)


# The rows that verify read of a shard: a record for each of the shard's rows, in the shard's order. The file
# appears under its name only when complete and durable. Here each part of a giant is a row; publish joins the
# parts into the manifest's record.

_PLACE = ("row", "part", "offset", "length")
_SEEN_FORM = Form(table.RECORDS, (*_PLACE, *Record._fields))


class SeenRow(NamedTuple):
    row: int
    part: int  # number of a giant's part, whose digest, proof and grades `record` has; -1 for a whole file
    offset: int  # offset of the part in its object, in bytes; `length` is in bytes, too
    length: int
    record: Record


def extend_shard(
    path: Path,
    shard: Iterable[tuple[Sequence[int], pa.RecordBatch]],
    columns: Callable[[Sequence[int]], Mapping[str, Sequence[object]]],
) -> None:
    """Write a shard's records without a Python object for each row.

    Fields of `Entry` come from the shard's stored rows (`numbered`, or rows of another version). The other
    fields come from `columns(numbers of rows)`, by name. The file is durable on return. Raises NoSpaceError,
    FailedError.
    """
    with TableWriter(path, _SEEN_FORM) as writer:
        for numbers, batch in shard:
            have = dict(zip(batch.schema.names, batch.columns, strict=True))
            more = {"row": numbers, **columns(numbers)}
            writer.write(
                [have[c.name] if c.name in have else stored(c, more[c.name]) for c in _SEEN_FORM.columns]
            )
        writer.close()


def read_records(path: Path) -> Iterator[Files | list[SeenRow]]:
    """Read the rows in order, at most 8,192 at a time: either neighbouring whole files, or parts of giants.
    Raises FailedError, also if the rows' numbers do not ascend."""
    last = -1
    for batch in read_batches(path, _SEEN_FORM):
        numbers = [last, *batch["row"].to_pylist()]
        if not all(map(lt, numbers, numbers[1:])):
            raise FailedError("a shard's records are not in order", where=str(path), hint=STATE_ANEW)
        last = numbers[-1]
        parts = batch["part"].to_pylist()
        if parts.count(-1) == len(parts):
            yield Files(batch)
            continue
        start = 0
        for whole, run in groupby(parts, (-1).__eq__):
            length = len(list(run))
            some = batch.slice(start, length)
            yield Files(some) if whole else _rows(some)
            start += length


def _rows(batch: pa.RecordBatch) -> list[SeenRow]:
    places = {name: batch[name].to_pylist() for name in _PLACE}
    return rows(SeenRow, {**places, "record": Files(batch).records()})


# The manifests of a release:
#
# All manifests are written under a temporary name, and appear complete and durable when closed. Rows are in
# canonical order (bytes of the path).

FORM = Form(MANIFEST, Record._fields)


class ManifestWriter(OnTable):
    """Writes `manifest.parquet`, which has every record. `finish` makes it durable and names it."""

    def __init__(self, path: Path, *, mode: int = 0o600) -> None:
        self._table = TableWriter(path, FORM, mode=mode)

    def add(self, files: Files) -> None:
        """Append records, in the order of the paths. Raises NoSpaceError, FailedError."""
        self._table.add(pa.record_batch([_stored(field, files) for field in FORM.schema], schema=FORM.schema))

    def finish(self) -> str:
        """Make the file durable under its name; return its `sha256:<hex>`."""
        return self._table.close()


def _stored(field: pa.Field, files: Files) -> pa.Array:
    stored = files.stored(field.name)
    if field.type == stored.type:
        return stored
    # The bytes are viewed as text, not cast, since a cast would load pyarrow.compute.
    if pa.types.is_string(field.type):
        text = stored.view(field.type)
        try:
            text.validate(full=True)
        except pa.ArrowInvalid as error:
            raise FailedError(
                "a record's field is not text", where=field.name, why=str(error), hint=IMPOSSIBLE
            ) from None
        return text
    return pa.array(files[field.name], field.type)


def read_manifest(path: Path, *, rows: int = BATCH) -> Iterator[list[Record]]:
    """Read a manifest's records in its order, in batches of at most `rows`. Raises FailedError for a missing
    or damaged file."""
    return (files.records() for files in read_files(path, rows=rows))


def read_files(path: Path, *, rows: int = BATCH, columns: Sequence[str] | None = None) -> Iterator[Files]:
    """Read the fields `columns` of records as `Files`, in batches. Raises the errors of `read_manifest`."""
    return map(Files, read_batches(path, FORM, batch=rows, names=columns))


def some_paths(path: Path, count: int) -> Iterator[str]:
    """Yield up to `count` paths spread over a manifest. It keeps one row group in memory. Raises FailedError
    for a damaged manifest."""
    try:
        with opened(path) as table:
            rows, begins = table.metadata.num_rows, 0
            places = sorted({rows * number // count for number in range(count)} if rows else ())
            for group in range(table.metadata.num_row_groups):
                ends = begins + table.metadata.row_group(group).num_rows
                if wanted := [place - begins for place in places if begins <= place < ends]:
                    with tables.bounded_memory():
                        paths = table.read_row_group(group, columns=["path"], use_threads=False)["path"]
                    yield from (os.fsdecode(paths[place].as_py()) for place in wanted)
                begins = ends
    except UNREADABLE as error:
        raise FailedError(
            "a manifest cannot be read", where=str(path), why=reason(error), hint=LOOK_AT_FILE
        ) from error


def read_columns(path: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Read columns of a manifest as stored, in batches. Raises the errors of `read_manifest`."""
    return read_batches(path, FORM, names=names)


def with_digests(path: Path, digests: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield path and time (`mtime_ns`) of the records with one of these digests. Raises the errors of
    `read_manifest`."""
    import pyarrow.compute as pc

    wanted = pa.array(sorted(digests), pa.string())
    for batch in read_columns(path, ("path", "digest", "mtime_ns")):
        matches = batch.filter(pc.is_in(batch["digest"], wanted))
        yield from zip(strings(matches["path"]), matches["mtime_ns"].to_pylist(), strict=True)


def read_between(path: Path, first: bytes, last: bytes, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Read the columns `names` of the rows from path `first` to path `last`, and of some neighbouring rows.
    Other row groups are skipped. Raises the errors of `read_manifest`."""
    starts = group_starts(path, FORM, "path")
    groups = [
        index
        for index, start in enumerate(starts)
        if start <= last and (index + 1 == len(starts) or starts[index + 1] >= first)
    ]
    return read_batches(path, FORM, names=names, groups=groups)


def checksums(files: Files, algorithm: str) -> list[tuple[str, str]]:
    """Return (digest in hexadecimal, path) of files with a digest of `algorithm` over all their bytes."""
    own, paths = files["digest"], files["path"]
    plain = model.values(own, algorithm)
    if plain is not None:
        return list(zip(plain, paths, strict=True))
    sums = []
    for path, digest, further in zip(paths, own, files["digests"], strict=True):
        value = model.value_of((model.Digest.parse(digest), *model.listed(further)), algorithm)
        if value is not None:
            sums.append((value, path))
    return sums


class ChecksumFile:
    """Writes `<hex>  data/<path>` lines for `xxhsum -c` or `sha256sum -c`, run in the release's folder.

    xxhsum 0.8.1 (Debian 12) never unescapes names, so names are written raw for xxhsum. It cannot read a name
    with a line feed at all. Such a name is escaped for xxhsum 0.8.2, and counted in `escaped`. For sha256sum,
    escaping works for every name.
    """

    def __init__(self, path: Path, *, algorithm: str, mode: int = 0o600) -> None:
        self._file = small_files.Growing(path, mode=mode)
        self.algorithm = algorithm
        self._always = algorithm != "xxh3_128"
        self.lines = 0
        self.escaped = 0

    def add(self, pairs: Sequence[tuple[str, str]]) -> None:
        lines = os.fsencode("".join([f"{hexadecimal}  data/{path}\n" for hexadecimal, path in pairs]))
        plain = not self._always or not (b"\\" in lines or b"\r" in lines)
        if plain and lines.count(b"\n") == len(pairs):
            self._file.stream.write(lines)
            self.lines += len(pairs)
            return
        for hexadecimal, path in pairs:
            self._add(hexadecimal, path)

    def _add(self, hexadecimal: str, path: str) -> None:
        name = b"data/" + os.fsencode(path)
        marker = b""
        special = b"\n" in name or (self._always and (b"\\" in name or b"\r" in name))
        if special:
            marker = b"\\"
            name = name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n")
            if self._always:
                name = name.replace(b"\r", b"\\r")
            self.escaped += 1
        self._file.stream.write(b"%b%b  %b\n" % (marker, hexadecimal.encode(), name))
        self.lines += 1

    def close(self) -> None:
        """Make the file durable under its name. Raises OSError."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._file.abandon()
