"""What the cap of a link does to estimates and time limits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.staging_runs import context_for, tree

from penstock.config.settings import BandwidthConfig
from penstock.jobs.bandwidth import cap_file
from penstock.jobs.bandwidth.cap_file import Cap, render
from penstock.jobs.bandwidth.overview import cap_now
from penstock.jobs.forecast import Totals, copy_time, element_rate
from penstock.run import list_step, plan_step

if TYPE_CHECKING:
    from pathlib import Path

GB = 10**9


@pytest.mark.parametrize(
    ("limit", "cap", "at_once", "rate"),
    [
        (None, None, 4, None),
        (5, None, 4, 5),
        (None, 100, 4, 25),
        (10, 100, 4, 10),
        (50, 100, 4, 25),
        (None, 100, 0, 100),
    ],
)
def test_s29_what_an_element_may_read(
    limit: int | None, cap: int | None, at_once: int, rate: float | None
) -> None:
    assert element_rate(limit, cap, at_once) == rate


def test_the_cap_that_holds_now(tmp_path: Path) -> None:
    link = tmp_path / "link"
    config = BandwidthConfig(link, 10 * GB, requests=9)
    assert cap_now(BandwidthConfig()) == Cap()
    assert cap_now(config) == Cap(10 * GB, 9)
    link.mkdir()
    cap_file.write(link, render("2GB/s", 20))
    assert cap_now(config) == Cap(2 * GB, 9)
    (link / "cap").chmod(0o666)
    assert cap_now(config) == Cap(10 * GB, 9)


def test_a_plan_takes_no_less_than_its_bytes_at_the_cap(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    totals = Totals(files=1000, bytes=3600 * GB)
    takes = copy_time(context.layout("data"), totals, 100, GB)
    assert takes.startswith("copy takes about 1 h")
    assert takes.endswith(", at the bandwidth cap of 954 MiB/s")
    assert copy_time(context.layout("data"), totals, 100, 1000 * GB) == copy_time(
        context.layout("data"), totals, 100
    )


def test_a_plan_counts_the_limit_of_each_element_and_links(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    layout = context.layout("data")
    takes = copy_time(layout, Totals(files=1000, bytes=3600 * GB), 2, limit=GB)
    assert takes.startswith("copy takes about 30 min 00 s with")
    totals = Totals(files=1000, bytes=3600 * GB)
    takes = copy_time(layout, totals, 2, limit=GB // 2)
    assert takes.startswith("copy takes about 1 h 00 min with")
    assert takes.endswith(", at `engine.limit`: 477 MiB/s each")
    totals = Totals(files=1_000_000, unchanged=1_000_000, bytes=GB, unchanged_bytes=GB)
    takes = copy_time(layout, totals, 1, tried={"files": 9000.0, "links": 20_000.0})
    assert takes.startswith("copy takes about 50 s with")
    assert "9,000 files/s each, 20,000 links/s" in takes


def test_the_plan_goes_by_the_cap_file(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1" * 1000}))
    link = tmp_path / "link"
    link.mkdir()
    cap_file.write(link, render("10B/s", None))
    context.config = replace(context.config, bandwidth=BandwidthConfig(link))
    list_step.run(context, "data")
    why = " ".join(plan_step.run(context, "data")["why"])
    assert "copy takes about 1 min 40 s with 1 element" in why
    assert "at the bandwidth cap of 10 B/s" in why
