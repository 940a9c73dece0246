"""The manifests of a release: every record as Parquet, and checksum files for common tools.

All are written below a temporary name and appear whole and durable when closed. Rows are in
canonical order (bytes of the path).
"""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from penstock.core.model import Record
from penstock.formats.tables import BATCH, RowWriter, TableWriter, read_batches, strings, texts, tuples
from penstock.storage import durable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

KIND = "manifest 1"

_NAMES = frozenset({"path", "key", "token", "version"})
_TYPES = {
    "size": pa.int64(), "modified_ns": pa.int64(), "source": pa.int32(), "mtime_ns": pa.int64(),
    "ctime_ns": pa.int64(), "parts": pa.binary(),
}  # fmt: skip
SCHEMA = pa.schema(
    [
        pa.field(name, pa.binary() if name in _NAMES else _TYPES.get(name, pa.string()), nullable=False)
        for name in Record._fields
    ]
)


class ManifestWriter(RowWriter[Record]):
    """Writes `manifest.parquet`; `finish` makes it durable and gives it its name."""

    def __init__(self, path: Path, *, mode: int = 0o600) -> None:
        super().__init__(
            TableWriter(
                path,
                SCHEMA,
                KIND,
                mode=mode,
                use_dictionary=["source_grade", "storage_grade", "method", "written_host", "verified_host"],
                column_encoding={"path": "DELTA_BYTE_ARRAY", "key": "DELTA_BYTE_ARRAY"},
            )
        )

    def _columns(self, rows: Sequence[Record]) -> list[pa.Array]:
        return [
            texts(column) if field.name in _NAMES else pa.array(column, field.type)
            for field, column in zip(SCHEMA, zip(*rows, strict=True), strict=True)
        ]


def read_manifest(path: Path, *, rows: int = BATCH) -> Iterator[list[Record]]:
    """The records of a manifest in batches. Raises FailedError for a missing or damaged file."""
    for batch in read_columns(path, Record._fields, rows=rows):
        yield tuples(Record, batch)


def read_columns(
    path: Path, names: Sequence[str], *, rows: int = BATCH
) -> Iterator[Iterator[tuple[Any, ...]]]:
    """The same, but of each record only the fields `names`, in this order: what is not asked for is not
    read from the file."""
    for batch in read_batches(path, KIND, batch=rows, columns=names):
        yield zip(
            *(strings(batch[name]) if name in _NAMES else batch[name].to_pylist() for name in names),
            strict=True,
        )


class ChecksumFile:
    """`<hex>  data/<path>` lines for `xxhsum -c` or `sha256sum -c`, run in the release's folder.

    xxhsum 0.8.1 (Debian 12) takes names raw and never unescapes: so every name is written raw,
    but one with a line feed, which that version cannot carry: it is escaped as 0.8.2 reads it,
    and counted in `escaped`. sha256sum's escaping carries every name.
    """

    def __init__(self, path: Path, *, algorithm: str, mode: int = 0o600) -> None:
        self._file = _Growing(path, mode)
        self._always = algorithm != "xxh3_128"
        self.lines = 0
        self.escaped = 0

    def add(self, hexadecimal: str, path: str) -> None:
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
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._file.abandon()


class _Growing:
    """A file below a temporary name that appears under its own, whole and durable, on `close`."""

    def __init__(self, path: Path, mode: int) -> None:
        self._path = path
        self._temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._temporary, flags, 0o600)
        os.fchmod(fd, mode)
        self.stream = os.fdopen(fd, "wb", buffering=1 << 20)

    def close(self) -> None:
        try:
            self.stream.flush()
            os.fsync(self.stream.fileno())
            self.stream.close()
            durable.rename(self._temporary, self._path)
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self.stream.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._temporary)
