"""A quota that is used up when a file is created, and not when it is written: so BeeGFS reports it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import commands, warm
from tests.support.staging_runs import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARY = Path(__file__).parents[1] / "support/quota_at_open.c"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    made = tmp_path_factory.mktemp("library") / "quota.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", made, LIBRARY], check=True)
    with warm.entered_with({"LD_PRELOAD": str(made)}):
        yield str(made)


@pytest.mark.parametrize("of", [".p.", "/journal/", "/records/", "/target/data/.penstock/"])
def test_it_is_named_as_a_quota_and_resumed(tmp_path: Path, library: str, of: str) -> None:
    """Files of the staging; journals, records and the other documents of a run."""
    source = tree(tmp_path / "source", {"a": b"1", "b/c": b"22"})
    (tmp_path / "penstock.yaml").write_text(
        f"target: {{root: {tmp_path}/target, keep_free: 0}}\ndatasets: {{data: {{source: {source}}}}}\n"
    )
    command = (sys.executable, "-m", "penstock", "run")
    done = commands.run(*command, cwd=tmp_path, env={"LD_PRELOAD": library, "QUOTA_OF": of})
    assert done.returncode == 6, done.stdout + done.stderr
    assert "quota" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    done = commands.run(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
