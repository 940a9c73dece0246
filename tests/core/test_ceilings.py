"""What bounds a copy, and how long it takes: by figures that sites have published."""

from __future__ import annotations

import pytest

from penstock.core.estimates import (
    ASSUMED,
    Forecast,
    Known,
    Rate,
    Reached,
    Work,
    forecast,
    pebibyte_miles_an_hour,
    reached,
)

GIGABIT = 1e9 / 8


def of(work: Work, nodes: int, **rates: Rate | None) -> Forecast:
    known = [
        Known(name, "node" if name == "nic" else "all", rate, "operations" if name == "metadata" else "bytes")
        for name, rate in rates.items()
    ]
    return forecast(work, nodes, known)


def test_sixteen_clients_of_100_gbit_are_bound_by_storage_that_takes_140_gb_a_second() -> None:
    """O4"""
    plan = of(
        Work(1_000_000, 89_600_000_000_000),
        16,
        nic=Rate(100 * GIGABIT, "given"),
        writes=Rate(140e9, "given"),
    )
    rates = {ceiling.name: (ceiling.rate, ceiling.each) for ceiling in plan.ceilings}
    assert rates == {"writes": (140e9, 8.75e9), "nic": (200e9, 12.5e9)}
    assert plan.binding is not None
    assert plan.binding.name == "writes"
    assert plan.seconds == pytest.approx(640)


def test_20_pb_over_70_gbit_take_635_to_680_hours() -> None:
    """Z3"""
    plan = of(Work(200_000_000, 20 * 10**15), 16, link=Rate(70 * GIGABIT, "given"))
    assert plan.seconds is not None
    assert plan.most is not None
    assert 634 <= plan.seconds / 3600 <= 636
    assert 678 <= plan.most / 3600 <= 680


@pytest.mark.parametrize("rate", [None, Rate(0, "configured"), Rate(-1, "configured")])
def test_a_ceiling_that_is_not_known_bounds_nothing_and_stands_last(rate: Rate | None) -> None:
    plan = of(Work(10, 1000), 1, source=rate, link=Rate(100, "configured"))
    assert [ceiling.name for ceiling in plan.ceilings] == ["link", "source"]
    assert plan.ceilings[1][2:] == (None, None, None, "")
    assert plan.seconds == 10


def test_without_any_ceiling_nothing_is_said_of_the_time() -> None:
    plan = of(Work(10, 1000), 1, source=None)
    assert (plan.seconds, plan.most, plan.binding) == (None, None, None)


def test_small_files_are_bound_by_metadata_and_a_source_without_sizes_by_nothing_else() -> None:
    rates = {"metadata": Rate(1000, "configured"), "link": Rate(1e9, "configured")}
    assert [one.name for one in of(Work(10**6, 10**9), 1, **rates).ceilings] == ["metadata", "link"]
    unsized = of(Work(10**6, None), 1, **rates)
    assert unsized.seconds == 3000
    assert unsized.ceilings[1].seconds is None
    assert unsized.ceilings[1].rate == 1e9


def test_what_is_only_assumed_may_take_twice_as_long() -> None:
    plan = of(Work(1, 1000), 1, source=Rate(10, ASSUMED))
    assert (plan.seconds, plan.most) == (100, 200)


def test_the_share_of_the_ceiling_that_binds() -> None:
    """A6: 80 TB in 1,000 s over a link of 100 GB/s and storage of 140 GB/s are 80 % of the link."""
    known = [
        Known("link", "all", Rate(100e9, "configured")),
        Known("writes", "all", Rate(140e9, "rehearsed 2 Nov")),
        Known("source", "all", None),
    ]
    nearest = reached(Work(1000, 80 * 10**12), 1000, 16, known)
    assert nearest == Reached("link", 0.8, 100e9, "bytes")


def test_a_ceiling_of_operations_binds_many_small_files() -> None:
    """A6: 1,000,000 files are 3,000,000 operations, which 5,000 a second make in 600 s."""
    known = [
        Known("link", "all", Rate(1e9, "configured")),
        Known("metadata", "all", Rate(5000, "target.ops"), "operations"),
    ]
    nearest = reached(Work(1_000_000, 10**9), 750, 4, known)
    assert nearest == Reached("metadata", 0.8, 5000, "operations")


@pytest.mark.parametrize(
    ("work", "seconds", "rate"),
    [
        (Work(1, 10), 1, None),
        (Work(0, 0), 1, Rate(5, "configured")),
        (Work(1, None), 1, Rate(5, "configured")),
        (Work(1, 10), 0, Rate(5, "configured")),
    ],
)
def test_without_ceiling_bytes_or_time_there_is_no_share(
    work: Work, seconds: float, rate: Rate | None
) -> None:
    """A6"""
    assert reached(work, seconds, 1, [Known("link", "all", rate)]) is None


def test_a_pebibyte_over_5000_miles_in_34_hours() -> None:
    """Z7: and 150 PiB-mile/hour, which the club asks for, are a PiB over 5,100 miles in 34 hours."""
    assert pebibyte_miles_an_hour(1 << 50, 5000, 34 * 3600) == pytest.approx(147.06, abs=0.01)
    assert pebibyte_miles_an_hour(1 << 50, 5100, 34 * 3600) == pytest.approx(150)
    assert pebibyte_miles_an_hour(0, 5000, 60) == 0
