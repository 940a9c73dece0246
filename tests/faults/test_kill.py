"""kill -9 of everything at many moments, each followed by the same command."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import fixed_settings, injected
from tests.support.commands import ROOT
from tests.support.s3server import S3Server
from tests.support.staging_runs import tree
from tests.support.whole_way import content

from penstock.core.layout import DatasetLayout
from penstock.dataset import run_store
from penstock.dataset.documents import read_plan
from penstock.engine import journal
from penstock.tables.run_tables import read_shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEADLINE = 120.0
FILES = {f"d{i % 5}/f {i:03d}": bytes([i]) * (500 * i) for i in range(48)} | {
    "giant": bytes(range(250)) * 10000,
    "odd\n\\ %41": b"odd",
}
PLAN = {"plan.shard_files": 12, "plan.giant_bytes": "2MiB", "plan.part_bytes": "1MiB"}


class Staging:
    """A dataset `data` from an S3 server, and runs of the command in processes of their own."""

    def __init__(self, folder: Path, server: S3Server) -> None:
        self.folder, self.server = folder, server
        self.source = server.root
        self.config = folder / "config.yaml"
        options = json.dumps({"endpoint_url": server.endpoint, "anon": True})
        self.config.write_text(
            f"target: {{root: {folder}/target, keep_free: 0}}\n"
            f"datasets: {{data: {{source: 's3://{server.bucket}/', storage_options: {options}}}}}\n"
        )
        self.layout = DatasetLayout(folder / "target", "data")
        self.runs: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        log = (self.folder / f"run-{len(self.runs)}.log").open("wb")
        with log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.all_steps", str(self.config), "data"],
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | fixed_settings.environment(PLAN),
            )
        self.runs.append(process)
        return process

    def said(self) -> str:
        return "\n".join(p.read_text(errors="replace") for p in sorted(self.folder.glob("run-*.log")))

    def finish(self, process: subprocess.Popen[bytes]) -> int:
        try:
            return process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the run did not end: {self.said()}")

    def close(self) -> None:
        for process in self.runs:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def state(self, pattern: str) -> list[Path]:
        return sorted(self.layout.runs.glob(f"[0-9a-f]*/{pattern}"))

    def journaled(self) -> set[str]:
        """Keys of the rows that some journal holds, a giant's when all its parts are."""
        folder = run_store.open_run(self.layout).folder
        if not folder.plan.exists():
            return set()
        rows = [
            (entry, row in journal.replay(folder.journals(shard.index), shard.digest))
            for shard in read_plan(folder).shards
            for row, entry in enumerate(e for batch in read_shard(folder.shard(shard.index)) for e in batch)
        ]
        return {e.key for e, _ in rows} - {e.key for e, copied in rows if not copied}

    def check(self) -> None:
        assert content(self.layout.current / "data") == content(self.source)
        assert len(os.listdir(self.layout.releases)) == 1
        assert not self.layout.lock.exists()
        assert len(self.layout.history.read_text().splitlines()) == 1


@pytest.fixture
def staging(tmp_path: Path) -> Iterator[Staging]:
    with S3Server(tree(tmp_path / "source", FILES)) as server:
        made = Staging(tmp_path, server)
        yield made
        made.close()


def some(paths: list[Path], count: int = 1) -> bool:
    return len(paths) >= count


MOMENTS: list[tuple[str, Callable[[Staging], bool]]] = [
    ("the lock is held", lambda s: s.layout.lock.exists()),
    ("a listing is there", lambda s: some(s.state("run.json"))),
    ("a shard is there", lambda s: some(s.state("shards/*.parquet"))),
    ("planned", lambda s: some(s.state("plan.json"))),
    ("staging is there", lambda s: some(list(s.layout.releases.glob(".*.staging")))),
    ("an array is noted", lambda s: some(s.state("arrays.jsonl"))),
    ("a file is in staging", lambda s: some(list(s.layout.releases.glob(".*.staging/data/d*/f*")))),
    ("a journal is there", lambda s: some(s.state("journal/*/*.journal"))),
    ("a shard is copied", lambda s: some(s.state("receipts/copy/*.json"))),
    ("a second one", lambda s: some(s.state("receipts/copy/*.json"), 2)),
    ("all shards are", lambda s: some(s.state("receipts/copy.json"))),
    ("permissions are set", lambda s: some(s.state("receipts/permissions.json"))),
    ("records are there", lambda s: some(s.state("records/*.parquet"))),
    ("a shard is verified", lambda s: some(s.state("receipts/verify/*.json"))),
    ("all are", lambda s: some(s.state("receipts/verify.json"))),
    ("a manifest is there", lambda s: some(list(s.layout.releases.glob(".*.staging/manifest.parquet")))),
    ("sealed", lambda s: some(list(s.layout.releases.glob(".*.staging/release.json")))),
    ("revealed", lambda s: some(list(s.layout.releases.glob("[0-9]*")))),
    ("the history tells", lambda s: s.layout.history.exists()),
    ("pointed at", lambda s: s.layout.current.is_symlink()),
]


def test_killed_at_every_stage_the_same_command_ends_it_and_copies_nothing_twice(staging: Staging) -> None:
    killed = 0
    for moment, reached in MOMENTS:
        recorded: set[str] = set()
        if staging.layout.current.exists():
            recorded = set(FILES)  # the run's shards and journals go
        elif staging.layout.claims.exists():
            recorded = staging.journaled()
        asked = len(staging.server.requests())
        process = staging.start()
        deadline = time.monotonic() + DEADLINE
        while not reached(staging) and process.poll() is None:
            assert time.monotonic() < deadline, f"never: {moment}"
            time.sleep(0.001)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        else:
            assert process.returncode == 0, staging.said()
        process.wait()
        if staging.layout.current.exists():
            assert content(staging.layout.current / "data") == content(staging.source), moment
        again = {r.key for r in staging.server.requests()[asked:] if r.method == "GET"}
        assert not again & recorded, f"copied again after the kill before: {moment}"
    assert killed >= 8
    assert staging.finish(staging.start()) == 0, staging.said()
    staging.check()


def test_sigterm_is_a_tidy_stop_and_the_same_command_goes_on(staging: Staging) -> None:
    process = staging.start()
    deadline = time.monotonic() + DEADLINE
    while not staging.state("receipts/copy/*.json") and process.poll() is None:
        assert time.monotonic() < deadline, "nothing was copied"
        time.sleep(0.001)
    process.terminate()
    assert staging.finish(process) == 128 + signal.SIGTERM, staging.said()
    assert not staging.layout.lock.exists(), "a tidy stop gives the lock back"
    assert "the same command goes on" in staging.said()
    recorded = staging.journaled()
    asked = len(staging.server.requests())
    assert staging.finish(staging.start()) == 0, staging.said()
    staging.check()
    assert not {r.key for r in staging.server.requests()[asked:] if r.method == "GET"} & recorded


def _elements(process: subprocess.Popen[bytes], wanted: str) -> list[int]:
    """Children of the run that are elements of a step, by /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == process.pid and b"element" in words and wanted.encode() in words:
            found.append(int(entry.name))
    return found


def _watched(process: subprocess.Popen[bytes], wanted: str) -> list[int]:
    """A pidfd of each of these elements; none of one that ended since it was seen."""
    watched = []
    for pid in _elements(process, wanted):
        with contextlib.suppress(ProcessLookupError):
            watched.append(os.pidfd_open(pid))
    return watched


def test_a_killed_element_is_run_again_alone(staging: Staging) -> None:
    process = staging.start()
    deadline = time.monotonic() + DEADLINE
    while not (staging.state("journal/*/*.journal") and (watched := _watched(process, "copy"))):
        assert time.monotonic() < deadline, "no element began"
        assert process.poll() is None, staging.said()
        time.sleep(0.001)
    for fd in watched:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        assert select.select([fd], [], [], DEADLINE)[0]
        os.close(fd)
    assert staging.finish(process) == 0, staging.said()
    staging.check()


def test_no_element_outlives_a_killed_run(staging: Staging) -> None:
    process = staging.start()
    deadline = time.monotonic() + DEADLINE
    while not (watched := _watched(process, "copy")):
        assert time.monotonic() < deadline, "no element began"
        assert process.poll() is None, staging.said()
        time.sleep(0.001)
    process.kill()
    for fd in watched:
        assert select.select([fd], [], [], DEADLINE)[0], "an element lives on"
        os.close(fd)


def test_a_second_run_at_the_same_time_is_told_who_holds_the_lock(staging: Staging) -> None:
    first = staging.start()
    deadline = time.monotonic() + DEADLINE
    while not staging.state("journal/*/*.journal"):
        assert time.monotonic() < deadline, "nothing began"
        assert first.poll() is None, staging.said()
        time.sleep(0.001)
    # Held for as long as the copy lasts: stop it there.
    os.kill(first.pid, signal.SIGSTOP)
    second = staging.start()
    try:
        assert staging.finish(second) == 7, staging.said()
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert str(first.pid) in (staging.folder / "run-1.log").read_text()
    assert staging.finish(first) == 0, staging.said()
    staging.check()


def of_the_second(staging: Staging, first: str, pattern: str) -> list[Path]:
    return [path for path in staging.state(pattern) if first not in str(path)]


TAKING: list[tuple[str, Callable[[Staging, str], bool]]] = [
    ("the first run is marked", lambda s, first: some(s.state("taken.json"))),
    ("planned", lambda s, first: some(of_the_second(s, first, "plan.json"))),
    ("a journal is there", lambda s, first: some(of_the_second(s, first, "journal/*/*.journal"))),
    ("a shard is copied", lambda s, first: some(of_the_second(s, first, "receipts/copy/*.json"))),
    ("sealed", lambda s, first: some(list(s.layout.releases.glob(".*.staging/release.json")))),
    ("revealed", lambda s, first: some(list(s.layout.releases.glob("[0-9]*")))),
]


AMID_THE_MOVE = TAKING[2:4]
"""Where files are moved, not linked, what differs is a kill amid the copy."""


@pytest.mark.parametrize(
    ("links", "moments"),
    [
        pytest.param("linked", TAKING, id="linked"),
        pytest.param("moved", AMID_THE_MOVE, id="moved"),
        pytest.param("moved", TAKING, id="moved, every moment", marks=pytest.mark.thorough),
    ],
)
def test_a_takeover_that_is_killed_goes_on_and_fetches_nothing_twice(
    staging: Staging,
    links: str,
    moments: list[tuple[str, Callable[[Staging, str], bool]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first run has copied all when its source changes; the second is killed at many moments."""
    if links == "moved":
        # A file system that refuses links between folders: BeeGFS up to 7.3.
        refuse = (
            "import os\n\n\ndef link(*_, **__):\n    raise PermissionError(1, 'no')\n\n\nos.link = link\n"
        )
        monkeypatch.setattr(sys, "executable", injected.python(tmp_path / "python", refuse))
    process = staging.start()
    reach(staging, process, lambda: some(staging.state("receipts/copy.json")))
    recorded = staging.journaled()
    assert "giant" in recorded
    (run,) = staging.state("run.json")
    first = run.parent.name
    changed = "d1/f 001"
    tree(staging.source, {changed: b"changed", "new": b"new"})
    asked = len(staging.server.requests())
    for moment, reached in moments:
        process = staging.start()
        reach(staging, process, lambda: reached(staging, first))  # noqa: B023 (called at once)
        if staging.layout.current.exists():
            assert content(staging.layout.current / "data") == content(staging.source), moment
    assert staging.finish(staging.start()) == 0, staging.said()
    again = {r.key for r in staging.server.requests()[asked:] if r.method == "GET"}
    assert again & (recorded - {changed}) == set()
    assert {changed, "new"} <= again
    staging.check()
    assert [path.parent.name for path in staging.state("run.json")] != [first]


def reach(staging: Staging, process: subprocess.Popen[bytes], reached: Callable[[], bool]) -> None:
    """Kill all of a run at a moment, unless it ended before."""
    deadline = time.monotonic() + DEADLINE
    while not reached() and process.poll() is None:
        assert time.monotonic() < deadline, staging.said()
        time.sleep(0.001)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        assert process.returncode == 0, staging.said()
    process.wait()
