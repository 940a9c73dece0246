"""Hosts whose clock is wrong: what is young on the file system stays, and what they stamp misleads nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.support.clocks import ahead
from tests.support.commands import ROOT

from penstock.dataset import gate, pins
from penstock.jobs import audits_and_adoptions

if TYPE_CHECKING:
    from pathlib import Path

    from tests.retention.conftest import Releases

DAY = 86400
STEPS = """
import sys
import time
from penstock.cli.main import main
for step in ("list", "plan", "copy", "permissions", "verify", "publish"):
    if code := main(["--config", sys.argv[1], "step", step, "data"]):
        sys.exit(code)
"""


def told(releases: Releases, folder: Path, seconds: int, *words: str) -> subprocess.CompletedProcess[str]:
    """The built command on a host whose clock is so far ahead; "stage": all steps of a run."""
    command = [sys.executable, "-m", "penstock", "--config", str(releases.config), *words]
    if words == ("stage",):
        command = [sys.executable, "-c", STEPS, str(releases.config)]
    return subprocess.run(
        command, env=ahead(folder, seconds), cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("days", [20, -20])
def test_a_host_whose_clock_is_wrong_removes_nothing_and_says_so(
    releases: Releases, tmp_path: Path, days: int
) -> None:
    """A pin of a process that lives was too old by such a clock (K2)."""
    releases.begin_with("A")
    pins.pinned(releases.layout, lambda: gate.passed(releases.layout))
    releases.stage("B")
    releases.configure(dataset=", retention: {last: 1, named: false}", more="gc: {grace: 1ms}\n")
    for words in (("gc",), ("gc", "--dry-run"), ("remove", "data", releases.names["A"], "--now")):
        done = told(releases, tmp_path, days * DAY, *words)
        assert done.returncode == 3, done.stderr
        assert "20 days, 0:00:00 " + ("ahead of" if days > 0 else "behind") in done.stderr, done.stderr
        assert releases.there() == "AB"
        assert len(os.listdir(releases.layout.pins)) == 1


@pytest.mark.parametrize("days", [30, -30])
def test_what_a_host_whose_clock_is_wrong_published_is_as_old_as_it_is(
    releases: Releases, tmp_path: Path, days: int
) -> None:
    """A release that left `current` now was beyond its grace by the history."""
    releases.begin_with("A")
    releases.holds("B")
    done = told(releases, tmp_path, days * DAY, "stage")
    assert done.returncode == 0, done.stderr
    releases.names["B"] = os.path.basename(os.readlink(releases.layout.current))
    releases.stage("C")
    times = [line["at"] for line in releases.history() if line["event"] == "publish"]
    assert times == sorted(times)
    releases.configure(dataset=", retention: {last: 1, named: false}", more="gc: {grace: 1h}\n")
    assert releases.command("gc").returncode == 0
    assert releases.there() == "ABC"
    releases.configure(dataset=", retention: {last: 1, named: false}", more="gc: {grace: 1ms}\n")
    assert releases.command("gc").returncode == 0
    assert releases.there() == "C"


def test_audits_are_read_in_the_order_in_which_they_began(releases: Releases, tmp_path: Path) -> None:
    """One of a host whose clock was ahead stood before those that came after it, and hid what they found."""
    releases.begin_with("A")
    assert told(releases, tmp_path, 10 * DAY, "audit", "data").returncode == 0
    first = [audit.id for audit, _ in audits_and_adoptions.audits_of(releases.layout)]
    assert releases.command("audit", "data").returncode == 0
    assert [audit.id for audit, _ in audits_and_adoptions.audits_of(releases.layout)][1:] == first


@pytest.mark.parametrize(("days", "old"), [(0, False), (6, False), (8, True), (-1, True)])
def test_what_a_comparison_read_counts_for_a_week_and_not_when_it_was_read_in_the_future(
    days: float, old: bool
) -> None:
    assert audits_and_adoptions.too_old(time.time_ns() - int(days * DAY * 1e9)) is old


def test_a_reading_that_lies_in_the_future_opens_no_gate(releases: Releases) -> None:
    """As a host wrote it whose clock was ahead."""
    releases.begin_with("A")
    assert releases.command("audit", "data").returncode == 0
    verdict = releases.layout.verdict(releases.names["A"])
    year = f"{time.gmtime().tm_year}-"
    assert releases.command("gate", "data", "--audited-within", "1d").returncode == 0
    verdict.write_text(verdict.read_text().replace(f'"{year}', f'"{int(year[:-1]) + 1}-'))
    done = releases.command("gate", "data", "--audited-within", "1d")
    assert done.returncode == 4
    assert "lies ahead of the clock here" in done.stderr
