"""What a worker process may import and cost."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.support.engine_runs import make_tree, read_tree, shard_run, workers_of
from tests.support.s3server import S3Server

from penstock.core.errors import NoSpaceError, PenstockError
from penstock.core.model import Entry
from penstock.core.row_codec import to_wire
from penstock.engine.stream import Stream
from penstock.engine.worker import Received, Worker
from penstock.host import wire
from penstock.host.pacing import SharedMemory

HEAVY = ("pyarrow", "rich", "fsspec", "botocore", "aiohttp", "yaml", "jsonschema", "numpy", "awscrt")
IMPORTED = (
    "penstock.engine.worker",
    "penstock.engine.copier",
    "penstock.engine.rereader",
    "penstock.engine.work_kinds",
    "penstock.sources.posix",
    "penstock.sources.s3",
    "penstock.sources.port",
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


class Settling(Stream):
    """Does each row at once; `error` comes when their names are to be made durable."""

    def __init__(self, error: PenstockError | None) -> None:
        super().__init__(
            slot=0, counters=[0], stopping=Event(), attempts=1, limiter=None, tell=lambda *_: None
        )
        self.error = error

    def do(self, row: int, entry: Any) -> str:
        return f"{row} {entry.path}\n"

    def settle(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("full", [False, True])
def test_rows_whose_names_could_not_be_made_durable_are_not_reported(*, full: bool) -> None:
    """A journal's line of such a row would outlive a power cut that its name does not."""
    here, there = socket.socketpair()
    with here, there:
        worker, parent = Worker(wire.Channel(there), SharedMemory()), wire.Channel(here)
        error = NoSpaceError("a folder cannot be synced") if full else None
        entries = [Entry(name, name, 5, "etag", 5, length=5) for name in ("a", "b")]
        batch = Received(7, [0, 1], *to_wire(entries))
        batch.slices = 1
        worker.slice(Settling(error), batch, 0, 2)
        there.close()
        sent: dict[int, Any] = {}
        while (frames := parent.receive()) is not None:
            sent.update(frames)
    number, done, lines, failures, size, *_ = sent[wire.DONE]
    assert (number, failures) == (7, [])
    assert (done, size) == ((0, 0) if full else (2, 10))
    assert lines == ((0, []) if full else b"0 a\n1 b\n")
    assert (wire.FATAL in sent) is full
