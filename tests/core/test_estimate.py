from __future__ import annotations

import pytest

from penstock.core.time_estimate import MeasuredCopy, Rates, rates, seconds


def test_without_history_rates_are_assumed() -> None:
    assert rates([]) == Rates()
    assert not rates([MeasuredCopy("r", 0, 0, 5.0), MeasuredCopy("s", 1, 1, 0.0)]).measured


def test_the_newest_measured_copy_counts() -> None:
    found = rates(
        [
            MeasuredCopy("old", 10, 100, 10),
            MeasuredCopy("new", 1000, 4000, 20),
            MeasuredCopy("empty", 0, 0, 0),
        ]
    )
    assert found == Rates(200.0, 50.0, "new")


@pytest.mark.parametrize(
    ("basis", "slots", "expected"),
    [
        (Rates(100.0, 10.0), 1, 30.0),
        (Rates(100.0, 10.0), 2, 15.0),
        (Rates(100.0, 10.0, "r"), 1, 20.0),
        (Rates(100.0, 10.0), 0, 30.0),
    ],
)
def test_seconds(basis: Rates, slots: int, expected: float) -> None:
    assert seconds(100, 2000, slots, basis) == expected
