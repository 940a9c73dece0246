"""A job's time ends: the signal comes early, the stop does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.cli.main import EARLY, wait_until
from penstock.cluster.slurm.environment import STOP_AT

IMPORTS = """
import os, signal, sys, time
from penstock.cli import main
from penstock.cluster.registry import read_job_environment
"""
PROGRAM = """
main.watch_time(lambda: (print(round(time.monotonic() - begun, 1)), sys.exit()), read_job_environment())
begun = time.monotonic()
signal.raise_signal(signal.SIGUSR1)
time.sleep(20)
"""


@pytest.mark.parametrize(
    ("stop_at", "expected"), [(0, 0), (990, 0), (1000, 0), (1030, 30), (1000 + EARLY + 1, 0)]
)
def test_how_long_it_waits(stop_at: float, expected: float) -> None:
    assert wait_until(1000.0, stop_at) == expected


@pytest.mark.parametrize(("after", "least", "most"), [(2, 1.0, 3.0), (-5, 0.0, 0.9), (None, 0.0, 0.9)])
def test_the_signal_that_comes_early_waits(after: int | None, least: float, most: float) -> None:
    noted = "" if after is None else f"os.environ[{STOP_AT!r}] = str(int(time.time()) + {after})"
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS + noted + PROGRAM], env={"SLURM_JOB_ID": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert least - 0.1 <= float(done.stdout) <= most
