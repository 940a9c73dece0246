"""`make test` runs both halves, whichever fails."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("unit", "slurm", "failed"), [(0, 0, False), (1, 0, True), (0, 1, True), (3, 1, True)]
)
def test_both_halves_are_run(tmp_path: Path, unit: int, slurm: int, failed: bool) -> None:
    halves = tmp_path / "make"
    halves.write_text(
        f'#!/bin/sh\necho "$1" >> {tmp_path}/ran\n'
        f'case "$1" in test-unit) exit {unit} ;; test-slurm) exit {slurm} ;; esac\n'
    )
    halves.chmod(0o755)
    words = ("make", "-o", "system", "-o", "venv-dev", "test", f"MAKE={halves}")
    done = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == failed, done.stderr
    assert (tmp_path / "ran").read_text().split() == ["test-unit", "test-slurm"]
