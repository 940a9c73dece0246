"""Rows that are given as columns, in pieces of any size."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.support.records import write_shard

from penstock.core.errors import FailedError
from penstock.core.model import Entry, Expected, Listed, Reuse
from penstock.core.run_documents import Cut
from penstock.tables.run_tables import (
    EXPECTED,
    ListingWriter,
    ShardsWriter,
    ShardWriter,
    as_columns,
    as_rows,
    count_reused,
    crossing,
    giants,
    read_expected,
    read_listing,
    read_listing_columns,
    read_shard,
    whole_files,
)

if TYPE_CHECKING:
    from pathlib import Path

DIGEST = "xxh3_128:" + "0" * 32
LINKED = Reuse(DIGEST, "full", "crc32c:full:0a", 5, "h\u00e9")


@pytest.mark.parametrize("piece", [1, 999, 8192, 10_000])
def test_pieces_of_any_size_make_the_same_file(tmp_path: Path, piece: int) -> None:
    count = 700 if piece == 1 else 140_000
    rows = [
        Entry(f"{n:07d}", "k", n, "t", n, length=n, reuse=LINKED if n % 5 == 0 else None)
        if n % 7
        else Entry(f"{n:07d}", "k", 30, "t", n, part=n % 3, offset=n % 3 * 10, length=10)
        for n in range(count)
    ]
    one = write_shard(tmp_path / "one", 3, rows)
    with ShardWriter(tmp_path / "two", 3) as writer:
        for batch in as_columns(rows):
            for start in range(0, batch.num_rows, piece):
                writer.add_columns(batch.slice(start, piece))
        assert writer.close() == one
    assert sorted(os.listdir(tmp_path)) == ["one", "two"]
    assert (one.rows, one.files, one.reused) == (
        count,
        sum(row.part in (-1, 2) for row in rows),
        sum(row.reuse is not None for row in rows),
    )


@pytest.mark.parametrize("rows", [0, 10, 200_000])
@pytest.mark.parametrize("parts", [(), (0, 1, 9), (9, 70_000, 199_999)])
def test_giants_are_those_that_have_parts(tmp_path: Path, rows: int, parts: tuple[int, ...]) -> None:
    entries = [Entry(f"{n:07d}", "k", 9, "t", n, part=n if n in parts else -1) for n in range(rows)]
    write_shard(tmp_path / "shard", 0, entries)
    assert giants(tmp_path / "shard") == {f"{n:07d}" for n in parts if n < rows}


@pytest.mark.parametrize(
    ("rows", "reach"),
    [
        ([], ("", "")),
        ([("a", -1, 0, 9)], ("", "")),
        ([("a", 0, 0, 3), ("a", 1, 3, 6)], ("", "")),
        ([("a", 0, 0, 3)], ("", "a")),
        ([("a", 1, 3, 3)], ("a", "a")),
        ([("a", 2, 6, 3), ("b", 0, 0, 3)], ("a", "b")),
        ([("a", 2, 6, 3), ("b", -1, 0, 9), ("c", 0, 0, 3), ("c", 1, 3, 6)], ("a", "")),
    ],
)
def test_giants_that_reach_into_other_shards(
    tmp_path: Path, rows: list[tuple[str, int, int, int]], reach: tuple[str, str]
) -> None:
    entries = [
        Entry(path, "k", 9, "t", 0, part=part, offset=offset, length=length)
        for path, part, offset, length in rows
    ]
    write_shard(tmp_path / "shard", 0, entries)
    assert crossing(tmp_path / "shard") == reach


def test_a_listing_becomes_rows_as_it_is_stored(tmp_path: Path) -> None:
    with ListingWriter(tmp_path / "l") as writer:
        writer.add([Listed("a", 5, "t", 1, "v", "c"), Listed(os.fsdecode(b"\xff"), 0, "", 2)], source=3)
        writer.close()
    (batch,), (entries,) = read_listing_columns(tmp_path / "l"), read_listing(tmp_path / "l")
    assert as_rows(whole_files(batch)) == entries
    assert count_reused(whole_files(batch)) == 0
    (linked,) = as_columns([entries[0], entries[1]._replace(reuse=LINKED)])
    assert ([row.reuse for row in as_rows(linked)], count_reused(linked)) == ([None, LINKED], 1)
    # A cut is asked about its own rows alone.
    assert [row.reuse for start in (0, 1) for row in as_rows(linked.slice(start, 1))] == [None, LINKED]
    assert [count_reused(linked.slice(*cut)) for cut in ((0, 1), (1, 1), (2,))] == [0, 1, 0]
    assert next(as_columns(entries)).equals(whole_files(batch))


@pytest.mark.parametrize(
    "there",
    [
        Reuse(DIGEST),
        Reuse(DIGEST, "full", "md5:full:00", -5, "node7"),
        Reuse(DIGEST, "size", "", 0, "node7"),
        Reuse("parts/16777216:" + "0" * 32, "size", "full sha256:full:00", None, "", "0123456789abcdef"),
    ],
)
def test_what_a_linked_file_brings_along_comes_back(tmp_path: Path, there: Reuse) -> None:
    rows = [Entry("a", "a", 5, "t", 1), Entry("b", "b", 5, "t", 1, reuse=there)]
    assert write_shard(tmp_path / "s", 0, rows).reused == 1
    assert [row for batch in read_shard(tmp_path / "s") for row in batch] == rows


def test_the_shard_of_an_audit_says_what_must_be_read(tmp_path: Path) -> None:
    some = [Expected("a\udcff", 3, length=3, digest="xxh3_128:00"), Expected("b", 9, 1, 4, 5, "xxh3_128:11")]
    with ShardWriter(tmp_path / "s", 0, EXPECTED) as writer:
        writer.add(some)
        made = writer.close()
    assert [row for batch in read_expected(tmp_path / "s") for row in batch] == some
    assert (made.rows, made.files, made.bytes, made.reused) == (2, 2, 8, 0)
    with pytest.raises(FailedError, match="holds something else"):
        list(read_shard(tmp_path / "s"))


def test_shards_are_cut_where_their_rows_cost_as_much(tmp_path: Path) -> None:
    rows = [Entry(f"{n}", "k", 10, "t", n, length=10) for n in range(9)]
    with ShardsWriter(lambda index: tmp_path / f"{index}", Cut(90, 3)) as shards:
        for some in (rows[:4], rows[4:]):
            for shard, start, end in shards.runs([row.length for row in some]):
                shard.add(some[start:end])
        made = shards.close()
    assert [(shard.index, shard.rows, shard.files) for shard in made] == [(0, 3, 3), (1, 3, 3), (2, 3, 3)]
    assert [row for index in range(3) for batch in read_shard(tmp_path / f"{index}") for row in batch] == rows


def test_a_shard_that_is_not_closed_leaves_nothing(tmp_path: Path) -> None:
    row = Entry("a", "k", 10, "t", 1, length=10)
    with ShardsWriter(lambda index: tmp_path / f"{index}", Cut(20, 2)) as shards:
        for index in range(2):
            shards.at(index).add([row], files=0)
    assert os.listdir(tmp_path) == ["0"]
