"""kill -9 of `penstock adopt --seal` at many moments, each followed by the same command: a tree that rsync
made, with five wrong, three missing and two extra files, becomes a release, and nothing of it is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.published import content as bytes_of
from tests.support.s3server import S3Server
from tests.support.staging_runs import tree
from tests.support.whole_way import content
from tests.target.conftest import need

from penstock.core.layout import DatasetLayout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEADLINE = 180.0
COUNT = int(os.environ.get("PENSTOCK_TEST_ADOPT_FILES", "200"))


class Adopting:
    """An S3 server, a copy of what it serves, and runs of the command in processes of their own."""

    def __init__(self, folder: Path, server: S3Server) -> None:
        self.folder, self.server = folder, server
        self.copy, self.aside = folder / "copy", folder / "copy.not-adopted"
        subprocess.run([need("rsync"), "-a", f"{server.root}/", f"{self.copy}/"], check=True, timeout=600)
        options = json.dumps({"endpoint_url": server.endpoint, "anon": True})
        self.config = folder / "config.yaml"
        self.config.write_text(
            f"target: {{root: {folder}/target, keep_free: 0}}\n"
            f"datasets: {{data: {{source: 's3://{server.bucket}/', storage_options: {options}}}}}\n"
        )
        self.layout = DatasetLayout(folder / "target", "data")
        self.runs: list[subprocess.Popen[bytes]] = []
        self.wrong = [f"d{i % 7}/f {i:05d}" for i in range(10, 15)]
        self.missing = [f"d{i % 7}/f {i:05d}" for i in range(20, 23)]
        self.extra = ["more", "d0/more"]
        for name in self.wrong:
            self._flip(self.copy / name)
        for name in self.missing:
            (self.copy / name).unlink()
        for name in self.extra:
            (self.copy / name).write_bytes(b"more")
        self.before = self.inodes(self.copy)

    @staticmethod
    def _flip(path: Path) -> None:
        before, data = path.stat(), bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    @staticmethod
    def inodes(folder: Path) -> dict[str, int]:
        return {
            str((Path(above) / name).relative_to(folder)): (Path(above) / name).lstat().st_ino
            for above, _, files in os.walk(folder)
            for name in files
        }

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "penstock", "--config", str(self.config), "adopt", "data"]
        log = self.folder / f"run-{len(self.runs)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, str(self.copy), *words],
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.runs.append(process)
        return process

    def said(self) -> str:
        return "\n".join(p.read_text(errors="replace") for p in sorted(self.folder.glob("run-*.log")))

    def finish(self, process: subprocess.Popen[bytes]) -> int:
        try:
            return process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it did not end: {self.said()}")

    def close(self) -> None:
        for process in self.runs:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def state(self, pattern: str) -> list[Path]:
        return list(self.layout.state.glob(pattern))

    def everywhere(self) -> set[int]:
        """The inodes of all files that are anywhere."""
        return set(self.inodes(self.folder).values())

    def settled(self) -> bool:
        return any('"settled": true' in path.read_text() for path in self.state("runs/*/adopted.json"))


@pytest.fixture
def adopting(tmp_path: Path) -> Iterator[Adopting]:
    files = {f"d{i % 7}/f {i:05d}": bytes_of(i, 200 + i % 3000) for i in range(COUNT)}
    with S3Server(tree(tmp_path / "source", files), options=("--checksums",)) as server:
        made = Adopting(tmp_path, server)
        yield made
        made.close()


def staged(adopting: Adopting, pattern: str) -> list[Path]:
    return list(adopting.layout.releases.glob(f".*.staging/{pattern}"))


MOMENTS: list[tuple[str, Callable[[Adopting], object]]] = [
    ("a listing is being made", lambda a: a.state("adoptions/.new-*")),
    ("the comparison is planned", lambda a: a.state("adoptions/*/plan.json")),
    ("files were read", lambda a: a.state("adoptions/*/survey/*/*.parquet")),
    ("all is compared", lambda a: a.state("adoptions/*/result.json")),
    ("the intention is noted", lambda a: a.state("runs/*/adopted.json")),
    ("the run is planned", lambda a: a.state("runs/*/plan.json")),
    ("the tree has moved", lambda a: not a.copy.exists()),
    ("something is aside", lambda a: a.aside.exists()),
    ("the undo list is begun", lambda a: a.state("adoptions/*/undo/0*.jsonl")),
    ("a journal is there", lambda a: a.state("runs/*/journal/*/adopt-*.journal")),
    ("all files are settled", lambda a: a.settled()),
    ("a shard is copied", lambda a: a.state("runs/*/receipts/copy/*.json")),
    ("permissions are set", lambda a: a.state("runs/*/receipts/permissions.json")),
    ("records are there", lambda a: a.state("runs/*/records/*.parquet")),
    ("sealed", lambda a: staged(a, "release.json")),
    ("revealed", lambda a: list(a.layout.releases.glob("[0-9]*"))),
    ("pointed at", lambda a: a.layout.current.is_symlink()),
]


def test_killed_at_every_stage_the_same_command_ends_it_and_nothing_is_lost(adopting: Adopting) -> None:
    before, killed = set(adopting.before.values()), []
    assert adopting.finish(adopting.start()) == 4, adopting.said()
    told = adopting.said()
    assert "5 content" in told
    assert all(name in told for name in (*adopting.wrong, *adopting.missing, *adopting.extra))
    assert adopting.finish(adopting.start("--seal")) == 4
    assert adopting.inodes(adopting.copy) == adopting.before
    for moment, reached in MOMENTS:
        process = adopting.start("--seal", "--leave-extra")
        deadline = time.monotonic() + DEADLINE
        while not reached(adopting) and process.poll() is None:
            assert time.monotonic() < deadline, f"never: {moment}"
            time.sleep(0.001)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed.append(moment)
        else:
            assert process.returncode == 0, adopting.said()
        process.wait()
        assert before <= adopting.everywhere(), moment
        if adopting.layout.current.exists():
            assert content(adopting.layout.current / "data") == content(adopting.server.root), moment
    assert len(killed) >= 10, killed
    assert adopting.finish(adopting.start("--seal", "--leave-extra")) == 0, adopting.said()
    check(adopting)


def check(adopting: Adopting) -> None:
    data = adopting.layout.current / "data"
    assert content(data) == content(adopting.server.root)
    after = adopting.inodes(data.resolve())
    right = adopting.before.keys() - {*adopting.wrong, *adopting.extra}
    assert {name: after[name] for name in right} == {name: adopting.before[name] for name in right}
    left = {*adopting.wrong, *adopting.extra}
    assert adopting.inodes(adopting.aside) == {name: adopting.before[name] for name in left}
    assert not adopting.copy.exists()
    assert len(os.listdir(adopting.layout.releases)) == 1
    fetched = [one.key for one in adopting.server.requests() if one.method == "GET" and one.key]
    assert set(fetched) == {*adopting.wrong, *adopting.missing}
    audit = [sys.executable, "-m", "penstock", "--config", str(adopting.config), "audit", "data"]
    done = subprocess.run(audit, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    assert "PASSED" in done.stdout


def test_the_tree_becomes_a_release_at_once_and_eight_objects_are_fetched(adopting: Adopting) -> None:
    assert adopting.finish(adopting.start("--seal", "--leave-extra")) == 0, adopting.said()
    check(adopting)
    fetched = [one.key for one in adopting.server.requests() if one.method == "GET" and one.key]
    assert len(fetched) == 8
