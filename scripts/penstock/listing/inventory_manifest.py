"""Parses the manifest of an S3 Inventory: its files, their columns, and its bucket. `where` names the
manifest in errors."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
import re
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from penstock.core import typed_json
from penstock.core.errors import PreflightError
from penstock.core.human import in_quotes
from penstock.tables.inventory_tables import FORMATS, canonical

NEEDED = ("Bucket", "Key", "Size", "LastModifiedDate", "ETag")
OF_VERSIONS = ("VersionId", "IsLatest", "IsDeleteMarker")
_LATER = (
    "Size, LastModifiedDate and ETag are among an inventory's optional fields: add them to its configuration"
)
_PARQUET = re.compile(r"(?:required|optional|repeated)\s+\w+\s+(\w+)")
_ORC = re.compile(r"(\w+)\s*:")


class DataFile(NamedTuple):
    key: str  # in the bucket to which the inventory was delivered
    size: int  # bytes
    md5: Annotated[str, "MD5checksum"]


class _Document(NamedTuple):
    """manifest.json, as Amazon S3 writes it."""

    source_bucket: Annotated[str, "sourceBucket"]
    file_format: Annotated[str, "fileFormat"]
    file_schema: Annotated[str, "fileSchema"]
    files: Sequence[DataFile]
    created: Annotated[str, "creationTimestamp"] = ""


class Manifest(NamedTuple):
    bucket: str  # the bucket that was inventoried
    kind: str  # one of `inventory_tables.FORMATS`
    columns: tuple[str, ...]  # of each data file, in order, as the manifest spells them
    files: Sequence[DataFile]
    begun_ms: int  # when Amazon S3 began it, in milliseconds since the epoch; 0: not stated

    def has(self, name: str) -> bool:
        return canonical(name) in map(canonical, self.columns)

    @property
    def versions(self) -> bool:
        """Whether it lists older versions of objects too."""
        return any(map(self.has, OF_VERSIONS))


def parse(content: bytes, where: str) -> Manifest:
    """Parse manifest.json. Raises PreflightError for another document, and for an unknown format of data
    files."""
    try:
        document = typed_json.read(_Document, typed_json.loads(content))
        begun = int(document.created or 0)
    except ValueError as error:
        raise PreflightError(
            "this is no manifest of an S3 Inventory",
            where=where,
            why=str(error),
            hint="`inventory` names the manifest.json that lies in the folder of one date",
        ) from None
    kind = next((name for name in FORMATS if name.lower() == document.file_format.lower()), "")
    if not kind:
        raise PreflightError(
            "an inventory in a format that is not known",
            where=where,
            why=f"its fileFormat is {in_quotes(document.file_format)}, not {', '.join(FORMATS)}",
            hint="have the inventory written as CSV, ORC or Parquet",
        )
    return Manifest(document.source_bucket, kind, _columns(kind, document.file_schema), document.files, begun)


def _columns(kind: str, schema: str) -> tuple[str, ...]:
    """Return the names in a manifest's `fileSchema`.

    | format  | how the schema is written                                        |
    |---------|------------------------------------------------------------------|
    | CSV     | `Bucket, Key, Size, ...`                                         |
    | Parquet | `message s3.inventory { required binary bucket (UTF8); ... }`    |
    | ORC     | `struct<bucket:string,key:string,...>`                           |
    """
    if kind == "CSV":
        return tuple(name.strip() for name in schema.split(","))
    if kind == "Parquet":
        return tuple(_PARQUET.findall(schema))
    return tuple(_ORC.findall(schema.partition("struct<")[2]))


def wanted(manifest: Manifest, *, pinned: bool, where: str) -> list[str]:
    """Return the canonical names of the columns that a listing needs. Raises PreflightError that names
    missing ones."""
    needed = [*NEEDED]
    if manifest.versions:
        needed.append("IsLatest")
    if pinned:
        needed.append("VersionId")
    missing = [name for name in needed if not manifest.has(name)]
    if missing:
        raise PreflightError(
            f"the inventory has no column {', '.join(missing)}",
            where=where,
            why=f"its columns are {', '.join(manifest.columns)}",
            hint="have one made with all versions of the objects"
            if missing == ["VersionId"]
            else f"{_LATER}, and use the next one",
        )
    if manifest.has("IsDeleteMarker"):
        needed.append("IsDeleteMarker")
    return [canonical(name) for name in needed]


def refuse_other(manifest: Manifest, bucket: str, where: str) -> None:
    """Raise PreflightError for the inventory of another bucket."""
    if manifest.bucket != bucket:
        raise PreflightError(
            "the inventory is another bucket's",
            where=where,
            why=f"it is of {in_quotes(manifest.bucket)}, the source of {in_quotes(bucket)}",
            hint="correct `inventory`, or the source's URL",
        )
