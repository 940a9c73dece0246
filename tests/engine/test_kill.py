"""kill -9 at any moment: the next attempt ends right, and what a journal held is not read again."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import xxhash
from tests.support.engine_runs import make_tree, read_tree, shard_run
from tests.support.s3server import S3Server

from penstock.engine import journal

if TYPE_CHECKING:
    from tests.support.engine_runs import ShardRun

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 60.0


def start(run: ShardRun, task: dict[str, object] | None = None, **engine: object) -> subprocess.Popen[bytes]:
    spec = run.folder / "task"
    spec.write_bytes(pickle.dumps(run.task(engine=engine, **(task or {}))))
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.engine_child", str(spec)], cwd=ROOT, start_new_session=True
    )


def alive_in(session: int) -> list[int]:
    """Processes of a session that are not yet gone."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == session and fields[0] != b"Z":
                found.append(int(folder.name))
    return found


def until(condition: object, process: subprocess.Popen[bytes]) -> None:
    """Wait until a condition holds or the process has ended."""
    assert callable(condition)
    deadline = time.monotonic() + DEADLINE
    while not condition() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def gone(session: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while alive_in(session):
        assert time.monotonic() < deadline, "processes outlive their parent"
        time.sleep(0.01)


def files_in(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))


def check_journal(run: ShardRun) -> dict[int, object]:
    """Every record speaks of bytes that are there."""
    done = journal.replay(run.journals, run.shard.digest)
    for row, copied in done.items():
        entry = run.entries[row]
        data = (run.data / entry.path).read_bytes()
        if entry.part >= 0:
            data = data[entry.offset : entry.offset + entry.length]
        assert copied.digest == "xxh3_128:" + xxhash.xxh3_128_hexdigest(data)
    return dict(done)


@pytest.mark.parametrize("moments", [2, pytest.param(6, marks=pytest.mark.thorough)])
def test_kill_the_parent_again_and_again(tmp_path: Path, moments: int) -> None:
    files = {f"d{i % 5}/f{i:04d}": (i * 131) % 20_000 for i in range(500)} | {"giant": 6_000_000}
    source = make_tree(tmp_path / "source", files)
    chance = random.Random(7)
    with S3Server(source) as server:
        run = shard_run(
            tmp_path / "run", server.url(), giant=4 << 20, endpoint_url=server.endpoint, anon=True
        )
        recorded: set[int] = set()
        for moment in range(moments):
            asked = len(server.requests())
            process = start(run, limit=8_000_000, workers=2)
            goal = files_in(run.data) + chance.randrange(1, 120)

            def reached(goal: int = goal, moment: int = moment) -> bool:
                if moment % 2:
                    # Just after a journal grew.
                    return any(p.stat().st_size > 500 for p in run.journals.glob(f"a{run.attempts}-*"))
                return files_in(run.data) >= goal

            until(reached, process)
            process.kill()
            process.wait()
            gone(process.pid)
            again = {run.entries[row].key for row in recorded if run.entries[row].part < 0}
            assert not again & {one.key for one in server.requests()[asked:] if one.method == "GET"}
            recorded = set(check_journal(run))
        asked = len(server.requests())
        outcome = run.copy()
        assert outcome.failures == []
        assert outcome.resumed_files == len(recorded)
        gets = [one.key for one in server.requests()[asked:] if one.method == "GET"]
        expected = [e.key for row, e in enumerate(run.entries) if row not in recorded]
        assert sorted(gets) == sorted(expected)
    here = {k: v for k, v in read_tree(run.data).items() if ".p." not in k}
    assert here == read_tree(source)
    assert len(check_journal(run)) == len(run.entries)


def test_kill_the_whole_group(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {f"f{i:04d}": 3000 for i in range(600)})
    run = shard_run(tmp_path / "run", source)
    process = start(run, limit=1_500_000)
    until(lambda: files_in(run.data) > 100, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    gone(process.pid)
    recorded = len(check_journal(run))
    outcome = run.copy()
    assert outcome.resumed_files == recorded
    here = {k: v for k, v in read_tree(run.data).items() if ".p." not in k}
    assert here == read_tree(source)


def test_signals_to_the_group_leave_the_workers_to_their_parent(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {f"f{i:04d}": 3000 for i in range(300)})
    run = shard_run(tmp_path / "run", source)
    process = start(run, limit=1_000_000)
    until(lambda: files_in(run.data) > 20, process)
    for pid in alive_in(process.pid):
        if pid != process.pid:
            os.kill(pid, signal.SIGINT)
            os.kill(pid, signal.SIGTERM)
    assert process.wait(DEADLINE) == 0
    assert read_tree(run.data) == read_tree(source)
