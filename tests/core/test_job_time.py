"""S29: how much time a worker asks for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core import estimates as job_time
from penstock.core.estimates import Estimate

HOUR = 3600


def measured(*seconds: float) -> list[Estimate]:
    return [Estimate(one, measured=True) for one in seconds]


@pytest.mark.parametrize(
    ("estimates", "shards", "workers", "longest", "asked"),
    [
        (measured(HOUR), 1, 1, 0, 15 * 60 + 3 * HOUR // 2),
        (measured(HOUR, HOUR, HOUR, HOUR), 4, 4, 0, 15 * 60 + 3 * HOUR // 2),
        (measured(HOUR, HOUR, HOUR, HOUR), 4, 3, 0, 15 * 60 + 2 * HOUR),
        ([Estimate(HOUR, measured=False)], 1, 1, 0, 15 * 60 + 3 * HOUR // 2),
        (measured(0.1), 1, 1, 0, 30 * 60),
        (measured(100 * HOUR), 1, 1, 0, 4 * HOUR),
        (measured(HOUR), 2, 2, 0, 4 * HOUR),
        ([], 2, 2, 0, 4 * HOUR),
        ([], 0, 1, 0, 4 * HOUR),
        (measured(HOUR), 1, 0, 0, 15 * 60 + 3 * HOUR // 2),
        ([], 1, 1, HOUR, HOUR),
        (measured(HOUR), 1, 1, 90 * 60, 90 * 60),
        (measured(HOUR), 1, 1, 90, 60),
        (measured(0.1), 1, 1, 20 * 60, 20 * 60),
        (measured(1000 * HOUR), 1, 1, 30 * 24 * HOUR, 4 * HOUR),
    ],
)
def test_s29_the_limit_that_a_worker_asks_for(
    estimates: list[Estimate], shards: int, workers: int, longest: float, asked: int
) -> None:
    assert job_time.asked_for(estimates, shards, workers, longest) == asked


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e7), max_size=4), st.integers(0, 4), st.integers(1, 5), st.floats(0, 1e7))
def test_s29_it_is_whole_minutes_within_the_bound_and_never_unlimited(
    seconds: list[float], further: int, workers: int, longest: float
) -> None:
    asked = job_time.asked_for(measured(*seconds), len(seconds) + further, workers, longest)
    assert asked % 60 == 0
    assert 60 <= asked <= max(60, longest or job_time.UNKNOWN)
    assert asked <= job_time.UNKNOWN
    assert 60 <= job_time.unestimated(longest) <= max(60, longest or job_time.LONGEST)
