"""Rates after an interruption: what a command moved itself, over its own time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.support.published import content
from tests.support.staging_runs import tree

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 2 << 20
DEADLINE = 60.0


def test_a_copy_that_goes_on_is_no_faster_than_its_limit(tmp_path: Path) -> None:
    """8 MiB at 2 MiB/s, killed once a third is there, then gone on with."""
    source = tree(tmp_path / "source", {f"f{i:02d}": content(i, 256 << 10) for i in range(32)})
    config = tmp_path / "config.yaml"
    config.write_text(
        json.dumps(
            {
                "target": {"root": str(tmp_path / "target"), "keep_free": "0B"},
                "datasets": {"data": {"source": str(source)}},
                "engine": {"limit": "2MiB/s", "streams": 1},
            }
        )
    )

    def command(*words: str) -> list[str]:
        rooted = ["--as-root"] if os.geteuid() == 0 else []
        return [sys.executable, "-m", "penstock", "--config", str(config), *rooted, *words, "data"]

    def done(*words: str) -> str:
        ended = subprocess.run(command(*words), capture_output=True, text=True, timeout=120, check=True)
        return ended.stdout + ended.stderr

    for step in ("list", "plan"):
        done("step", step)
    with subprocess.Popen(
        command("step", "copy"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0
    ) as process:
        deadline = time.monotonic() + DEADLINE
        while len(list(tmp_path.glob("target/data/releases/.*.staging/data/f*"))) < 12:
            assert process.poll() is None, "it ended too soon"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
    line = done("step", "copy")
    rate = re.search(r"of them ([0-9.]+) MiB now in .* \(([0-9.]+) (MiB|KiB)/s\)", line)
    assert rate is not None, line
    assert 0 < float(rate[1]) < 6
    bytes_a_second = float(rate[2]) * (1 << 20 if rate[3] == "MiB" else 1 << 10)
    assert bytes_a_second < 1.1 * LIMIT
    for step in ("permissions", "verify", "publish"):
        done("step", step)
    receipt = json.loads(next(tmp_path.glob("target/data/.penstock/runs/*/receipts/copy.json")).read_text())
    assert receipt["moved_bytes"] / receipt["moved_seconds"] < 1.1 * LIMIT
    assert receipt["bytes"] == 8 << 20
    told = done("report")
    speed = re.search(r"Speed +([0-9.]+) (MiB|KiB)/s", told)
    assert speed is not None, told
    assert float(speed[1]) * (1 << 20 if speed[2] == "MiB" else 1 << 10) < 1.1 * LIMIT
    assert f"32 files, 8.00 MiB, of them {rate[1]} MiB by the last command in" in told
