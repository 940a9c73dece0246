"""Files of other versions: a column that is missing has its default, a newer format is refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.records import rows_of, write_rows, write_shard

from penstock.core.model import Entry, Listed, Record
from penstock.errors import FailedError, NewerFormatError
from penstock.formats.files import Files
from penstock.formats.listing_file import ListingWriter, read_listing
from penstock.formats.manifest import ManifestWriter, read_files, read_manifest
from penstock.formats.records import SeenRow
from penstock.formats.shards import read_shard

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RECORD = Record(
    "a", 1, "xxh3_128:" + "0" * 32, 7, "a", "t", "v", 0, "size", "", "cold", "direct", "a", "b",
    "at", -5, 6, b"\x00\xff", "sha256:ab",
)  # fmt: skip
ENTRY = Entry("a", "a", 1, "t", 7, 0, "v", "md5:full:00", -1, 0, 1, "xxh3_128:0 full")


def manifest(path: Path) -> None:
    with ManifestWriter(path) as writer:
        writer.add(Files.of([RECORD]))
        writer.finish()


def listing(path: Path) -> None:
    with ListingWriter(path) as writer:
        writer.add([Listed("a", 1, "t", 7, "v", "md5:full:00")])
        writer.close()


def shard(path: Path) -> None:
    write_shard(path, 0, [ENTRY])


def records(path: Path) -> None:
    write_rows(path, [SeenRow(0, -1, 0, 1, RECORD)])


def again(path: Path, *, without: str = "", also: str = "", kind: str = "") -> None:
    """Write the table anew as another version would have."""
    table = pq.read_table(path)
    metadata = {b"penstock": kind.encode()} if kind else dict(table.schema.metadata)
    table = table.drop_columns([without]) if without else table
    if also:
        table = table.append_column(also, pa.array(["new"] * table.num_rows))
    pq.write_table(table.replace_schema_metadata(metadata), path)


CASES = [
    (manifest, lambda path: [r for b in read_manifest(path) for r in b], "digests", "size"),
    (listing, lambda path: [e for b in read_listing(path) for e in b], "checksum", "size"),
    (shard, lambda path: [e for b in read_shard(path) for e in b], "reuse", "size"),
    (records, rows_of, "digests", "storage_grade"),
]


@pytest.mark.parametrize(
    ("make", "read", "later", "always"), CASES, ids=lambda v: getattr(v, "__name__", None)
)
def test_a_column_of_another_version_harms_nothing(
    tmp_path: Path,
    make: Callable[[Path], None],
    read: Callable[[Path], list[Record]],
    later: str,
    always: str,
) -> None:
    path = tmp_path / "file"
    make(path)
    (whole,) = read(path)
    again(path, also="foreign")
    assert read(path) == [whole]
    again(path, without=later)
    (older,) = read(path)
    record = getattr(older, "record", older)
    assert getattr(record, later) == ""
    assert getattr(getattr(whole, "record", whole), later) != ""
    assert record._replace(**{later: getattr(getattr(whole, "record", whole), later)}) == getattr(
        whole, "record", whole
    )
    again(path, without=always)
    with pytest.raises(FailedError, match=f"no column '{always}'") as told:
        read(path)
    assert told.value.where == str(path)


@pytest.mark.parametrize(
    ("make", "read", "later", "always"), CASES, ids=lambda v: getattr(v, "__name__", None)
)
def test_a_newer_format_is_refused_by_name(
    tmp_path: Path, make: Callable[[Path], None], read: Callable[[Path], object], later: str, always: str
) -> None:
    path = tmp_path / "file"
    make(path)
    name = make.__name__
    again(path, kind=f"{name} 7")
    with pytest.raises(NewerFormatError, match=f"this {name} is of a newer format") as told:
        read(path)
    assert told.value.where == str(path)
    assert "format 7" in told.value.why
    assert "a newer penstock is needed" in told.value.hint
    again(path, kind="something 1")
    with pytest.raises(FailedError, match="holds something else"):
        read(path)


def test_some_columns_are_read_in_the_order_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "m"
    manifest(path)
    again(path, without="digests")
    (files,) = read_files(path, columns=("digests", "size", "path"))
    assert (files["path"], files["size"], files["digests"]) == (["a"], [1], [""])
