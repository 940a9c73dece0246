"""What the kernel says of busy CPUs."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from penstock.engine.pool import busy_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TICKS = 0.05
"""Seconds: the kernel counts by the hundredth."""
HERE = len(os.sched_getaffinity(0))


@pytest.fixture
def one_cpu() -> Iterator[int]:
    """The number of the only CPU on which this process may run."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield min(before)
    os.sched_setaffinity(0, before)


def work(seconds: float) -> float:
    """Seconds that passed meanwhile."""
    began, until = time.monotonic(), time.process_time() + seconds
    while time.process_time() < until:
        pass
    return time.monotonic() - began


@pytest.mark.usefixtures("one_cpu")
def test_what_runs_on_its_cpus_counts() -> None:
    before = busy_seconds(1, [])
    span = work(0.5)
    assert 0.5 - TICKS <= busy_seconds(1, []) - before <= span + TICKS


def test_a_share_that_is_not_bound_counts_its_workers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(HERE + 1)))
    assert busy_seconds(HERE, []) == 0.0
    before = busy_seconds(HERE, [os.getpid()])
    work(0.3)
    assert busy_seconds(HERE, [os.getpid()]) - before >= 0.3 - TICKS
    assert busy_seconds(HERE, [2**22 + 1]) == 0.0


STAT = """cpu  100 0 100 1000 50 0 0 0 0 0
cpu{0} 100 0 0 500 50 0 0 0 7 7
cpu{1} 0 0 100 500 0 0 0 0 0 0
intr 1 2 3
"""
TICK = os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (STAT.format("{here}", "9999"), 100 / TICK),
        (STAT.format("9998", "9999"), 100 / TICK),
        ("cpu  1 1 1 1 1 1 1 1 0 0\n", 0.0),
        ("intr 1 2 3\n", 0.0),
        ("", 0.0),
        (None, 0.0),
    ],
    ids=["its own", "counted anew", "the sum alone", "no CPUs", "empty", "not there"],
)
def test_what_the_kernel_may_tell(tmp_path: Path, one_cpu: int, text: str | None, expected: float) -> None:
    if text is not None:
        (tmp_path / "stat").write_text(text.format(here=one_cpu))
    assert busy_seconds(1, [], str(tmp_path)) == pytest.approx(expected)
    assert busy_seconds(3, [], str(tmp_path)) == pytest.approx(3 * expected)
