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
import sys, threading
def main():
    threading.Timer(3600.0, print).start()
    sys.exit({status})
"""


@pytest.mark.parametrize("status", [0, 1])
def test_a_timer_that_is_left_holds_nobody_up(tmp_path: Path, status: int) -> None:
    """Snakemake's scheduler leaves some behind. A stand-in for it: one that would hold for an hour."""
    package = tmp_path / "snakemake"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "cli.py").write_text(SNAKEMAKE.format(status=status))
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    code += "from penstock.cli.snakemake_start import main; main()"
    ended = subprocess.run([sys.executable, "-c", code], timeout=DEADLINE, check=False)
    assert ended.returncode == status
