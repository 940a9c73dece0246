"""S29: how much time an element asks for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core import job_time
from penstock.core.job_time import Estimate

HOUR = 3600


@pytest.mark.parametrize(
    ("estimate", "longest", "asked"),
    [
        (Estimate(HOUR, measured=True), 0, 15 * 60 + 3 * HOUR),
        (Estimate(HOUR, measured=False), 0, 15 * 60 + 10 * HOUR),
        (Estimate(0.1, measured=True), 0, 16 * 60),
        (None, 0, 4 * HOUR),
        (None, HOUR, HOUR),
        (Estimate(HOUR, measured=True), 90 * 60, 90 * 60),
        (Estimate(HOUR, measured=True), 90, 60),
        (Estimate(1000 * HOUR, measured=True), 0, 7 * 24 * HOUR),
    ],
)
def test_s29_the_first_limit(estimate: Estimate | None, longest: float, asked: int) -> None:
    assert job_time.first(estimate, longest) == asked


@settings(deadline=None)
@given(st.floats(0, 1e7), st.booleans(), st.floats(0, 1e7))
def test_s29_it_is_whole_minutes_within_the_bound_and_never_unlimited(
    seconds: float, measured: bool, longest: float
) -> None:
    first = job_time.first(Estimate(seconds, measured), longest)
    again = job_time.raised(first, longest)
    assert first % 60 == again % 60 == 0
    assert 60 <= first <= again <= max(60, longest or job_time.LONGEST)
    assert 60 <= job_time.unestimated(longest) <= max(60, longest or job_time.LONGEST)


@pytest.mark.parametrize(
    ("limit", "longest", "asked"),
    [(60, 0, 120), (HOUR, 0, 2 * HOUR), (HOUR, 5400, 5400), (HOUR, HOUR, HOUR), (2 * HOUR, HOUR, 2 * HOUR)],
)
def test_s29_after_a_timeout_it_is_doubled_within_the_bound(limit: int, longest: float, asked: int) -> None:
    assert job_time.raised(limit, longest) == asked
