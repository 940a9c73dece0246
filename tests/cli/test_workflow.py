"""`penstock.cli.snakemake_start`: what it does around Snakemake."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

DEADLINE = 60.0
SNAKEMAKE = """
import asyncio, sys, threading
def main():
    runner = asyncio.Runner()
    {before}
    threading.Timer(3600.0, print).start()
    sys.exit({status})
"""
INTERRUPTED = "runner.get_loop()._thread_id = threading.get_ident()"
"""Ctrl-C came when the loop's tasks had ended, and the loop had not: it is marked as running for good."""


def ended(tmp_path: Path, **words: object) -> subprocess.CompletedProcess[str]:
    """What became of a stand-in for Snakemake."""
    package = tmp_path / "snakemake"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "cli.py").write_text(SNAKEMAKE.format(**words))
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    code += "from penstock.cli.snakemake_start import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code], timeout=DEADLINE, check=False, capture_output=True, text=True
    )


@pytest.mark.parametrize("status", [0, 1])
def test_a_timer_that_is_left_holds_nobody_up(tmp_path: Path, status: int) -> None:
    """Snakemake's scheduler leaves some behind. A stand-in for it: one that would hold for an hour."""
    assert ended(tmp_path, status=status, before="runner.close()").returncode == status


def test_a_loop_that_ctrl_c_left_as_running_is_closed_without_a_traceback(tmp_path: Path) -> None:
    done = ended(tmp_path, status=1, before=f"{INTERRUPTED}; runner.close()")
    assert (done.returncode, done.stderr) == (1, "")
