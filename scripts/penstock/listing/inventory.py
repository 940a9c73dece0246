"""Reads a bucket's listing from its S3 Inventory, which Amazon S3 writes each day or week. That costs less
than listing the bucket with a request for each thousand objects.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import unquote_to_bytes

from penstock.config.settings import DatasetConfig, SourceConfig
from penstock.core import typed_json
from penstock.core.errors import ConfigError, PreflightError
from penstock.core.human import in_quotes, nanoseconds
from penstock.core.model import Listed
from penstock.core.row_codec import filled
from penstock.dataset.context import Context
from penstock.listing import outside_lists
from penstock.listing.outside_lists import OutsideFiles
from penstock.sources.listing_order import ascending, in_order
from penstock.sources.object_source import bucket_and_prefix
from penstock.sources.port import Source
from penstock.sources.s3 import NO_VERSIONS
from penstock.tables.stated_lists import FORMATS, Rows, canonical

# Parses the manifest of an S3 Inventory: its data files, their columns, and its bucket. `where` names the
# manifest in errors.

NEEDED = ("Bucket", "Key", "Size", "LastModifiedDate", "ETag")
OF_VERSIONS = ("VersionId", "IsLatest", "IsDeleteMarker")
_LATER = (
    "Size, LastModifiedDate and ETag are among an inventory's optional fields: add them to its configuration"
)
_PARQUET = re.compile(r"(?:required|optional|repeated)\s+\w+\s+(\w+)")
_ORC = re.compile(r"(\w+)\s*:")


class DataFile(NamedTuple):
    key: str  # the file's key in the bucket to which the inventory was delivered
    size: int  # size in bytes
    md5: Annotated[str, "MD5checksum"]


class _Document(NamedTuple):
    """manifest.json, as Amazon S3 writes it."""

    source_bucket: Annotated[str, "sourceBucket"]
    file_format: Annotated[str, "fileFormat"]
    file_schema: Annotated[str, "fileSchema"]
    files: Sequence[DataFile]
    created: Annotated[str, "creationTimestamp"] = ""


class Manifest(NamedTuple):
    bucket: str  # the bucket that the inventory lists
    kind: str  # format of the data files, from `stated_lists.FORMATS`
    columns: tuple[str, ...]  # columns of each data file, in order, as the manifest spells them
    files: Sequence[DataFile]
    begun_ms: int  # when Amazon S3 began the inventory, in milliseconds since the epoch; 0: not stated

    def has(self, name: str) -> bool:
        return canonical(name) in map(canonical, self.columns)

    @property
    def versions(self) -> bool:
        """Whether the inventory also lists older versions of objects."""
        return any(map(self.has, OF_VERSIONS))


def parse(content: bytes, where: str) -> Manifest:
    """Parse manifest.json. Raises PreflightError if it is another document or the format of the data files is
    unknown."""
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
    """Return the canonical names of the columns that a listing needs. Raises PreflightError naming missing
    columns."""
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
    """Raise PreflightError if the inventory lists another bucket."""
    if manifest.bucket != bucket:
        raise PreflightError(
            "the inventory is another bucket's",
            where=where,
            why=f"it is of {in_quotes(manifest.bucket)}, the source of {in_quotes(bucket)}",
            hint="correct `inventory`, or the source's URL",
        )


# Reads the data files of an S3 Inventory as a listing.
#
# An inventory lacks later changes. The copy detects objects that changed (by the etag) or were deleted; new
# objects wait for the next inventory. A data file is compared with the size and MD5 in the manifest before
# its rows are used, and the manifest with `manifest.checksum` if present. A sort on disk yields objects in
# byte order of their keys, in bounded memory.

MANIFEST = "manifest.json"
CHECKSUM = "manifest.checksum"
_DATED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d-\d\dZ)/manifest\.json")
_DAY = 86400
_TWICE = "an inventory lists each object once: have it fetched again, or use the next one"


class LocatedManifest(NamedTuple):
    manifest: Manifest
    name: str  # the manifest's name in the store
    where: str


class Inventory:
    """A `listers.StatedLister` of one source. `scratch`: a folder for fetched and sorted files."""

    def __init__(
        self, context: Context, dataset: DatasetConfig, config: SourceConfig, source: Source, scratch: Path
    ) -> None:
        self._config, self._source, self._scratch = config, source, scratch
        self._pinned = dataset.changed == "pinned"
        self._bucket, self._prefix = bucket_and_prefix(config.url)
        self._files, self._name = outside_lists.opened(context, dataset, config, config.inventory or "")
        self._stop = context.stop
        self._located: LocatedManifest | None = None
        self._ignored: Counter[str] = Counter()

    @property
    def ignored(self) -> Mapping[str, int]:
        return self._ignored

    def located(self) -> LocatedManifest:
        """Find the inventory's manifest. Raises PreflightError if it is unreadable, of another bucket, or
        lacks columns."""
        if self._located is None:
            name, content = self._manifest()
            where = self._files.where(name)
            self._compare_checksum(name, content, where)
            manifest = parse(content, where)
            refuse_other(manifest, self._bucket, where)
            wanted(manifest, pinned=self._pinned, where=where)
            self._located = LocatedManifest(manifest, name, where)
        return self._located

    def note(self) -> str:
        """Describe the inventory and its age in one sentence. Raises as `located`."""
        manifest, _, where = self.located()
        return f"listed by the inventory {where}, {age(manifest.begun_ms, time.time())}"

    def list(self) -> Iterator[Sequence[Listed]]:
        rows = in_order(self._batches(), folder=self._scratch)
        return ascending(rows, self._source.url, _TWICE, self._count_twice)

    def _count_twice(self, count: int) -> None:
        self._ignored["named twice"] += count

    # ---- the manifest

    def _manifest(self) -> tuple[str, bytes]:
        """Read the manifest. The configuration names the manifest, its folder, or the folder of all dates."""
        name = self._name
        if name.endswith(".json"):
            content = self._small(name)
            if content is None:
                raise _missing(self._files.where(name))
            return name, content
        folder = name if not name or name.endswith("/") else f"{name}/"
        content = self._small(folder + MANIFEST)
        if content is not None:
            return folder + MANIFEST, content
        dated = (path for path in self._files.names(folder) if _DATED.fullmatch(path[len(folder) :]))
        newest = max(dated, default="")
        content = self._small(newest) if newest else None
        if content is None:
            raise _missing(self._files.where(folder))
        return newest, content

    def _small(self, name: str) -> bytes | None:
        return outside_lists.small(self._files, name, self._scratch / MANIFEST)

    def _compare_checksum(self, name: str, content: bytes, where: str) -> None:
        stated = self._small(name.removesuffix(MANIFEST) + CHECKSUM) if name.endswith(MANIFEST) else None
        if stated is None:
            return
        md5 = outside_lists.md5(content)
        if stated.strip().decode("latin-1").lower() != md5:
            raise PreflightError(
                "the inventory's manifest is damaged",
                where=where,
                why=f"its MD5 is {md5}, and {CHECKSUM} states {stated[:80].decode('latin-1').strip()}",
                hint="have both fetched again, or use the next inventory",
            )

    # ---- the data files

    def _batches(self) -> Iterator[Sequence[Listed]]:
        from penstock.tables.stated_lists import read_inventory

        manifest, name, where = self.located()
        self._ignored.clear()
        columns = wanted(manifest, pinned=self._pinned, where=where)
        enabled = self._versioned()
        for file in manifest.files:
            self._stop.check()
            path = self._fetch(file, name)
            where = self._files.where(file.key)
            for rows in read_inventory(path, manifest.kind, manifest.columns, columns, where):
                self._stop.check()
                yield self._listed(rows, manifest.kind == "CSV", where, enabled)
            if path.parent == self._scratch:
                path.unlink()

    def _fetch(self, file: DataFile, manifest: str) -> Path:
        """Fetch a data file to this machine, and compare its size and MD5 with the manifest."""
        for name in _places(self._files, file.key, manifest):
            fetched = self._files.fetch(name, self._scratch / "inventory.data")
            if fetched is None:
                continue
            stated = file.md5.lower()
            if (fetched.size, fetched.md5) != (file.size, stated):
                raise PreflightError(
                    "a file of the inventory is not the one that its manifest states",
                    where=self._files.where(name),
                    why=f"it has {fetched.size:,} bytes and the MD5 {fetched.md5}; stated are "
                    f"{file.size:,} and {stated}",
                    hint="have it fetched again, or use the next inventory",
                )
            return fetched.path
        raise _missing(self._files.where(file.key), "a file of the inventory is missing")

    def _versioned(self) -> bool | None:
        from penstock.sources.s3 import S3Source

        return self._source.versioned() if self._pinned and isinstance(self._source, S3Source) else None

    def _listed(self, rows: Rows, text: bool, where: str, enabled: bool | None) -> Sequence[Listed]:
        """Return the rows that are the source's objects, and count the other rows.

        | the row is                              | counted as          |
        |-----------------------------------------|---------------------|
        | of another bucket                       | other buckets       |
        | of a key outside the source's prefix    | outside the prefix  |
        | a delete marker                         | delete markers      |
        | of a version that is not the newest     | older versions      |
        | the marker of the prefix itself         | not at all          |
        """
        keys = rows["key"]
        if text:
            keys = [_unquoted(key) if "%" in key or "+" in key else key for key in keys]
        none: list[object] = [None] * len(keys)
        deleted = map(_true, rows.get("isdeletemarker", none))
        latest = map(_true, rows["islatest"]) if "islatest" in rows else (True for _ in keys)
        picked, prefix = [], self._prefix
        for at, (bucket, key, old, newest) in enumerate(
            zip(rows["bucket"], keys, deleted, latest, strict=True)
        ):
            if bucket != self._bucket:
                self._ignored["other buckets"] += 1
            elif not key.startswith(prefix):
                self._ignored["outside the prefix"] += 1
            elif old:
                self._ignored["delete markers"] += 1
            elif not newest:
                self._ignored["older versions"] += 1
            elif key != prefix:
                picked.append(at)
        columns = {
            "key": [keys[at][len(prefix) :] for at in picked],
            "size": [self._number(rows["size"][at], keys[at], where) for at in picked],
            "token": [self._etag(rows["etag"][at], keys[at], where) for at in picked],
            "modified_ns": [self._time(rows["lastmodifieddate"][at], keys[at], where) for at in picked],
        }
        if self._pinned:
            columns["version"] = [self._version(rows["versionid"][at], keys[at], enabled) for at in picked]
        return filled(Listed, columns, len(picked))

    def _number(self, value: object, key: str, where: str) -> int:
        if isinstance(value, int):
            return value
        if isinstance(value, str) and value.isascii() and value.isdecimal():
            return int(value)
        raise _bad("size", value, key, where)

    def _etag(self, value: object, key: str, where: str) -> str:
        if isinstance(value, str) and (etag := value.strip('"')):
            return etag
        raise _bad("etag", value, key, where)

    def _time(self, value: object, key: str, where: str) -> int:
        if isinstance(value, int):
            return value
        try:
            return nanoseconds(str(value))
        except ValueError:
            raise _bad("time", value, key, where) from None

    def _version(self, value: object, key: str, enabled: bool | None) -> str:
        if isinstance(value, str) and value and (value != "null" or enabled):
            return value
        raise PreflightError(
            "an object has no version of its own, and `changed: pinned` reads objects by those",
            where=self._files.where(key),
            hint=NO_VERSIONS,
        )


def age(begun_ms: int, now: float) -> str:
    """Describe in words how long ago an inventory was begun."""
    if not begun_ms:
        return "which does not say how old it is"
    begun = datetime.fromtimestamp(begun_ms / 1000, UTC)
    days, hours = int((now - begun_ms / 1000) // _DAY), int((now - begun_ms / 1000) // 3600)
    since = f"{days} days ago" if days > 1 else f"{max(0, hours)} hours ago"
    return (
        f"begun {begun:%Y-%m-%d %H:%M} UTC, {since}: newer objects are not in it, and what changed or was "
        "deleted since is found when it is read"
    )


def of(
    context: Context, dataset: DatasetConfig, config: SourceConfig, source: Source, scratch: Path
) -> Inventory:
    """Make the lister for a source's inventory. Raises ConfigError if the source is no bucket."""
    if not config.url.startswith(("s3://", "s3a://")):
        raise ConfigError(
            "S3 Inventory is of S3 buckets",
            where=config.url,
            hint="leave `inventory` out, or give a list of keys",
        )
    return Inventory(context, dataset, config, source, scratch)


def _places(files: OutsideFiles, key: str, manifest: str) -> Iterator[str]:
    """Yield the places where a data file may be: its key; on this machine, paths below or beside the
    manifest. A local copy's path may begin at any part of the key."""
    if not isinstance(files, outside_lists.LocalFiles):
        yield key
        return
    top = Path(manifest).parent
    names = key.split("/")
    if ".." in names or key.startswith("/"):
        raise PreflightError(
            "a file of the inventory has no usable name",
            where=manifest,
            why=in_quotes(key),
            hint="S3 writes other names: name the manifest.json that S3 wrote",
        )
    for folder in (top, *top.parents[:8]):
        for begin in range(len(names)):
            yield os.path.join(folder, *names[begin:])


def _unquoted(key: str) -> str:
    return os.fsdecode(unquote_to_bytes(key.replace("+", " ")))


def _true(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true")


def _missing(where: str, what: str = "there is no inventory") -> PreflightError:
    return PreflightError(
        what,
        where=where,
        hint="`inventory` names a manifest.json, its folder, or the folder of the inventory's configuration; "
        "the first one comes up to 48 hours after it was configured",
    )


def _bad(what: str, value: object, key: str, where: str) -> PreflightError:
    return PreflightError(
        f"the inventory has an object without {what}",
        where=where,
        why=f"{in_quotes(key)} has {in_quotes(value)}",
        hint="name an inventory with the fields key and size, as S3 writes it",
    )
