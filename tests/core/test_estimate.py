from __future__ import annotations

import pytest

from penstock.core.estimates import (
    MeasuredCopy,
    Rates,
    rates,
    seconds,
)


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


def test_before_the_first_copy_the_rates_are_those_of_the_probe() -> None:
    found = rates([], {"files": 7000.0, "links": 30_000.0})
    assert (found.files_per_second, found.links_per_second, found.measured) == (7000.0, 30_000.0, "")
    known = rates([MeasuredCopy("r", 1000, 4000, 20)], {"files": 7000.0, "links": 30_000.0})
    assert (known.files_per_second, known.links_per_second) == (50.0, 30_000.0)


def test_links_cost_time_by_the_rate_of_the_newest_run_that_made_many() -> None:
    history = [MeasuredCopy("a", 0, 0, 0, 100_000, 5.0), MeasuredCopy("b", 10, 10, 1, 999, 9.0)]
    found = rates(history)
    assert (found.links_per_second, found.links_measured) == (20_000.0, "a")
    assert seconds(0, 0, 2, found, links=1_000_000) == 25.0


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
