"""How large files are written, and what the reported rate holds (O3): seen by strace, from outside."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.engine_runs import make_tree

SIZES = {"large": (9 << 20) + 5, "larger": 33 << 20}
SCRIPT = """
import json, sys
from pathlib import Path
from tests.support.engine_runs import shard_run
outcome = shard_run(Path(sys.argv[1]), sys.argv[2]).copy(engine={"durability": "fsync", "workers": 1})
assert not outcome.failures
print(json.dumps({"seconds": outcome.seconds, "bytes": outcome.bytes}))
"""


def copied(tmp_path: Path, *options: str) -> tuple[dict[str, float], list[str]]:
    """A copy under strace, and the lines of its trace about files in staging."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    source = make_tree(tmp_path / "source", SIZES)
    done = subprocess.run(
        [strace, "-ff", "-qq", "-y", "-o", str(tmp_path / "trace"), *options,
         sys.executable, "-c", SCRIPT, str(tmp_path / "run"), str(source)],
        check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    # A file for each thread: no call is torn by another's.
    lines = [line for path in tmp_path.glob("trace.*") for line in path.read_text().splitlines()]
    return json.loads(done.stdout.splitlines()[-1]), [one for one in lines if f"{tmp_path}/run/data/" in one]


def test_o3_large_files_are_written_by_1_mib_and_more(tmp_path: Path) -> None:
    """O3."""
    calls = "trace=write,pwrite64,pwritev,pwritev2,copy_file_range,sendfile"
    _, lines = copied(tmp_path, "-e", calls)
    sizes = [int(found[1]) for one in lines if (found := re.search(r"\) += (\d+)$", one))]
    assert sum(sizes) == sum(SIZES.values())
    # The last write of each file has what is left of it.
    assert len([size for size in sizes if size < 1 << 20]) <= len(SIZES)
    assert len(sizes) <= sum(size // (1 << 20) + 1 for size in SIZES.values())


def test_o3_the_reported_seconds_include_fsync(tmp_path: Path) -> None:
    """O3: an fsync that takes 1 s longer makes the copy 1 s longer."""
    told, lines = copied(tmp_path, "-e", "trace=fsync", "-e", "inject=fsync:delay_exit=1000000:when=1+")
    files = {name for one in lines if (name := re.search(r"fsync\(\d+<([^>]*)>", one))}
    assert len(files) >= len(SIZES), "each file is synced"
    assert told["bytes"] == sum(SIZES.values())
    assert told["seconds"] >= 1
