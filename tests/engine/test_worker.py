"""What a worker process may import and cost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.engine_runs import make_tree, read_tree, shard_run, workers_of
from tests.support.s3server import S3Server

HEAVY = ("pyarrow", "rich", "fsspec", "botocore", "aiohttp", "yaml", "jsonschema", "numpy", "awscrt")
IMPORTED = (
    "penstock.engine.worker",
    "penstock.engine.copier",
    "penstock.engine.rereader",
    "penstock.engine.work_kinds",
    "penstock.sources.posix.source",
    "penstock.sources.s3.source",
    "penstock.sources.registry",
    "penstock.target.staging_writer",
    "penstock.fs.cold_read",
    "penstock.config.settings",
)
MOST_KIB = 64 << 10


def test_workers_import_little() -> None:
    code = f"import sys, {','.join(IMPORTED)}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


@pytest.mark.cold_start
def test_workers_stay_small_with_many_streams(tmp_path: Path) -> None:
    files = {f"f{i:04d}": 60_000 for i in range(300)} | {"big": 30_000_000}
    source = make_tree(tmp_path / "source", files)
    peaks: dict[int, int] = {}

    def report(*_: int) -> None:
        for pid in workers_of(os.getpid()):
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            for line in status.splitlines():
                if line.startswith("VmHWM:"):
                    peaks[pid] = int(line.split()[1])

    with S3Server(source, options=["--checksums"]) as server:
        run = shard_run(tmp_path / "run", server.url(), endpoint_url=server.endpoint, anon=True)
        run.copy(report, engine={"workers": 2, "streams": 32, "limit": 60_000_000})
    assert read_tree(run.data) == read_tree(source)
    assert len(peaks) == 2
    assert max(peaks.values()) < MOST_KIB
