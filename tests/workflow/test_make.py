"""`make test` runs both halves, whichever fails; `make venv` leaves nothing to be compiled by each run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
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
    assert sorted((tmp_path / "ran").read_text().split()) == ["test-slurm", "test-unit"]


def test_what_is_installed_is_compiled(tmp_path: Path) -> None:
    """M9: where the checkout may not be written to, each command compiled all that it loads."""
    scripts = tmp_path / "scripts"
    shutil.copytree(CHECKOUT / "scripts/penstock/core", scripts / "penstock/core", ignore=_no_caches)
    shutil.copy(CHECKOUT / "scripts/penstock/__init__.py", scripts / "penstock")
    for name in ("Makefile", "pyproject.toml", "envs/requirements.lock"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(CHECKOUT / name, tmp_path / name)
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\n[ "$1 $2" = "-m pip" ] || exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    subprocess.run(("make", "venv"), cwd=tmp_path, check=True, capture_output=True)
    files = [path.relative_to(scripts) for path in (scripts / "penstock/core").rglob("*.py")]
    modules = sorted(".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files)
    assert len(modules) > 10
    words = (sys.executable, "-v", "-c", f"import {', '.join(modules)}")
    kept = {**os.environ, "PYTHONPATH": str(scripts), "PYTHONDONTWRITEBYTECODE": "1"}
    said = subprocess.run(words, env=kept, check=True, capture_output=True, text=True).stderr.splitlines()
    ours = [line for line in said if str(scripts) in line and line.startswith("# ")]
    assert not [line for line in ours if line.endswith(".py'") and "code object from" in line]
    assert len([line for line in ours if ".pyc matches " in line]) == len(modules) + 1


def _no_caches(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "__pycache__"]
