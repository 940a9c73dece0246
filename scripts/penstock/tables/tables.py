"""Parquet files that appear whole under their name, or not at all, and are read as a stream.

Paths and keys are binary columns (`os.fsencode`): names that are not UTF-8 live in them. A
file says in its metadata what it holds, and in which format, so that a wrong one is a clear error.

The other modules of this room give the columns, and write and read by it. Writing makes the file's folder
where there is none, and a temporary file beside the file until that is whole. Reading changes nothing on
disk; it limits the memory of this process meanwhile (`host.bounded_memory`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core import columns, row_codec
from penstock.core.errors import STATE_ANEW, FailedError
from penstock.core.format_versions import refuse_newer
from penstock.core.text import in_quotes
from penstock.fs import durable, plain_files
from penstock.fs.errno_map import storage_error
from penstock.host import bounded_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.core.columns import Column
    from penstock.core.row_codec import ByName

BATCH = 8192
"""Rows of one batch when a file is read."""
GROUP = 65_536
"""Rows of one row group when a file is written."""
KIND = b"penstock"
"""The key of a file's metadata that says what the file holds."""


class Form:
    """One kind of file (listing, shards, records, manifest) by `core.columns`: its Parquet schema, its
    encodings, and the defaults of its columns."""

    def __init__(self, file: str, names: Iterable[str]) -> None:
        """`names`: the fields of its row, in order."""
        self.columns = columns.of_file(file, names)
        self.kind = f"{file} {columns.file_format(file)}"
        manifest = file == columns.MANIFEST
        self.schema = pa.schema(
            [
                pa.field(c.name, _type(c, manifest=manifest), nullable=c.kind.row is not None)
                for c in self.columns
            ]
        )
        self.defaults = {c.name: c.default for c in self.columns if c.default is not columns.REQUIRED}
        leaves = [leaf for column in self.columns for leaf in _leaves(column)]
        self.options: dict[str, object] = {
            "use_dictionary": [path for path, c in leaves if c.repeats],
            "column_encoding": {
                path: "DELTA_BYTE_ARRAY" if c.kind.text else "DELTA_BINARY_PACKED"
                for path, c in leaves
                if c.rises
            },
        }

    def arrays(self, values: ByName) -> list[pa.Array]:
        """The columns of some rows, in order, as they are stored."""
        return [stored(column, values[column.name]) for column in self.columns]


def _type(column: Column, *, manifest: bool = False) -> pa.DataType:
    if column.kind.row:
        return pa.struct([(field.name, _type(field, manifest=True)) for field in _fields(column)])
    return pa.type_for_alias(column.kind.manifest if manifest else column.kind.stored)


def _fields(column: Column) -> list[Column]:
    """Of a column whose values are rows."""
    return [columns.BY_NAME[name] for name in column.kind.row._fields]


def _leaves(column: Column) -> list[tuple[str, Column]]:
    """What Parquet stores of a column, each under its path: the column, or the fields of its rows."""
    if column.kind.row:
        return [(f"{column.name}.{field.name}", field) for field in _fields(column)]
    return [(column.name, column)]


def stored(column: Column, values: Sequence[Any]) -> pa.Array:
    """The values of some rows as all files but the manifest store them."""
    return texts(values) if column.kind.text else pa.array(values, _type(column))


class WrittenForm(Protocol):
    """What a writer must know of a file: what it says that it holds, with the number of its format; its
    columns; further options of `ParquetWriter`."""

    @property
    def kind(self) -> str: ...
    @property
    def schema(self) -> pa.Schema: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


class ReadForm(WrittenForm, Protocol):
    """What a reader must know besides: the values of columns that a file may lack."""

    @property
    def defaults(self) -> Mapping[str, Any]: ...


class _Hashing:
    """A file that is written once from front to back; hashes what passes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._sha = hashlib.sha256()
        self.closed = False
        self.dropped = False
        """The file was abandoned: bytes that the Parquet writer writes when it is closed are discarded."""

    def write(self, data: Any) -> int:
        if not self.dropped:
            self._sha.update(data)
            self._file.write(data)
        return len(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True

    def digest(self) -> str:
        return f"sha256:{self._sha.hexdigest()}"


class TableWriter:
    """Writes row groups under a temporary name; `close` makes them durable and names the file.
    It takes whole groups (`write`) or rows to make them of (`add`), not both.

    Used as a context manager: an error on the way removes the temporary file.
    """

    def __init__(self, path: Path, form: WrittenForm, *, mode: int = 0o600) -> None:
        """Makes the folder of `path` and the temporary file. Raises NoSpaceError, FailedError."""
        durable.make_dirs(path.parent)
        self._path = path
        self._temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._schema = form.schema.with_metadata({KIND: form.kind.encode()})
        try:
            self._file = os.fdopen(os.open(self._temporary, flags, mode), "wb", buffering=1 << 20)
        except OSError as error:
            raise self._file_error(error) from error
        self._hashing = _Hashing(self._file)
        self._done = False
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._writer: Any = None
        try:
            self._writer = pq.ParquetWriter(
                self._hashing,
                self._schema,
                compression="zstd",
                compression_level=1,
                write_statistics=False,
                **form.options,
            )
        except BaseException:
            self.abandon()
            raise

    def write(self, columns: Sequence[pa.Array]) -> None:
        """Append one row group. Raises NoSpaceError, FailedError."""
        try:
            self._writer.write_batch(pa.record_batch(columns, schema=self._schema))
        except OSError as error:
            raise self._file_error(error) from error

    def add(self, batch: pa.RecordBatch) -> None:
        """Append rows, in row groups of GROUP rows. Raises NoSpaceError, FailedError."""
        if not batch.num_rows:
            return
        self._waiting_rows += batch.num_rows
        # Neighbours of like size are merged, as a binary counter carries: so few batches wait, each row is
        # copied few times, and slices do not keep the large batches alive that they were cut from.
        while self._waiting and self._waiting[-1].num_rows <= batch.num_rows:
            (batch,) = pa.Table.from_batches([self._waiting.pop(), batch]).combine_chunks().to_batches()
        self._waiting.append(batch)
        while self._waiting_rows >= GROUP:
            self._group(GROUP)

    def _group(self, rows: int) -> None:
        waiting = pa.Table.from_batches(self._waiting)
        self.write([column.combine_chunks() for column in waiting.slice(0, rows).columns])
        self._waiting = waiting.slice(rows).to_batches()
        self._waiting_rows -= rows

    def close(self) -> str:
        """Write the rest and give the file its name; it is whole and durable then. Returns `sha256:<hex>` of
        its bytes. Raises NoSpaceError, FailedError, and removes the temporary file then."""
        try:
            if self._waiting_rows:
                self._group(self._waiting_rows)
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            durable.rename(self._temporary, self._path)
        except OSError as error:
            self.abandon()
            raise self._file_error(error) from error
        self._done = True
        return self._hashing.digest()

    def abandon(self) -> None:
        """Remove the temporary file, unless the table was closed. Raises nothing where the file is gone."""
        if self._done:
            return
        self._done = self._hashing.dropped = True
        if self._writer is not None:
            with contextlib.suppress(OSError, ValueError, pa.ArrowException):
                self._writer.close()
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)

    def _file_error(self, error: OSError) -> Exception:
        return storage_error(error, "a file of the run cannot be written", str(self._path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.abandon()


class OnTable:
    """Base of writers of one table. As a context manager: an error on the way leaves no file behind."""

    _table: TableWriter

    def abandon(self) -> None:
        """Remove the temporary file, unless the table was finished."""
        self._table.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.abandon()


def read_batches(
    path: Path,
    form: ReadForm,
    *,
    batch: int = BATCH,
    hint: str = "",
    names: Sequence[str] | None = None,
    groups: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file of this form, in order, with all columns or with those of `names`; with `groups`
    only those of these row groups. A column that the file lacks has its default in every row; numbers that it
    stores with a sign, and the form without, are read as the form has them. Raises FailedError when the file
    is missing, damaged or of another kind, and NewerFormatError."""
    try:
        with opened(path) as table:
            _check_kind(_kind(table.schema_arrow), form.kind, path)
            wanted = list(names) if names else form.schema.names
            there = [name for name in wanted if name in table.schema_arrow.names]
            as_stored = there == wanted and all(
                table.schema_arrow.field(name).type == form.schema.field(name).type for name in wanted
            )
            some = list(groups) if groups is not None else None
            for rows in bounded_memory.each(
                table.iter_batches(batch_size=batch, row_groups=some, columns=there, use_threads=False)
            ):
                yield rows if as_stored else _filled(rows, wanted, form, path)
    except UNREADABLE as error:
        raise FailedError(
            "a file of the run cannot be read", where=str(path), why=reason(error), hint=hint
        ) from error


UNREADABLE = (OSError, MemoryError, KeyError, ValueError, pa.ArrowException)
"""What reading a damaged table, or one made to harm its reader, raises."""
ROWS_A_BYTE = 64
"""A table has fewer rows than so many for each of its bytes: names differ from row to row."""


@contextlib.contextmanager
def opened(path: Path) -> Iterator[pq.ParquetFile]:
    """A Parquet file that another account may have made. Raises one of `UNREADABLE`: for what is no plain
    file, a footer that would take more memory than `bounded_memory.MOST`, and more rows than its size can
    hold."""
    with plain_files.opened(path) as file:
        with bounded_memory.bounded():
            table = pq.ParquetFile(file, pre_buffer=False)
        with table:
            rows, size = table.metadata.num_rows, os.fstat(file.fileno()).st_size
            if not 0 <= rows <= size * ROWS_A_BYTE:
                raise ValueError(f"it says that it has {rows} rows, in {size} bytes")
            yield table


def reason(error: BaseException) -> str:
    """Why a table cannot be read, in one line."""
    if isinstance(error, MemoryError):
        return f"it would take more than {bounded_memory.MOST >> 20} MiB of memory"
    return str(error).partition("\n")[0]


def count_of(path: Path) -> int:
    """The rows that a file has by its own words; -1 where it cannot be read."""
    try:
        with opened(path) as table:
            return int(table.metadata.num_rows)
    except UNREADABLE:
        return -1


def group_starts(path: Path, form: ReadForm, name: str) -> list[Any]:
    """The first value of a column in each row group. Raises as `read_batches`."""
    try:
        with opened(path) as table:
            count = table.num_row_groups
    except UNREADABLE as error:
        raise FailedError(
            "a file of the run cannot be read", where=str(path), why=reason(error), hint=STATE_ANEW
        ) from error
    starts = []
    for group in range(count):
        batches = read_batches(path, form, batch=1, names=[name], groups=[group])
        starts += [batch[name][0].as_py() for batch in islice(batches, 1)]
    return starts


def _kind(schema: pa.Schema) -> str:
    held: bytes = (schema.metadata or {}).get(KIND, b"")
    return held.decode(errors="replace")


def _check_kind(held: str, kind: str, path: Path) -> None:
    """Raises FailedError, NewerFormatError unless `held`, which the file says of itself, is `kind`, whose
    last word is the number of the format."""
    name, _, newest = kind.rpartition(" ")
    what, _, number = held.rpartition(" ")
    if what != name or not number.isdecimal():
        raise FailedError(
            "a file of the run holds something else",
            where=str(path),
            why=f"{in_quotes(held)}, not {in_quotes(kind)}",
            hint=STATE_ANEW,
        )
    refuse_newer(f"this {name}", int(number), int(newest), path)


def _filled(rows: pa.RecordBatch, names: Sequence[str], form: ReadForm, path: Path) -> pa.RecordBatch:
    """The columns `names` in this order, each of the form's type; a column that the file lacks is filled with
    its default."""
    filled = []
    for name in names:
        if name in rows.schema.names:
            kind = form.schema.field(name).type
            # A view instead of a cast, which would load pyarrow.compute.
            filled.append(rows[name] if rows[name].type == kind else rows[name].view(kind))
        elif name in form.defaults:
            filled.append(default(form, name, len(rows)))
        else:
            raise FailedError(
                "a file of the run is damaged",
                where=str(path),
                why=f"it has no column {in_quotes(name)}",
                hint=STATE_ANEW,
            )
    return pa.record_batch(filled, names=list(names))


def default(form: ReadForm, name: str, count: int) -> pa.Array:
    """A column of its default alone."""
    value, kind = form.defaults[name], form.schema.field(name).type
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


def texts(values: Sequence[str]) -> pa.Array:
    """A binary column of `os.fsencode`d strings."""
    try:
        return pa.array(values, pa.binary())
    except UnicodeEncodeError:
        return pa.array([os.fsencode(value) for value in values], pa.binary())


def strings(column: pa.Array) -> list[str]:
    """The inverse of `texts`."""
    try:
        # Seen as text, not cast: a cast loads pyarrow.compute, 50 ms in every process that reads.
        decoded: list[str] = column.view(pa.string()).to_pylist()
    except UnicodeDecodeError:
        decoded = [os.fsdecode(value) for value in column.view(pa.binary()).to_pylist()]
    return decoded


def _rows(kind: type[Any], array: pa.StructArray) -> list[Any]:
    """The values of a column of rows."""
    if array.null_count == len(array):
        return [None] * len(array)
    # Flattened, all fields of a null are null.
    fields = (field.to_pylist() for field in array.flatten())
    made = row_codec.rows(kind, dict(zip(kind._fields, fields, strict=True)))
    return [None if row[0] is None else row for row in made]


def plain(column: Column, array: pa.Array) -> list[Any]:
    """The values of a column, as they are in a row."""
    if column.kind.row:
        return _rows(column.kind.row, array)
    values: list[Any] = strings(array) if column.kind.text else array.to_pylist()
    return values


def values(batch: pa.RecordBatch) -> dict[str, list[Any]]:
    """The values of all columns, by name."""
    return {
        name: plain(columns.BY_NAME[name], array)
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    }
