"""The manifests of a release: every record as Parquet, and checksum files for common tools.

All are written under a temporary name, and appear complete and durable when closed. Rows are in canonical
order (bytes of the path).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from penstock.core import model
from penstock.core.errors import IMPOSSIBLE, LOOK_AT_FILE, FailedError
from penstock.core.model import Record
from penstock.core.row_codec import MANIFEST
from penstock.fs import small_files
from penstock.host import bounded_memory
from penstock.tables.files import Files
from penstock.tables.tables import (
    BATCH,
    UNREADABLE,
    Form,
    OnTable,
    TableWriter,
    group_starts,
    opened,
    read_batches,
    reason,
    strings,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

FORM = Form(MANIFEST, Record._fields)


class ManifestWriter(OnTable):
    """Writes `manifest.parquet`; `finish` makes it durable and names it."""

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
    # The bytes are viewed as text instead of cast: a cast would load pyarrow.compute.
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
    """Read the records as columns (`Files`), in batches; `columns` limits the fields that are read. Raises as
    `read_manifest`."""
    return map(Files, read_batches(path, FORM, batch=rows, names=columns))


def some_paths(path: Path, count: int) -> Iterator[str]:
    """Yield up to `count` paths from all over a manifest; memory: one of its row groups. Raises FailedError
    for a damaged one."""
    try:
        with opened(path) as table:
            rows, begins = table.metadata.num_rows, 0
            places = sorted({rows * number // count for number in range(count)} if rows else ())
            for group in range(table.metadata.num_row_groups):
                ends = begins + table.metadata.row_group(group).num_rows
                if wanted := [place - begins for place in places if begins <= place < ends]:
                    with bounded_memory.bounded():
                        paths = table.read_row_group(group, columns=["path"], use_threads=False)["path"]
                    yield from (os.fsdecode(paths[place].as_py()) for place in wanted)
                begins = ends
    except UNREADABLE as error:
        raise FailedError(
            "a manifest cannot be read", where=str(path), why=reason(error), hint=LOOK_AT_FILE
        ) from error


def read_columns(path: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Read columns of a manifest as stored, in batches. Raises as `read_manifest`."""
    return read_batches(path, FORM, names=names)


def with_digests(path: Path, digests: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield path and time (`mtime_ns`) of the records with one of these digests. Raises as
    `read_manifest`."""
    import pyarrow.compute as pc

    wanted = pa.array(sorted(digests), pa.string())
    for batch in read_columns(path, ("path", "digest", "mtime_ns")):
        matches = batch.filter(pc.is_in(batch["digest"], wanted))
        yield from zip(strings(matches["path"]), matches["mtime_ns"].to_pylist(), strict=True)


def read_between(path: Path, first: bytes, last: bytes, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Read the columns `names` of the rows between two paths, both included, and of some neighbours. Other
    row groups are skipped. Raises as `read_manifest`."""
    starts = group_starts(path, FORM, "path")
    groups = [
        index
        for index, start in enumerate(starts)
        if start <= last and (index + 1 == len(starts) or starts[index + 1] >= first)
    ]
    return read_batches(path, FORM, names=names, groups=groups)


def checksums(files: Files, algorithm: str) -> list[tuple[str, str]]:
    """Return (digest in hexadecimal, path) of the files with a digest of this kind over all their bytes."""
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
    """`<hex>  data/<path>` lines for `xxhsum -c` or `sha256sum -c`, run in the release's folder.

    xxhsum 0.8.1 (Debian 12) never unescapes names, so they are written raw. It cannot read a name with a line
    feed at all: this is escaped for xxhsum 0.8.2, and counted in `escaped`. sha256sum's escaping works for
    every name.
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
