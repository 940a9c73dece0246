from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.records import write_shard

from penstock.core.errors import FailedError
from penstock.core.model import Entry, Listed, Reuse
from penstock.tables.run_tables import LISTING_FORM, ListingWriter, read_listing, read_shard
from penstock.tables.tables import GROUP

if TYPE_CHECKING:
    from pathlib import Path

ODD = ["a b", "line\nfeed", "%41", "-x", os.fsdecode(b"\xff\xfe"), "日本", "x" * 255, "'\"$(x)"]


def write(
    path: Path, rows: list[Listed], page: int, source: int = 0, prefix: str = ""
) -> tuple[str, int, int]:
    with ListingWriter(path) as writer:
        for start in range(0, len(rows), page):
            batch = rows[start : start + page]
            writer.add(batch, paths=[prefix + row.key for row in batch], source=source)
        return writer.close()


def read(path: Path) -> list[Entry]:
    return [entry for batch in read_listing(path) for entry in batch]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    rows = [
        Listed(name, at, f"etag{at}", at * 10**18, f"v{at}", "crc32c:full:00") for at, name in enumerate(ODD)
    ]
    digest, count, size = write(tmp_path / "new" / "l.parquet", rows, 3, source=2, prefix="into/")
    assert (count, size) == (len(ODD), sum(range(len(ODD))))
    assert digest.startswith("sha256:")
    assert read(tmp_path / "new" / "l.parquet") == [
        Entry(
            f"into/{row.key}", row.key, row.size, row.token, row.modified_ns, 2, row.version, row.checksum,
            length=row.size,
        )
        for row in rows
    ]  # fmt: skip
    assert os.stat(tmp_path / "new" / "l.parquet").st_mode & 0o777 == 0o600


def test_the_digest_does_not_depend_on_pages_and_sees_every_field(tmp_path: Path) -> None:
    rows = [Listed(f"k{n:05d}", n, f"t{n}", n, "", "") for n in range(GROUP + 1000)]
    first = write(tmp_path / "1", rows, 1000)
    assert write(tmp_path / "2", rows, 7777) == first
    assert write(tmp_path / "3", rows, len(rows)) == first
    few = rows[:5]
    digests = {write(tmp_path / "4", few, 5)[0]}
    changes = (
        {"key": "k"}, {"size": 9}, {"token": "x"}, {"modified_ns": 9}, {"version": "1"}, {"checksum": "c"},
    )  # fmt: skip
    for change in changes:
        digests.add(write(tmp_path / "4", [*few[:4], few[4]._replace(**change)], 5)[0])
    digests.add(write(tmp_path / "4", few, 5, source=1)[0])
    digests.add(write(tmp_path / "4", few, 5, prefix="p/")[0])
    assert len(digests) == 9


def test_the_digest_is_what_the_documentation_says(tmp_path: Path) -> None:
    import hashlib
    import struct

    rows = [Listed("a", 1, "t", 2, "", ""), Listed("é", 3, "", 4, "v", "c")]
    sha = hashlib.sha256(b"penstock listing 1\n" + struct.pack("<q", 2))
    paths = [row.key.encode() for row in rows]
    for column in (
        paths, paths, [1, 3], [b"t", b""], [2, 4], [0, 0], [b"", b"v"], [b"", b"c"],
    ):  # fmt: skip
        if isinstance(column[0], int):
            sha.update(struct.pack("<2q", *column))
        else:
            one, two = (bytes(value) for value in column)
            sha.update(struct.pack("<3i", 0, len(one), len(one) + len(two)) + one + two)
    assert write(tmp_path / "l", rows, 1)[0] == f"sha256:{sha.hexdigest()}"


def test_the_digest_is_the_same_in_every_version(tmp_path: Path) -> None:
    """Computed by d98f93c: another digest would make another run of the same source."""
    with ListingWriter(tmp_path / "listing.parquet") as writer:
        odd = Listed("a/\udcff", 0, "", -(1 << 70), "v", "md5:full:00")
        writer.add([Listed("a/1", 3, "etag", 5), odd], source=1)
        writer.add([Listed("b", 1 << 40, "t", 1 << 70)], paths=["c/b"])
        assert writer.close() == (
            "sha256:706b61a7ab05b965e1d74e6b434188e40502594a1f658bbd0b6ffa0782204c09",
            3,
            (1 << 40) + 3,
        )


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    def stopped() -> None:
        with ListingWriter(tmp_path / "l") as writer:
            writer.add([Listed("a", 1, "t", 2)])
            raise KeyError

    with pytest.raises(KeyError):
        stopped()
    assert os.listdir(tmp_path) == []


def test_missing_damaged_and_foreign_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(FailedError, match="cannot be read"):
        read(tmp_path / "none")
    (tmp_path / "torn").write_bytes(b"PAR1" + b"x" * 100)
    with pytest.raises(FailedError, match="cannot be read"):
        read(tmp_path / "torn")
    write_shard(tmp_path / "shard", 0, [Entry("a", "a", 1, "t", 1, length=1)])
    with pytest.raises(FailedError, match="something else"):
        read(tmp_path / "shard")


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
rows_of = st.builds(
    Listed, texts, st.integers(0, 2**62), texts, st.integers(-(2**62), 2**62), texts, texts, st.just("")
)


@settings(deadline=None, max_examples=30)
@given(st.lists(rows_of, max_size=10), st.integers(1, 4))
def test_any_rows_survive(tmp_path_factory: pytest.TempPathFactory, rows: list[Listed], page: int) -> None:
    path = tmp_path_factory.mktemp("listing") / "l"
    _, count, size = write(path, rows, page)
    assert (count, size) == (len(rows), sum(row.size for row in rows))
    back = read(path)
    assert [Listed(e.key, e.size, e.token, e.modified_ns, e.version, e.checksum) for e in back] == rows


def test_shards_keep_rows_parts_and_counts(tmp_path: Path) -> None:
    rows = [
        Entry("a", "k/a", 5, "t", 1, 3, "v", "c", length=5),
        Entry("b", "b", 5, "t", 1, length=5, reuse=Reuse("xxh3_128:00", mtime_ns=-1)),
        Entry("g", "g", 25, "t", 1, part=0, offset=0, length=10),
        Entry("g", "g", 25, "t", 1, part=1, offset=10, length=10),
        Entry("g", "g", 25, "t", 1, part=2, offset=20, length=5),
        Entry(os.fsdecode(b"\xff"), os.fsdecode(b"\xff"), 0, "", 0),
    ]
    info = write_shard(tmp_path / "shards" / "00004.parquet", 4, iter(rows))
    assert (info.index, info.rows, info.files, info.bytes, info.reused) == (4, 6, 4, 35, 1)
    assert [row for batch in read_shard(tmp_path / "shards" / "00004.parquet") for row in batch] == rows
    import hashlib

    content = (tmp_path / "shards" / "00004.parquet").read_bytes()
    assert info.digest == f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_a_shard_reads_back_in_small_batches_with_the_same_file_for_the_same_rows(tmp_path: Path) -> None:
    rows = [Entry(f"{n:07d}", f"{n:07d}", n, "t", n, length=n) for n in range(70_000)]
    one, two = write_shard(tmp_path / "1", 0, rows), write_shard(tmp_path / "2", 0, rows)
    assert one.digest == two.digest
    batches = list(read_shard(tmp_path / "1"))
    assert max(map(len, batches)) <= 8192
    assert [row for batch in batches for row in batch] == rows


def test_a_column_that_is_no_identity_is_kept_and_moves_no_digest(tmp_path: Path) -> None:
    rows = [Listed(f"k{n}", n, f"t{n}", n, archived="GLACIER" if n % 2 else "") for n in range(5)]
    plain = [row._replace(archived="") for row in rows]
    assert write(tmp_path / "a", rows, 2) == write(tmp_path / "b", plain, 3)
    kept = [entry.listed() for batch in read_listing(tmp_path / "a") for entry in batch]
    assert kept == rows
    assert {column.name for column in LISTING_FORM.columns if not column.identity} == {"archived"}
