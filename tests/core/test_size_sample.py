"""A sample has the sizes of all files, and the knee of a sweep is where more streams stop to help."""

from __future__ import annotations

import random

import pytest

from penstock.core.run_documents import (
    REHEARSAL,
    Leg,
    Rehearsal,
    knee,
    size_distance,
    spread_by_size,
)

DRAW = random.Random(7)
SIZES = {
    "many small, few large": [DRAW.randrange(4096) for _ in range(20_000)] + [1 << 33] * 40,
    "all equal": [4096] * 5000,
    "one file": [77],
    "two files": [0, 1 << 40],
    "lognormal": [int(DRAW.lognormvariate(12, 3)) for _ in range(30_000)],
    "many empty": [0] * 900 + list(range(100)),
    "powers": [1 << (number % 36) for number in range(7777)],
}


@pytest.mark.parametrize("kind", SIZES)
def test_each_beginning_of_a_spread_sample_has_the_sizes_of_all(kind: str) -> None:
    """Z4: sizes of the sample and of all files are less than 0.05 apart."""
    sizes = sorted(SIZES[kind])
    order = spread_by_size(len(sizes))
    assert sorted(order) == list(range(len(sizes)))
    for count in (64, 65, 85, 100, 171, 1000, len(sizes)):
        sample = [sizes[place] for place in order[:count]]
        assert size_distance(sample, [sizes[:500], sizes[500:]]) < 0.05, count


def test_the_distance_is_that_of_the_definition() -> None:
    """Against the distance worked out at every size that there is."""
    for _ in range(50):
        sizes = [DRAW.randrange(40) for _ in range(DRAW.randrange(1, 200))]
        sample = DRAW.choices([*sizes, 41], k=DRAW.randrange(1, 30))

        def upto(values: list[int], most: int) -> float:
            return sum(value <= most for value in values) / len(values)

        expected = max(abs(upto(sample, most) - upto(sizes, most)) for most in range(-1, 43))
        assert size_distance(sample, [sizes]) == pytest.approx(expected)


def test_of_nothing_the_distance_is_the_largest() -> None:
    assert size_distance([], [[1]]) == size_distance([1], []) == 1


def leg(streams: int, rate: float) -> Leg:
    return Leg(streams, files=100, bytes=int(rate * 10), seconds=10.0, read_seconds=5.0, distance=0.0)


def test_the_knee_is_the_smallest_number_that_is_nearly_the_best() -> None:
    """A3"""
    rates = {8: 4e8, 16: 8e8, 32: 9.8e8, 64: 1e9}
    assert knee([leg(*one) for one in rates.items()]) == 32
    assert knee([leg(*one) for one in (rates | {32: 9e8}).items()]) == 64
    assert knee([leg(8, 5e8), leg(16, 4e8)]) == 8
    assert knee([leg(8, 5e8)]) == 0


def test_a_rehearsal_is_read_as_it_was_written() -> None:
    made = Rehearsal(
        "a", "2026-11-02T12:00:00Z", "node1", 9, 9, (leg(8, 1e8), leg(16, 9e8)), 16, "syncfs", -0.25
    )
    content = REHEARSAL.to_json(made)
    assert content["format"] == 1
    assert REHEARSAL.from_value(content, "rehearsal.json") == made
    assert (made.leg.streams, made.day) == (16, "2 Nov")
    at_once = made._replace(legs=(leg(8, 1e8)._replace(seconds=0.0),))
    for wrong in (made._replace(legs=()), made._replace(at="yesterday"), at_once):
        with pytest.raises(ValueError, match=r"measured|yesterday"):
            REHEARSAL.from_value(REHEARSAL.to_json(wrong), "rehearsal.json")
