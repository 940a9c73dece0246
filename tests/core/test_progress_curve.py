"""Remaining time of streams whose pace is steady, whatever the order of the sizes."""

from __future__ import annotations

import random
from bisect import bisect
from itertools import accumulate
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.estimates import ProgressCurve

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MIB = 1 << 20
SECONDS = 400
"""Of each stream."""


def lefts(
    sizes: Sequence[int], file_cost: float, byte_cost: float = 1.0, every: float = 0.25
) -> Iterator[tuple[float, float]]:
    """(estimated, true) seconds left of a stream, file by file, after its first minute, until 20 s before its
    end. A file takes a time in proportion to `file_cost` and its bytes; counts are reported `every` so many
    seconds."""
    ends = list(accumulate(file_cost + byte_cost * size for size in sizes))
    bytes_before = [0, *accumulate(sizes)]
    per_second = ends[-1] / SECONDS
    curve, at = ProgressCurve(), 0.0
    while at <= SECONDS - 20:
        work = at * per_second
        files = bisect(ends, work)
        begun = ends[files - 1] if files else 0.0
        part = min(1.0, (work - begun) / (ends[files] - begun)) if byte_cost else 0.0
        size = bytes_before[files] + int(sizes[files] * part)
        curve.add(at, files, size)
        if at >= 60 and at % 6 < every:
            left = curve.seconds_left(at, len(sizes) - files, bytes_before[-1] - size)
            assert left is not None
            yield left, SECONDS - at
        at += every


def ordered(sizes: Sequence[int], order: str) -> list[int]:
    if order == "mixed":
        return random.Random(7).sample(sizes, len(sizes))
    return sorted(sizes, reverse=order == "large first")


ORDERS = pytest.mark.parametrize("order", ["small first", "large first", "mixed"])


@ORDERS
@pytest.mark.parametrize("every", [0.25, 3.0])
@pytest.mark.parametrize(
    ("file_cost", "byte_cost"),
    [(0.0, 1.0), (1.0, 0.0), (256 << 10, 1.0), (3 * MIB, 1.0)],
    ids=["bytes", "files", "files cost 256 KiB", "files cost their mean size"],
)
def test_of_a_steady_stream_it_is_within_a_fifth(
    order: str, file_cost: float, byte_cost: float, every: float
) -> None:
    draw = random.Random(1)
    sizes = ordered([int(draw.lognormvariate(13, 2)) + 1 for _ in range(20_000)], order)
    for left, true in lefts(sizes, file_cost, byte_cost, every):
        assert abs(left - true) <= 0.2 * true


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.sampled_from([4096, 65536, MIB, 64 * MIB, 1 << 30]), st.integers(1, 2000)), min_size=1
    ),
    st.sampled_from(["small first", "large first", "mixed"]),
)
def test_at_a_steady_rate_of_bytes_no_sizes_matter(kinds: list[tuple[int, int]], order: str) -> None:
    """As a link, or `engine.limit`, makes it."""
    sizes = ordered([size for size, many in kinds for _ in range(many)], order)
    assert all(abs(left - true) <= 0.2 * true for left, true in lefts(sizes, 0.0, every=1.0))


def test_a_step_without_bytes_goes_by_files_and_none_is_said_where_nothing_moves() -> None:
    curve = ProgressCurve()
    assert curve.seconds_left(1.0, 5, 5) is None
    for second in range(61):
        curve.add(second, 10 * second, 0)
    assert curve.seconds_left(60.0, 100, 1 << 30) == pytest.approx(10)
    assert curve.rates(60.0) == pytest.approx((0, 10), rel=0.05)
    assert curve.seconds_left(60.0, 0, 0) is None
    for second in range(61, 140):
        curve.add(second, 600, 0)
    assert curve.seconds_left(139.0, 100, 0) is None


def test_what_was_done_before_is_no_pace() -> None:
    curve = ProgressCurve()
    for second in range(120):
        curve.add(second, 1000, (1 << 40) + second * MIB)
    assert curve.rates(119.0)[0] == pytest.approx(MIB, rel=0.05)
    assert curve.seconds_left(119.0, 0, 50 * MIB) == pytest.approx(50, rel=0.05)
