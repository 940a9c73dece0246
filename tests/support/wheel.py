"""penstock as people install it: its wheel in an environment that was empty, and no checkout."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

BUILT_FROM = (
    "LICENSE", "README.md", "Snakefile", "config.yaml", "envs", "profiles", "pyproject.toml", "scripts",
    "workflow",
)  # fmt: skip
PATIENCE = 500.0
"""Seconds: packages that are not in pip's cache are fetched."""
TIMEOUT = pytest.mark.timeout(600)
"""Of the tests that use it, the first of which waits until it is made."""


@dataclass(frozen=True)
class Installation:
    """Everything lies in `folder`, which every account may read."""

    folder: Path

    @property
    def sources(self) -> Path:
        """The files that it was built from, without what else a checkout holds."""
        return self.folder / "sources"

    @property
    def wheel(self) -> Path:
        [found] = self.folder.glob("penstock-*.whl")
        return found

    @property
    def bin(self) -> Path:
        return self.folder / "environment" / "bin"

    @property
    def package(self) -> Path:
        [found] = self.folder.glob("environment/lib/python*/site-packages/penstock")
        return found


def install(folder: Path) -> Installation:
    """Build the wheel, and install it by pip with all that it needs, in the locked versions."""
    made = Installation(folder)
    made.sources.mkdir()
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in BUILT_FROM:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, made.sources / name, symlinks=True, ignore=unwanted)
        else:
            shutil.copy(path, made.sources)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    _run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(made.sources))
    locked = (made.sources / "envs/requirements.lock").read_text()
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(re.findall(r"^[a-z0-9][^\\\n]*", locked, re.MULTILINE)))
    _run(sys.executable, "-m", "venv", "--without-pip", str(folder / "environment"))
    into = (*pip, "--python", str(made.bin / "python"))
    _run(*into, "install", "-c", str(constraints), str(made.wheel))
    return made


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def installation() -> Iterator[Installation]:
    # Not below pytest's own folder, which is closed to the accounts of jobs.
    folder = Path(tempfile.mkdtemp(prefix="penstock-wheel-", dir="/tmp"))
    try:
        folder.chmod(0o755)
        yield install(folder)
    finally:
        shutil.rmtree(folder)
