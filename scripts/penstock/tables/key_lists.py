"""Reads lists of keys: a key per line, keys separated by NULs, CSV with a header, or Parquet. All may be
compressed by gzip.

Keys keep their bytes. One batch of rows and one line are kept in memory. Other columns are ignored.

| column     | also called                      | content                                         |
|------------|----------------------------------|-------------------------------------------------|
| `key`      | `path`                           | the key, relative to the source                 |
| `size`     | `bytes`                          | the size in bytes                               |
| `etag`     | `token`                          | the version, as the source's listing states it  |
| `modified` | `last_modified`, `mtime`         | the time of the last change, RFC 3339           |
| `version`  | `version_id`                     | the id of the version                           |
| `checksum` |                                  | `<algorithm>:<hex>` of all bytes                |
"""

from __future__ import annotations

import csv
import gzip
import io
import os
from typing import IO, TYPE_CHECKING, Any

from penstock.core.errors import PreflightError
from penstock.core.human import in_quotes, nanoseconds
from penstock.core.model import Listed, SourceChecksum
from penstock.tables.inventory_tables import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

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


def read(path: Path, where: str) -> Iterator[Sequence[Listed]]:
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

    from penstock.tables.inventory_tables import plain_times, plain_values

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
