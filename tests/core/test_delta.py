from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.delta import compare, same
from penstock.core.model import Entry, Record, Reuse

if TYPE_CHECKING:
    from collections.abc import Sequence

DIGEST = "xxh3_128:" + "0" * 32


def entry(path: str = "a", **changes: Any) -> Entry:
    return Entry(path, path, 10, "token", 7, length=10)._replace(**changes)


def record(path: str = "a", **changes: Any) -> Record:
    row = Record(
        path, 10, DIGEST, 7, path, "token", "", 0, "size", "", "cold", "direct", "h1", "h2", "at", 7, 8
    )
    return row._replace(**changes)


def is_same(mine: Entry, theirs: Record, *, keep: bool = True) -> bool:
    return same(mine, theirs, sources={0: 0, 2: 1}, giant_bytes=1000, keep_mtime=keep)


def test_the_same_token_size_key_source_and_time_is_unchanged() -> None:
    assert is_same(entry(), record())
    assert is_same(entry(source=1), record(source=2))


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (entry(token=""), record(token="")),
        (entry(token="new"), record()),
        (entry(size=11), record()),
        (entry(key="into/a"), record()),
        (entry(version="2"), record(version="1")),
        (entry(source=1), record()),
        (entry(), record(source=1)),
        (entry(modified_ns=8), record()),
        (entry(size=1000), record(size=1000)),
        (entry(), record(digest="xxh3_128/268435456:" + "0" * 32)),
    ],
)
def test_any_difference_means_copying(mine: Entry, theirs: Record) -> None:
    assert not is_same(mine, theirs)


def test_times_count_only_where_they_are_kept() -> None:
    assert is_same(entry(modified_ns=8), record(), keep=False)


def merged(paths: Sequence[str], base: Sequence[str], page: int = 3) -> list[Entry]:
    listing = [[entry(path) for path in paths[at : at + page]] for at in range(0, len(paths), page)]
    records = [[record(path) for path in base[at : at + 2]] for at in range(0, len(base), 2)]
    batches = compare(listing, records, sources={0: 0}, giant_bytes=1000, keep_mtime=True)
    return [row for batch in batches for row in batch]


names = st.lists(st.sampled_from(["a", "a-b", "a/b", "z", "é", "\udcff", "\U0001f600", "q"]), unique=True)


@settings(deadline=None, max_examples=100)
@given(names, names)
def test_the_merge_finds_what_both_have_and_keeps_every_row(mine: list[str], theirs: list[str]) -> None:
    paths, base = sorted(mine, key=os.fsencode), sorted(theirs, key=os.fsencode)
    rows = merged(paths, base)
    assert [row.path for row in rows] == paths
    assert {row.path for row in rows if row.reuse} == set(mine) & set(theirs)
    assert all(row.reuse in ("", f"{DIGEST} size - 7 h1") for row in rows)


@pytest.mark.parametrize(
    "there",
    [
        Reuse(DIGEST),
        Reuse(DIGEST, "full", "md5:full:00", -5, "node7"),
        Reuse(DIGEST, "size", "", 0, "node7"),
        Reuse("parts/16777216:" + "0" * 32, "size", "full sha256:full:00", None, "", "0123456789abcdef"),
    ],
)
def test_what_a_linked_file_brings_along_comes_back(there: Reuse) -> None:
    assert Reuse.parse(str(there)) == there
    assert Reuse.is_taken(str(there)) == bool(there.staging)


@pytest.mark.parametrize(
    ("text", "there"),
    [
        (f"{DIGEST} size", Reuse(DIGEST)),
        (f"{DIGEST} full crc32c:full:0a", Reuse(DIGEST, "full", "crc32c:full:0a")),
        (DIGEST, Reuse(DIGEST)),
    ],
)
def test_plans_of_older_versions_are_read(text: str, there: Reuse) -> None:
    assert Reuse.parse(text) == there


def test_several_writers_are_no_writer_that_is_known() -> None:
    assert Reuse.parse(str(Reuse(DIGEST, host="a b"))).host == ""
