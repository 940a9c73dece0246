"""Reads the lists of a source's objects that others made, as columns of plain values: data files of an S3
Inventory (CSV by gzip, Parquet and ORC), and lists of keys (a key per line, keys separated by NULs, CSV with
a header, Parquet). One batch of rows is kept in memory, or one stripe for ORC (64 MiB from Amazon S3).
"""

from __future__ import annotations

import csv
import gzip
import io
import os
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.orc as po
import pyarrow.parquet as pq

from penstock.core.errors import PreflightError
from penstock.core.human import in_quotes, nanoseconds
from penstock.core.model import Listed, SourceChecksum
from penstock.tables.tables import strings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


INVENTORY_BATCH = 8192  # rows in one batch
CSV_BLOCK = 1 << 20  # bytes of text that are parsed at once
FORMATS = ("CSV", "Parquet", "ORC")
# The values of each column, by its canonical name: text as `str` from `os.fsdecode`, times in nanoseconds,
# None if not stated. In CSV all values are text, and "" means not stated.
Rows = dict[str, list[Any]]


TIME = "lastmodifieddate"


def canonical(name: str) -> str:
    """Normalise a column's name: CSV has `LastModifiedDate`, the other formats `last_modified_date`."""
    return name.replace("_", "").lower()


def read_inventory(
    path: Path, kind: str, columns: Sequence[str], wanted: Sequence[str], where: str
) -> Iterator[Rows]:
    """Read a data file in batches, in its order. `kind`: its format, from FORMATS. `columns`: the names of
    all its columns, in order. `wanted`: canonical names. Raises PreflightError if the file is damaged or
    lacks a column."""
    by_name = {canonical(name): name for name in columns}
    ways = {"CSV": _inventory_csv, "Parquet": _inventory_parquet, "ORC": _orc}
    try:
        for batch in ways[kind](path, columns, by_name, wanted):
            yield {
                name: (plain_times if name == TIME else plain_values)(batch[by_name[name]]) for name in wanted
            }
    except (OSError, EOFError, KeyError, ValueError, pa.ArrowException) as error:
        raise PreflightError(
            "a file of the inventory cannot be read",
            where=where,
            why=str(error).partition("\n")[0],
            hint="it is damaged, or no inventory's: have it fetched again, or use the next inventory",
        ) from error


def _inventory_csv(
    path: Path, columns: Sequence[str], by_name: Mapping[str, str], wanted: Sequence[str]
) -> Iterator[Mapping[str, pa.Array]]:
    with open(path, "rb") as plain:
        compressed = plain.read(2) == b"\x1f\x8b"
    names = [by_name[name] for name in wanted]
    with pa.input_stream(str(path), compression="gzip" if compressed else None) as stream:
        try:
            reader = pc.open_csv(
                stream,
                read_options=pc.ReadOptions(
                    column_names=list(columns), block_size=CSV_BLOCK, use_threads=False
                ),
                convert_options=pc.ConvertOptions(
                    column_types=dict.fromkeys(columns, pa.binary()),
                    include_columns=names,
                    strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):
                return
            raise
        for batch in reader:
            yield dict(zip(names, batch.columns, strict=True))


def _inventory_parquet(
    path: Path,
    columns: Sequence[str],  # noqa: ARG001 (the file has its own)
    by_name: Mapping[str, str],
    wanted: Sequence[str],
) -> Iterator[Mapping[str, pa.Array]]:
    names = [by_name[name] for name in wanted]
    with open(path, "rb") as file, pq.ParquetFile(file, pre_buffer=False) as table:
        _refuse_missing(names, table.schema_arrow.names)
        for batch in table.iter_batches(batch_size=INVENTORY_BATCH, columns=names, use_threads=False):
            yield {name: batch[name] for name in names}


def _orc(
    path: Path,
    columns: Sequence[str],  # noqa: ARG001 (the file has its own)
    by_name: Mapping[str, str],
    wanted: Sequence[str],
) -> Iterator[Mapping[str, pa.Array]]:
    names = [by_name[name] for name in wanted]
    with open(path, "rb") as file:
        table = po.ORCFile(file)
        _refuse_missing(names, table.schema.names)
        for number in range(table.nstripes):
            stripe = table.read_stripe(number, columns=names)
            for start in range(0, stripe.num_rows, INVENTORY_BATCH):
                some = stripe.slice(start, INVENTORY_BATCH)
                yield {name: some[name] for name in names}


def _refuse_missing(names: Sequence[str], present: Sequence[str]) -> None:
    if missing := [name for name in names if name not in present]:
        raise ValueError(f"it has no column {', '.join(missing)}, which the manifest names")


def plain_times(column: pa.Array) -> list[Any]:
    """Convert a column of times, as `plain_values`. Raises ValueError for numbers: their unit is unknown."""
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        raise ValueError(f"its times are numbers ({column.type}), and not timestamps or text")
    return plain_values(column)


def plain_values(column: pa.Array) -> list[Any]:
    """Convert a column to plain values; times become nanoseconds since the epoch."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        each = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[kind.unit]
        numbers = column.cast(pa.int64()).to_pylist()
        return [None if number is None else number * each for number in numbers]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return strings(column)
    values: list[Any] = column.to_pylist()
    return values


# Reads lists of keys: a key per line, keys separated by NULs, CSV with a header, or Parquet. All may be
# compressed by gzip.
#
# Keys keep their bytes. One batch of rows and one line are kept in memory. Other columns are ignored.
#
# | column     | also called                      | content                                         |
# |------------|----------------------------------|-------------------------------------------------|
# | `key`      | `path`                           | the key, relative to the source                 |
# | `size`     | `bytes`                          | the size in bytes                               |
# | `etag`     | `token`                          | the version, as the source's listing states it  |
# | `modified` | `last_modified`, `mtime`         | the time of the last change, RFC 3339           |
# | `version`  | `version_id`                     | the id of the version                           |
# | `checksum` |                                  | `<algorithm>:<hex>` of all bytes                |

BATCH = 4096  # rows in one batch
BLOCK = 1 << 20  # bytes of one read
LONGEST = 64 << 10  # most bytes between two keys: a file with more is no list of keys
UNKNOWN = -1  # the size if the list states none
# the field that a column fills, by the column's canonical name
COLUMNS: Mapping[str, str] = {
    "key": "key", "path": "key", "size": "size", "bytes": "size", "etag": "token", "token": "token",
    "modified": "modified", "lastmodified": "modified", "lastmodifieddate": "modified", "mtime": "modified",
    "version": "version", "versionid": "version", "checksum": "checksum",
}  # fmt: skip
# the number of hex digits of each supported checksum
_LENGTHS = {
    "crc32": 8, "crc32c": 8, "crc64nvme": 16, "md5": 32, "sha1": 40, "sha256": 64, "sha512": 128,
    "xxh3_128": 32, "xxh64": 16,
}  # fmt: skip
_HEX = frozenset("0123456789abcdef")
_KINDS = "its name says what it is (.csv, .csv.gz, .parquet); any other list is lines, or keys between NULs"
_HINT = "the columns of a list are key, size, etag, modified, version and checksum"


class _NoListError(ValueError):
    """The error in a list, without the list's name."""


def read_keys(path: Path, where: str) -> Iterator[Sequence[Listed]]:
    """Read the rows in the list's order. Fields that the list does not state are `UNKNOWN` or "". The name
    `where` and NULs in the first MiB decide the kind of list. Raises PreflightError."""
    try:
        kind = _kind(path, where)
        if kind == "parquet":
            yield from map(_rows, _parquet(path))
        elif kind == "csv":
            yield from map(_rows, _csv(path))
        else:
            for keys in _keys(path, b"\0" if kind == "nul" else b"\n"):
                yield [Listed(os.fsdecode(key), UNKNOWN, "", 0) for key in keys]
    except (
        OSError,
        EOFError,
        ValueError,
        csv.Error,
    ) as error:  # pyarrow's errors are ValueErrors or OSErrors
        raise PreflightError(
            "a list of keys cannot be read",
            where=where,
            why=str(error).partition("\n")[0],
            hint=_HINT if isinstance(error, _NoListError) else _KINDS,
        ) from error


def _kind(path: Path, name: str) -> str:
    """Return the kind of a list, judging by its name, or else by its content."""
    plain = name.lower().removesuffix(".gz")
    for suffix in ("csv", "parquet"):
        if plain.endswith(f".{suffix}"):
            return suffix
    with _opened(path) as file:
        start = file.read(BLOCK)
    # The first key of a plain list may also be these four letters, so the next byte decides.
    if start.startswith(b"PAR1") and start[4:5] not in (b"", b"\0", b"\n", b"\r"):
        return "parquet"
    return "nul" if b"\0" in start else "lines"


def _opened(path: Path) -> IO[bytes]:
    with open(path, "rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if compressed else open(path, "rb")  # type: ignore[return-value]


def _keys(path: Path, end: bytes) -> Iterator[Sequence[bytes]]:
    rest = b""
    with _opened(path) as file:
        while block := file.read(BLOCK):
            *whole, rest = (rest + block).split(end)
            if len(rest) > LONGEST or max(map(len, whole), default=0) > LONGEST:
                raise _NoListError(f"more than {LONGEST} bytes without an end: this is no such list")
            keys = [key for key in whole if key]
            for at in range(0, len(keys), BATCH):
                yield keys[at : at + BATCH]
    if rest:
        yield [rest]


def _csv(path: Path) -> Iterator[Mapping[str, Sequence[Any]]]:
    with _opened(path) as raw, io.TextIOWrapper(raw, "utf-8", "surrogateescape", newline="") as text:
        lines = csv.reader(text, strict=True)
        header = next(lines, [])
        names = _fields([name.removeprefix("\ufeff").strip() for name in header])
        rows: list[list[str]] = []
        for row in lines:
            if not row:
                continue
            if len(row) != len(header):
                raise _NoListError(f"line {lines.line_num} has {len(row)} values, the header {len(header)}")
            rows.append(row)
            if len(rows) == BATCH:
                yield _picked(names, rows)
                rows = []
        if rows:
            yield _picked(names, rows)


def _picked(names: Mapping[str, int], rows: Sequence[Sequence[str]]) -> Mapping[str, Sequence[Any]]:
    return {field: [row[at] for row in rows] for field, at in names.items()}


def _parquet(path: Path) -> Iterator[Mapping[str, Sequence[Any]]]:
    import pyarrow.parquet as pq

    with open(path, "rb") as file, pq.ParquetFile(file, pre_buffer=False) as table:
        columns_present = table.schema_arrow.names
        names = _fields(columns_present)
        columns = [columns_present[at] for at in names.values()]
        for batch in table.iter_batches(batch_size=BATCH, columns=columns, use_threads=False):
            yield {
                field: (plain_times if field == "modified" else plain_values)(batch[columns_present[at]])
                for field, at in names.items()
            }


def _fields(header: Sequence[str]) -> Mapping[str, int]:
    """Return the position of each field among a list's columns."""
    places: dict[str, int] = {}
    for at, name in enumerate(header):
        field = COLUMNS.get(canonical(name))
        if field is None:
            continue
        if field in places:
            raise _NoListError(
                f"two columns state the {field}: {in_quotes(header[places[field]])} and {in_quotes(name)}"
            )
        places[field] = at
    if "key" not in places:
        raise _NoListError(f"no column `key`; its columns are {', '.join(header[:20]) or 'none'}")
    return places


def _rows(columns: Mapping[str, Sequence[Any]]) -> Sequence[Listed]:
    count = len(columns["key"])
    nothing: Iterable[Any] = [None] * count
    others = ("size", "token", "modified", "version", "checksum")
    rows = zip(columns["key"], *(columns.get(name, nothing) for name in others), strict=True)
    return [
        Listed(
            _key(key), _size(size, key), _text(token).strip('"'), _time(modified, key), _text(version),
            _checksum(checksum, key),
        )
        for key, size, token, modified, version, checksum in rows
    ]  # fmt: skip


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _key(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise _NoListError("a row has no key")
    return value


def _size(value: object, key: object) -> int:
    if value is None or value == "":
        return UNKNOWN
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value)
    if not isinstance(value, int) or value < 0:
        raise _NoListError(f"{in_quotes(key)} has the size {in_quotes(value)}")
    return value


def _time(value: object, key: object) -> int:
    if value is None or value == "":
        return 0
    if isinstance(value, int):
        return value
    try:
        return nanoseconds(str(value))
    except ValueError:
        raise _NoListError(
            f"{in_quotes(key)} has the time {in_quotes(value)}, which is not as 2026-01-31T12:00:00Z"
        ) from None


def _checksum(value: object, key: object) -> str:
    if value is None or value == "":
        return ""
    algorithm, _, digits = str(value).lower().partition(":")
    if _LENGTHS.get(algorithm) != len(digits) or not _HEX.issuperset(digits):
        names = ", ".join(_LENGTHS)
        raise _NoListError(
            f"{in_quotes(key)} has the checksum {in_quotes(value)}, which is not <algorithm>:<hex> of {names}"
        )
    return str(SourceChecksum(algorithm, "full", digits))
