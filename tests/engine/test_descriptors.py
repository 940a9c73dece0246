"""Few open files allowed: a copy keeps fewer folders open, and gives them up before it fails (R18)."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.engine_runs import make_tree, read_tree, shard_run

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("nofile", ["200:4096", "200:200", "90:90"])
def test_a_tree_of_many_folders_under_a_low_limit(tmp_path: Path, nofile: str) -> None:
    source = make_tree(tmp_path / "source", {f"c{n:03d}/0.jpg": 10 for n in range(200)})
    run = shard_run(tmp_path / "run", source)
    spec = run.folder / "task"
    spec.write_bytes(pickle.dumps(run.task(engine={"workers": 1, "streams": 8, "durability": "fsync"})))
    command = ["prlimit", f"--nofile={nofile}", sys.executable, "-m", "tests.support.engine_child", str(spec)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert read_tree(run.data) == read_tree(source)
