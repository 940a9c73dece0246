from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.balance import ELEMENT_COST, FILE_COST, GIB, Cut, Decision, Load, costs, decide, parts
from penstock.core.model import Entry, Reuse

TIB = 1 << 40


def entry(size: int, reuse: Reuse | None = None) -> Entry:
    return Entry("p", "p", size, "t", 1, length=size, reuse=reuse)


def decided(load: Load, slots: int = 4, max_array: int = 1000, files: int = 500_000) -> Decision:
    return decide(load, shard_bytes=TIB, shard_files=files, slots=slots, max_array=max_array)


def load(size: int, rows: int) -> Load:
    return Load(size + rows * FILE_COST, size, rows)


@pytest.mark.parametrize(
    ("given_load", "slots", "max_array", "shards", "why"),
    [
        (load(0, 1), 4, 1000, 1, "less work"),
        (load(2 * GIB, 20_000), 4, 1000, 1, "less work"),
        (load(70 * GIB, 100), 4, 1000, 2, "one for each 32 GiB"),
        (load(170 * GIB, 100), 4, 1000, 8, "full rounds of 4"),
        (load(TIB, 100_000), 4, 1000, 16, "4 for each that can run at once (4)"),
        (load(100 * TIB, 100_000), 4, 1000, 100, "at most 1024 GiB"),
        (load(100 * TIB, 100_000), 64, 1000, 256, "at once (64)"),
        (load(0, 20_000_000), 4, 1000, 40, "at most 500,000 files"),
        (load(100 * TIB, 100_000), 4, 10, 100, "in 10 submissions, since an array of the cluster holds no"),
        (load(0, 20_000 * 500_000 + 1), 4, 1001, 20_000, "no plan has more than 20000; in 20 submissions"),
        (load(100 * TIB, 7), 4, 1000, 7, "one for each row"),
        (load(0, 400_000), 4, 1000, 3, "one for each 32 GiB"),
        (load(TIB, 100_000), 1, 1000, 1, "one element runs at a time"),
        (load(5 * TIB, 100_000), 1, 1000, 5, "at most 1024 GiB"),
        (load(TIB, 1_000_001), 1, 1000, 3, "at most 500,000 files"),
        (Load(0, 0, 0), 0, 0, 1, "one element"),
    ],
)
def test_the_number_of_shards(given_load: Load, slots: int, max_array: int, shards: int, why: str) -> None:
    decision = decided(given_load, slots, max_array)
    assert decision.shards == shards
    assert why in decision.why


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=80), st.integers(1, 20))
def test_no_row_is_lost_and_the_dearest_shard_is_within_one_row_of_the_mean(
    costs: list[int], shards: int
) -> None:
    cut = Cut(sum(costs), shards)
    places = [cut.place(value) for value in costs]
    assert places[0] == 0
    assert all(two - one in (0, 1) for one, two in pairwise(places))
    assert places[-1] < shards
    sums = [sum(c for c, p in zip(costs, places, strict=True) if p == index) for index in set(places)]
    assert sum(sums) == sum(costs)
    assert max(sums) <= sum(costs) / shards + max(costs)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.lists(st.integers(0, 50) | st.integers(0, 10**15), max_size=40), max_size=5),
    st.integers(1, 20),
    st.integers(-100, 100),
)
def test_runs_are_what_place_says_of_each_row(batches: list[list[int]], shards: int, off: int) -> None:
    total = sum(map(sum, batches)) + off
    one, many = Cut(total, shards), Cut(total, shards)
    for batch in batches:
        runs = list(many.runs(batch))
        assert [start for _, start, _ in runs] == [0, *(end for _, _, end in runs)][: len(runs)]
        places = [place for place, start, end in runs for _ in range(start, end)]
        assert places == [one.place(cost) for cost in batch]
        assert len(runs) == len(set(places))


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10**5), st.integers(1, 10**5), st.integers(1, 10**4))
def test_parts_cover_an_object_exactly_once(size: int, giant: int, part: int) -> None:
    rows = list(parts(entry(size), giant, part))
    if size < giant or size <= part:
        assert rows == [entry(size)]
        return
    assert [row.part for row in rows] == list(range(len(rows)))
    assert all(row.size == size and 0 < row.length <= part for row in rows)
    ends = [0, *(row.offset + row.length for row in rows)]
    assert [row.offset for row in rows] == ends[:-1]
    assert ends[-1] == size


def test_a_linked_file_is_never_split() -> None:
    linked = entry(10 * GIB, reuse=Reuse("xxh3_128:00"))
    assert costs([10 * GIB, 0]) == [10 * GIB + FILE_COST, FILE_COST]
    assert list(parts(linked, GIB, GIB)) == [linked]
    assert ELEMENT_COST > FILE_COST
