"""Parquet files that get their name only when complete, and are read as a stream, in bounded memory.

Paths and keys are binary columns (`os.fsencode`), since names need not be UTF-8. A file's metadata states its
kind and format, so that reading a wrong file raises a clear error.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import secrets
import threading
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Protocol, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core import row_codec
from penstock.core.errors import STATE_ANEW, FailedError, refuse_newer
from penstock.core.human import in_quotes
from penstock.fs import small_files
from penstock.fs.safe_open import storage_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.core.row_codec import ByName, Column


# Lets a library read a file with bounded memory, whatever the file states about itself.
#
# A Parquet file of 50 KB can decode to terabytes, with a dictionary or a shared beginning of names. Neither
# its footer nor its pages show this. So during the reading, this process may take only `MOST_MEMORY` more
# bytes. Larger allocations fail, and Arrow raises MemoryError. The limit is RLIMIT_DATA, which counts the
# maps of malloc since Linux 4.7. Arrow uses the C library's malloc meanwhile, since mimalloc reserves a
# gibibyte ahead.
#
# Limits: other threads' allocations share the bound. Without /proc or RLIMIT_DATA memory is not bounded.

T = TypeVar("T")

MOST_MEMORY = 192 << 20  # bytes for decoding a batch: 65,536 rows with names of a kilobyte take half of them
_memory_held = threading.RLock()
_DATA_FIELD = 5  # field of /proc/self/statm: pages of data


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """Let allocations beyond `MOST_MEMORY` raise MemoryError inside the block. For one thread at a time."""
    with _memory_held:
        limits = resource.getrlimit(resource.RLIMIT_DATA)
        pool = pa.default_memory_pool()
        try:
            most = _data_pages() + MOST_MEMORY
            pa.set_memory_pool(pa.system_memory_pool())
            if limits[0] == resource.RLIM_INFINITY or limits[0] > most:
                resource.setrlimit(resource.RLIMIT_DATA, (most, limits[1]))
        except OSError:
            pass
        try:
            yield
        finally:
            pa.set_memory_pool(pool)
            resource.setrlimit(resource.RLIMIT_DATA, limits)


def each_bounded(items: Iterator[T]) -> Iterator[T]:
    """Yield the items up to the first None. Each item is made inside `bounded_memory`."""
    while True:
        with bounded_memory():
            item = next(items, None)
        if item is None:
            return
        yield item


def _data_pages() -> int:
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[_DATA_FIELD]) * resource.getpagesize()


BATCH = 8192  # rows in one batch when a file is read
GROUP = 65_536  # rows in one row group when a file is written
KIND = b"penstock"  # the metadata key whose value is the file's kind


class Form:
    """One kind of file (listing, shard, records, manifest), from `core.row_codec`: its Parquet schema, its
    encodings, and the defaults of its columns."""

    def __init__(self, file: str, names: Iterable[str]) -> None:
        """`names`: the fields of a row, in order."""
        self.columns = row_codec.of_file(file, names)
        self.kind = f"{file} {row_codec.file_format(file)}"
        manifest = file == row_codec.MANIFEST
        self.schema = pa.schema(
            [
                pa.field(c.name, _type(c, manifest=manifest), nullable=c.kind.row is not None)
                for c in self.columns
            ]
        )
        self.defaults = {c.name: c.default for c in self.columns if c.default is not row_codec.REQUIRED}
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
        return [stored(column, values[column.name]) for column in self.columns]


def _type(column: Column, *, manifest: bool = False) -> pa.DataType:
    if column.kind.row:
        return pa.struct([(field.name, _type(field, manifest=True)) for field in _fields(column)])
    return pa.type_for_alias(column.kind.manifest if manifest else column.kind.stored)


def _fields(column: Column) -> list[Column]:
    return [row_codec.BY_NAME[name] for name in column.kind.row._fields]


def _leaves(column: Column) -> list[tuple[str, Column]]:
    """Return the columns that Parquet stores for `column`, by path: itself, or the fields of its values."""
    if column.kind.row:
        return [(f"{column.name}.{field.name}", field) for field in _fields(column)]
    return [(column.name, column)]


def stored(column: Column, values: Sequence[Any]) -> pa.Array:
    """Make an array of a column's values, in the form of all files except the manifest."""
    return texts(values) if column.kind.text else pa.array(values, _type(column))


class WrittenForm(Protocol):
    """The facts that a writer needs: the file's kind with the format's number, its columns, and options of
    `ParquetWriter`."""

    @property
    def kind(self) -> str: ...
    @property
    def schema(self) -> pa.Schema: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


class ReadForm(WrittenForm, Protocol):
    """The facts that a reader needs: also the values of columns that a file may lack."""

    @property
    def defaults(self) -> Mapping[str, Any]: ...


class _Hashing:
    """A file that is written once from front to back, and hashed meanwhile."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._sha = hashlib.sha256()
        self.closed = False
        # whether the file was abandoned; if so, bytes that the Parquet writer writes on close are discarded
        self.dropped = False

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
    """Writes row groups to a temporary file. `close` makes the file durable and gives it its name.

    Callers pass either whole groups (`write`) or rows to be grouped (`add`). As a context manager, it removes
    the temporary file after an error.
    """

    def __init__(self, path: Path, form: WrittenForm, *, mode: int = 0o600) -> None:
        """Makes the folder of `path` and the temporary file. Raises NoSpaceError, FailedError."""
        small_files.make_dirs(path.parent)
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
        # Neighbours of similar size merge like the carries of a binary counter. So few batches wait, each row
        # is copied few times, and no slice keeps its large batch alive.
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
        """Write the remaining rows, make the file durable and name it. Return `sha256:<hex>` of its bytes. It
        removes the temporary file before it raises NoSpaceError or FailedError."""
        try:
            if self._waiting_rows:
                self._group(self._waiting_rows)
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            small_files.rename(self._temporary, self._path)
        except OSError as error:
            self.abandon()
            raise self._file_error(error) from error
        self._done = True
        return self._hashing.digest()

    def abandon(self) -> None:
        """Remove the temporary file, unless the writer was closed. A missing file is no error."""
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
    """Base class of writers of one table. As a context manager, it leaves no file after an error."""

    _table: TableWriter

    def abandon(self) -> None:
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
    """Read a file of this form in order. `names` and `groups`: the columns and row groups to read.

    If the file lacks a column, every row has its default. Numbers stored with a sign are read in the form's
    type. Raises FailedError for a missing or damaged file or a file of another kind, and NewerFormatError.
    """
    try:
        with opened(path) as table:
            _check_kind(_kind(table.schema_arrow), form.kind, path)
            wanted = list(names) if names else form.schema.names
            present = [name for name in wanted if name in table.schema_arrow.names]
            as_stored = present == wanted and all(
                table.schema_arrow.field(name).type == form.schema.field(name).type for name in wanted
            )
            some = list(groups) if groups is not None else None
            for rows in each_bounded(
                table.iter_batches(batch_size=batch, row_groups=some, columns=present, use_threads=False)
            ):
                yield rows if as_stored else _filled(rows, wanted, form, path)
    except UNREADABLE as error:
        raise FailedError(
            "a file of the run cannot be read", where=str(path), why=reason(error), hint=hint
        ) from error


# errors that reading a damaged or hostile table may raise
UNREADABLE = (OSError, MemoryError, KeyError, ValueError, pa.ArrowException)
ROWS_A_BYTE = 64  # most rows for each byte of a table, since names differ from row to row


@contextlib.contextmanager
def opened(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file that another account may have made. Raises one of `UNREADABLE`. That includes a
    file that is not plain, a footer above `MOST_MEMORY` in memory, and too many rows for its size."""
    with small_files.opened(path) as file:
        with bounded_memory():
            table = pq.ParquetFile(file, pre_buffer=False)
        with table:
            rows, size = table.metadata.num_rows, os.fstat(file.fileno()).st_size
            if not 0 <= rows <= size * ROWS_A_BYTE:
                raise ValueError(f"it says that it has {rows} rows, in {size} bytes")
            yield table


def reason(error: BaseException) -> str:
    """Return why a table cannot be read, in one line."""
    if isinstance(error, MemoryError):
        return f"it would take more than {MOST_MEMORY >> 20} MiB of memory"
    return str(error).partition("\n")[0]


def count_of(path: Path) -> int:
    """Return the number of rows that a file claims to have; -1 if it is unreadable."""
    try:
        with opened(path) as table:
            return int(table.metadata.num_rows)
    except UNREADABLE:
        return -1


def group_starts(path: Path, form: ReadForm, name: str) -> list[Any]:
    """Return a column's first value in each row group. Raises the errors of `read_batches`."""
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
    """Compare the kind that the file states (`held`) with `kind`, whose last word is the number of the
    format. Raises FailedError, NewerFormatError."""
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
    """Return the columns `names` in order, in the form's types. A missing column has its default."""
    filled = []
    for name in names:
        if name in rows.schema.names:
            kind = form.schema.field(name).type
            # The column is viewed, not cast, since a cast would load pyarrow.compute.
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
    value, kind = form.defaults[name], form.schema.field(name).type
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


def texts(values: Sequence[str]) -> pa.Array:
    """Make a binary column from strings, encoded by `os.fsencode`."""
    try:
        return pa.array(values, pa.binary())
    except UnicodeEncodeError:
        return pa.array([os.fsencode(value) for value in values], pa.binary())


def strings(column: pa.Array) -> list[str]:
    """Return the strings of a column that `texts` made."""
    try:
        # The column is viewed: a cast would load pyarrow.compute, 50 ms in every process that reads.
        decoded: list[str] = column.view(pa.string()).to_pylist()
    except UnicodeDecodeError:
        decoded = [os.fsdecode(value) for value in column.view(pa.binary()).to_pylist()]
    return decoded


def _rows(kind: type[Any], array: pa.StructArray) -> list[Any]:
    if array.null_count == len(array):
        return [None] * len(array)
    # In a flattened array, all fields of a null value are null.
    fields = (field.to_pylist() for field in array.flatten())
    made = row_codec.rows(kind, dict(zip(kind._fields, fields, strict=True)))
    return [None if row[0] is None else row for row in made]


def plain(column: Column, array: pa.Array) -> list[Any]:
    """Return a column's values, in the form that rows have."""
    if column.kind.row:
        return _rows(column.kind.row, array)
    values: list[Any] = strings(array) if column.kind.text else array.to_pylist()
    return values


def values(batch: pa.RecordBatch) -> dict[str, list[Any]]:
    return {
        name: plain(row_codec.BY_NAME[name], array)
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    }
