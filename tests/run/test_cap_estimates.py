"""What the cap of a link does to estimates and time limits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.staging_runs import context_for, tree

from penstock.config.settings import BandwidthConfig, PlanConfig
from penstock.core.run_documents import FILE_COST, Load
from penstock.jobs import bandwidth, forecast
from penstock.jobs.bandwidth import Cap, cap_now, render
from penstock.jobs.forecast import Totals, copy_time, cost_rate, element_rate
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
    bandwidth.write(link, render("2GB/s", 20))
    assert cap_now(config) == Cap(2 * GB, 9)
    (link / "cap").chmod(0o666)
    assert cap_now(config) == Cap(10 * GB, 9)


def test_a_plan_takes_no_less_than_its_bytes_at_the_cap(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    layout, totals = context.layout("data"), Totals(files=1000, bytes=3600 * GB)
    capped = replace(context.config, bandwidth=BandwidthConfig(None, GB))
    takes = copy_time(capped, layout, totals, 100)
    assert takes == (
        "copy takes about 1 h 00 min to 1 h 04 min with 100 elements at once, bound by network link: "
        "954 MiB/s (bandwidth cap)"
    )
    free = replace(context.config, bandwidth=BandwidthConfig(None, 1000 * GB))
    assert copy_time(free, layout, totals, 100) == copy_time(context.config, layout, totals, 100)


def test_a_plan_counts_the_limit_of_each_element_and_links(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    config, layout = context.config, context.layout("data")
    totals = Totals(files=1000, bytes=3600 * GB)
    limited = replace(config, engine=replace(config.engine, limit=GB // 2))
    takes = copy_time(limited, layout, totals, 2)
    assert takes.startswith("copy takes about 1 h 00 min to 1 h 04 min with 2 elements at once")
    assert takes.endswith(", bound by engine.limit: 954 MiB/s (configured)")
    assert "(assumed)" in copy_time(config, layout, totals, 2)
    totals = Totals(files=1_000_000, unchanged=1_000_000, bytes=GB, unchanged_bytes=GB)
    tried = {"files": 9000.0, "links": 20_000.0}
    assert copy_time(config, layout, totals, 1, tried).startswith("copy takes about 50 s with 1 element, ")
    totals = Totals(files=90_000, bytes=GB)
    assert copy_time(config, layout, totals, 1, tried).endswith(
        "10 s to 11 s with 1 element, bound by elements (files): 9,000 files/s (the target just now)"
    )


@pytest.mark.parametrize(
    ("files", "size", "limit", "rate"),
    [
        (0, 0, 5.0, None),
        (1000, 100 * GB, None, None),
        (1000, 100 * GB, 2.0 * GB, None),  # above what is assumed: nobody knows whether it is reached
        (1000, 100 * GB, GB / 2, GB / 2 * (1 + FILE_COST / (100 * 10**6))),
        (100_000, GB, 5.0 * 10**6, 5 * 10**6 * (1 + FILE_COST / 10**4)),
        (100_000, GB, 100.0 * 10**6, None),
    ],
)
def test_the_rate_by_which_shards_are_cut_before_a_release(
    tmp_path: Path, files: int, size: int, limit: float | None, rate: float | None
) -> None:
    layout, load = context_for(tmp_path, tmp_path).layout("data"), Load(files * FILE_COST + size, size, files)
    assert cost_rate(layout, load, limit) == pytest.approx(rate)


def test_shards_are_cut_by_limit_and_cap_and_for_what_copies_alone(tmp_path: Path) -> None:
    context = context_for(tmp_path, tmp_path, plan=PlanConfig(shard_files=10**6))
    layout, load = context.layout("data"), Load(200 << 30, 200 << 30, 10**5)

    def shards(*steps: str, limit: int | None = None, cap: int | None = None) -> int:
        config = replace(context.config, engine=replace(context.config.engine, limit=limit))
        context.config = replace(config, bandwidth=BandwidthConfig(None, cap))
        return forecast.shards(context, layout, context.config, load, *steps).shards

    assert shards("copy", "verify") == shards("audit", limit=10**7) == 32
    assert shards("copy", "verify", limit=10**7) == shards("repair", cap=10**7) == 72


def test_the_plan_goes_by_the_cap_file(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1" * 1000}))
    link = tmp_path / "link"
    link.mkdir()
    bandwidth.write(link, render("10B/s", None))
    context.config = replace(context.config, bandwidth=BandwidthConfig(link))
    list_step.run(context, "data")
    why = " ".join(plan_step.run(context, "data")["why"])
    assert "copy takes about 1 min 40 s to 1 min 47 s with 1 element" in why
    assert "bound by network link: 10 B/s (bandwidth cap)" in why
