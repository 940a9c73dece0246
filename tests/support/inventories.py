"""S3 Inventories as Amazon S3 writes them: data files in CSV (gzip), Parquet and ORC, and their manifest."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.core.model import Listed

OPTIONAL = ("Size", "LastModifiedDate", "ETag", "StorageClass")
_SNAKE = {
    "Bucket": "bucket", "Key": "key", "VersionId": "version_id", "IsLatest": "is_latest",
    "IsDeleteMarker": "is_delete_marker", "Size": "size", "LastModifiedDate": "last_modified_date",
    "ETag": "e_tag", "StorageClass": "storage_class",
}  # fmt: skip
_TYPES = {
    "IsLatest": pa.bool_(), "IsDeleteMarker": pa.bool_(), "Size": pa.int64(),
    "LastModifiedDate": pa.timestamp("ms"),
}  # fmt: skip
_ORC = {pa.bool_(): "boolean", pa.int64(): "bigint", pa.timestamp("ms"): "timestamp"}
Row = dict[str, Any]


def row(bucket: str, prefix: str, listed: Listed, **over: Any) -> Row:
    """The row of an object that a source listed; its time as whole milliseconds."""
    return {
        "Bucket": bucket, "Key": prefix + listed.key, "VersionId": listed.version or None, "IsLatest": True,
        "IsDeleteMarker": False, "Size": listed.size, "LastModifiedDate": listed.modified_ns // 10**6,
        "ETag": listed.token, "StorageClass": "STANDARD", **over,
    }  # fmt: skip


@dataclass
class Made:
    """An inventory: {its name below the destination: content}, and the name of its manifest."""

    files: dict[str, bytes] = field(default_factory=dict)
    manifest: str = ""

    def state(self, **over: Any) -> None:
        """Other words in the manifest; its checksum follows."""
        document = json.loads(self.files[self.manifest]) | over
        self.files[self.manifest] = json.dumps(document).encode()
        self._checksum()

    def stated(self) -> list[dict[str, Any]]:
        """The data files, as the manifest states them."""
        files: list[dict[str, Any]] = json.loads(self.files[self.manifest])["files"]
        return files

    def _checksum(self) -> None:
        name = self.manifest.removesuffix("json") + "checksum"
        self.files[name] = hashlib.md5(self.files[self.manifest]).hexdigest().encode() + b"\n"


def made(
    rows: Iterable[Row],
    kind: str,
    *,
    bucket: str,
    columns: Sequence[str] = ("Bucket", "Key", *OPTIONAL),
    pieces: int = 2,
    date: str = "2026-11-20T01-00Z",
    top: str = "daily/",
) -> Made:
    """An inventory of a bucket, in so many data files, with what its rows have of `columns`."""
    rows, folder = list(rows), f"{top}{bucket}/all/"
    found, files = Made(), []
    suffix = {"CSV": "csv.gz", "Parquet": "parquet", "ORC": "orc"}[kind]
    for number in range(pieces):
        content = _WRITERS[kind](rows[number::pieces], columns)
        key = f"{folder}data/{date}-{number}.{suffix}"
        found.files[key] = content
        md5 = hashlib.md5(content).hexdigest()
        files.append({"key": key, "size": len(content), "MD5checksum": md5})
    begun = datetime.strptime(date, "%Y-%m-%dT%H-%MZ").replace(tzinfo=UTC)
    found.manifest = f"{folder}{date}/manifest.json"
    found.files[found.manifest] = json.dumps({
        "sourceBucket": bucket, "destinationBucket": "arn:aws:s3:::inventories", "version": "2016-11-30",
        "creationTimestamp": str(int(begun.timestamp() * 1000)), "fileFormat": kind,
        "fileSchema": _schema(kind, columns), "files": files,
    }).encode()  # fmt: skip
    found.state()
    return found


def _schema(kind: str, columns: Sequence[str]) -> str:
    if kind == "CSV":
        return ", ".join(columns)
    if kind == "ORC":
        fields = (f"{_SNAKE[name]}:{_ORC.get(_TYPES.get(name), 'string')}" for name in columns)
        return f"struct<{','.join(fields)}>"
    words = {
        pa.bool_(): "boolean {}",
        pa.int64(): "int64 {}",
        pa.timestamp("ms"): "int64 {} (TIMESTAMP_MILLIS)",
    }
    fields = (
        f"optional {words.get(_TYPES.get(name), 'binary {} (UTF8)').format(_SNAKE[name])};"
        for name in columns
    )
    return f"message s3.inventory {{ {' '.join(fields)} }}"


def _csv(rows: Sequence[Row], columns: Sequence[str]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([_text(name, one[name]) for name in columns] for one in rows)
    return gzip.compress(text.getvalue().encode("ascii"))


def _text(name: str, value: object) -> str:
    if name == "Key":
        return quote_plus(os.fsencode(str(value)), safe="/*")
    if name == "LastModifiedDate":
        assert isinstance(value, int)
        moment = datetime.fromtimestamp(value // 1000, UTC)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{value % 1000:03d}Z"
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _table(rows: Sequence[Row], columns: Sequence[str]) -> pa.Table:
    arrays = {
        _SNAKE[name]: pa.array([one[name] for one in rows], _TYPES.get(name, pa.string())) for name in columns
    }
    return pa.table(arrays)


def _parquet(rows: Sequence[Row], columns: Sequence[str]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(_table(rows, columns), sink, row_group_size=7)
    return sink.getvalue()


def _orc(rows: Sequence[Row], columns: Sequence[str]) -> bytes:
    sink = io.BytesIO()
    po.write_table(_table(rows, columns), sink)
    return sink.getvalue()


_WRITERS = {"CSV": _csv, "Parquet": _parquet, "ORC": _orc}
