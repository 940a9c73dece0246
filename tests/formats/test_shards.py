"""Rows that are given as columns, in pieces of any size."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.support.records import write_shard

from penstock.core.model import Entry, Listed
from penstock.formats.listing import ListingWriter, read_columns, read_listing
from penstock.formats.shards import ShardWriter, as_columns, as_rows, reused, whole_files

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("piece", [1, 999, 8192, 10_000])
def test_pieces_of_any_size_make_the_same_file(tmp_path: Path, piece: int) -> None:
    count = 700 if piece == 1 else 140_000
    rows = [
        Entry(f"{n:07d}", "k", n, "t", n, length=n, reuse="d g" if n % 5 == 0 else "")
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
        sum(row.reuse != "" for row in rows),
    )


def test_a_listing_becomes_rows_as_it_is_stored(tmp_path: Path) -> None:
    with ListingWriter(tmp_path / "l") as writer:
        writer.add([Listed("a", 5, "t", 1, "v", "c"), Listed(os.fsdecode(b"\xff"), 0, "", 2)], source=3)
        writer.close()
    (batch,), (entries,) = read_columns(tmp_path / "l"), read_listing(tmp_path / "l")
    assert as_rows(whole_files(batch)) == entries
    assert reused(whole_files(batch)) == []
    linked = whole_files(batch, ["", "d g"])
    assert as_rows(linked) == [entries[0], entries[1]._replace(reuse="d g")]
    assert reused(linked) == ["", "d g"]
    # A cut is asked about its own rows alone.
    assert reused(linked.slice(0, 1)) == reused(linked.slice(2)) == []
    assert next(as_columns(entries)).equals(whole_files(batch))
