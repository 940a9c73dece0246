from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.model import Entry, Reuse
from penstock.core.run_documents import (
    FILE_COST,
    GIB,
    LEAST,
    Cut,
    Decision,
    Load,
    costs,
    decide,
    parts,
)

TIB = 1 << 40


def entry(size: int, reuse: Reuse | None = None) -> Entry:
    return Entry("p", "p", size, "t", 1, length=size, reuse=reuse)


def decided(load: Load, slots: int = 4, rate: float | None = None) -> Decision:
    return decide(load, shard_bytes=TIB, shard_files=500_000, slots=slots, rate=rate)


def load(size: int, rows: int) -> Load:
    return Load(size + rows * FILE_COST, size, rows)


@pytest.mark.parametrize(
    ("given_load", "slots", "shards", "why"),
    [
        (load(0, 1), 4, 1, "none smaller than 256 MiB"),
        (load(2 * GIB, 8_000), 4, 15, "none smaller than 256 MiB"),
        (load(7 * GIB, 100), 4, 28, "none smaller than 256 MiB"),
        (load(8 * GIB, 100), 4, 32, "a slow node takes fewer"),
        (load(TIB, 100_000), 4, 32, "than others (4 can run at once)"),
        (load(100 * TIB, 100_000), 4, 342, "none larger than 300 GiB"),
        (load(100 * TIB, 100_000), 128, 512, "(128 can run at once)"),
        (load(0, 20_000_000), 4, 40, "at most 500,000 files"),
        (load(0, 20_000 * 500_000 + 1), 4, 20_000, "no plan has more than 20000"),
        (load(100 * TIB, 7), 4, 7, "one for each row"),
        (load(TIB, 100_000), 1, 32, "reading back need not wait for all"),
        (load(2 * GIB, 8_000), 1, 15, "none smaller than 256 MiB"),
        (load(100 * TIB, 100_000), 1, 342, "none larger than 300 GiB"),
        (load(0, 20_000_000), 1, 40, "at most 500,000 files"),
        (Load(0, 0, 0), 0, 1, "none smaller"),
    ],
)
def test_the_number_of_shards(given_load: Load, slots: int, shards: int, why: str) -> None:
    decision = decided(given_load, slots)
    assert decision.shards == shards
    assert why in decision.why


@pytest.mark.parametrize(
    ("given_load", "slots", "rate", "shards", "why"),
    [
        (load(28 * GIB, 100), 4, 0.2 * GIB, 28, "none smaller than 1.00 GiB of bytes and file costs, by 205"),
        (load(28 * GIB, 100), 4, 2.0 * GIB, 2, "none smaller than 10.0 GiB"),
        (load(28 * GIB, 100), 4, 0.1 * GIB, 32, "than others (4 can run at once)"),
        (load(4 * GIB, 100), 1, 0.01 * GIB, 16, "none smaller than 256 MiB"),
        (load(TIB, 200), 4, GIB / 30, 103, "none larger than 10.0 GiB"),
        (load(28 * GIB, 200), 4, 1.0, 113, "none larger than 256 MiB"),
        (load(700 * TIB, 1000), 64, 3.0 * GIB, 797, "none larger than 900 GiB"),
        (load(100 * TIB, 500), 4, 40.0 * GIB, 100, "a shard has at most 1.00 TiB"),
    ],
)
def test_shards_of_a_known_rate_last_from_five_seconds_to_five_minutes(
    given_load: Load, slots: int, rate: float, shards: int, why: str
) -> None:
    decision = decided(given_load, slots, rate)
    assert (decision.shards, why in decision.why) == (shards, True), decision


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
    assert LEAST > FILE_COST
