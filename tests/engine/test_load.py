"""What the kernel says of busy CPUs."""

from __future__ import annotations

import os
import time

import pytest

from penstock.engine.load import busy_seconds

TICKS = 0.05
"""Seconds: the kernel counts by the hundredth, for each CPU."""


def test_work_of_this_process_counts() -> None:
    here = len(os.sched_getaffinity(0))
    began, before = time.monotonic(), busy_seconds(here)
    until = time.process_time() + 0.6
    while time.process_time() < until:
        pass
    busy, span = busy_seconds(here) - before, time.monotonic() - began
    assert 0.6 - TICKS * here <= busy <= span * here + TICKS * here


def test_it_is_told_for_as_many_cpus_as_asked() -> None:
    one, many = busy_seconds(1), busy_seconds(64)
    assert many == pytest.approx(64 * one, rel=0.01)


def test_only_of_the_cpus_that_may_be_used() -> None:
    before = os.sched_getaffinity(0)
    first = min(before)
    try:
        os.sched_setaffinity(0, {first})
        began = busy_seconds(1)
        until = time.process_time() + 0.5
        while time.process_time() < until:
            pass
        assert busy_seconds(1) - began >= 0.5 - TICKS
    finally:
        os.sched_setaffinity(0, before)
