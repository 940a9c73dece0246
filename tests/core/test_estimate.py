from __future__ import annotations

from typing import Any

import pytest

from penstock.core.time_estimate import Rates, rates, seconds


def line(release: str, **copy: Any) -> dict[str, Any]:
    return {"release": release, "copy": copy}


def test_without_history_rates_are_assumed() -> None:
    assert rates([]) == Rates()
    assert not rates([{"release": "r"}, {"copy": "odd"}, line("r", files=1), line("r", files="x")]).measured


def test_the_newest_measured_copy_counts() -> None:
    found = rates(
        [
            line("old", files=10, bytes=100, element_seconds=10),
            line("new", files=1000, bytes=4000, element_seconds=20),
            line("empty", files=0, bytes=0, element_seconds=0),
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
