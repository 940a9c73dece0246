"""Whole shards through real worker processes, from folders and the S3 server, and every end of them."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import tracemalloc
from typing import TYPE_CHECKING

import pytest
import xxhash
from tests.support.engine_runs import make_tree, read_tree, rewrite, shard_run, workers_of
from tests.support.s3server import S3Server

from penstock.core.errors import FailedError, InterruptedRunError, NoSpaceError
from penstock.core.model import Copied, Reuse
from penstock.engine import journal
from penstock.engine.journal import CopiedRows
from penstock.engine.rows_left import need_no_copy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ODD = b"a \xff'\n$(x)".decode("utf-8", "surrogateescape")


def sizes(count: int) -> dict[str, int]:
    files = {f"d{i % 7}/f{i:05d}": (i * 37) % 9000 for i in range(count)}
    return files | {"empty": 0, "block": 1 << 20, "block+": (1 << 20) + 1, "big": 5_000_001, ODD: 10}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "source", sizes(400))


@pytest.mark.cold_start
def test_a_folder_is_copied_whole(tmp_path: Path, source: Path) -> None:
    run = shard_run(tmp_path / "run", source)
    reports: list[tuple[int, int, int]] = []
    outcome = run.copy(lambda *totals: reports.append(totals))
    assert read_tree(run.data) == read_tree(source)
    assert outcome.failures == []
    assert outcome.files == len(run.entries)
    assert outcome.bytes == run.shard.bytes
    assert outcome.durability in ("syncfs", "fsync")
    assert "CPUs" in outcome.why
    assert reports[-1] == (outcome.files, outcome.bytes, 0)
    assert reports == sorted(reports)
    for entry in run.entries:
        seen = os.stat(run.data / entry.path)
        assert seen.st_mtime_ns == entry.modified_ns
        assert stat.S_IMODE(seen.st_mode) == 0o440
    copied = journal.replay(run.journals, run.shard.digest)
    digest = xxhash.xxh3_128_hexdigest((source / "big").read_bytes())
    row = [entry.path for entry in run.entries].index("big")
    assert copied[row].digest == "xxh3_128:" + digest
    assert copied[row].written_host == "writer"
    assert workers_of(os.getpid()) == []


def test_what_is_done_is_not_done_again(tmp_path: Path, source: Path) -> None:
    run = shard_run(tmp_path / "run", source)
    run.copy()
    before = {e.path: os.stat(run.data / e.path).st_ino for e in run.entries}
    again = run.copy()
    assert again.files == 0
    assert again.resumed_files == len(run.entries)
    assert again.resumed_bytes == run.shard.bytes
    assert {e.path: os.stat(run.data / e.path).st_ino for e in run.entries} == before


def test_a_hole_in_a_journal_costs_what_stood_behind_it(tmp_path: Path) -> None:
    """As after a power cut of a client whose pages were on their way: copied again, and said."""
    source = make_tree(tmp_path / "source", {f"d{i % 7}/{i}": 100 for i in range(300)})
    run = shard_run(tmp_path / "run", source)
    run.copy()
    [path] = run.journals.iterdir()
    with path.open("r+b") as stream:
        stream.seek(8192)
        stream.write(bytes(4096))
    kept = len(journal.replay(run.journals, run.shard.digest))
    assert 0 < kept < 300
    again = run.copy()
    assert (again.resumed_files, again.files) == (kept, 300 - kept)
    assert len(again.warnings) == 1
    assert str(path) in again.warnings[0]
    assert len(journal.replay(run.journals, run.shard.digest)) == 300
    assert read_tree(run.data) == read_tree(source)


@pytest.mark.parametrize("durability", ["fsync", "syncfs"])
def test_both_ways_of_durability(tmp_path: Path, durability: str) -> None:
    source = make_tree(tmp_path / "source", {f"d/{i}": 500 for i in range(50)})
    run = shard_run(tmp_path / "run", source)
    outcome = run.copy(engine={"durability": durability, "workers": 2, "streams": 6})
    assert outcome.durability == durability
    assert outcome.streams == 6
    assert read_tree(run.data) == read_tree(source)
    assert len(journal.replay(run.journals, run.shard.digest)) == 50


def test_giants_go_in_parts(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {"a": 10, "giant": 5_000_001, "z": 20})
    run = shard_run(tmp_path / "run", source, giant=4 << 20)
    assert run.shard.rows == 7
    outcome = run.copy(engine={"streams": 4, "workers": 2})
    assert outcome.files == 7
    assert read_tree(run.data) == read_tree(source)
    copied = journal.replay(run.journals, run.shard.digest)
    data = (source / "giant").read_bytes()
    assert [copied[row].digest for row in range(1, 6)] == [
        "xxh3_128:" + xxhash.xxh3_128_hexdigest(data[at : at + (1 << 20)])
        for at in range(0, len(data), 1 << 20)
    ]


def test_from_the_store_with_its_checksums(tmp_path: Path, source: Path) -> None:
    os.unlink(source / ODD)
    with S3Server(source, options=["--checksums"]) as server:
        run = shard_run(
            tmp_path / "run", server.url(), giant=4 << 20, endpoint_url=server.endpoint, anon=True
        )
        outcome = run.copy()
    assert outcome.failures == []
    assert read_tree(run.data) == read_tree(source)
    copied = journal.replay(run.journals, run.shard.digest)
    whole = {one.source_grade for row, one in copied.items() if run.entries[row].part < 0}
    assert whole == {"full"}


def test_a_row_that_cannot_be_copied_fails_alone(tmp_path: Path, source: Path) -> None:
    run = shard_run(tmp_path / "run", source)
    with (source / "d1/f00001").open("ab") as stream:
        stream.write(b"more")
    os.unlink(source / "big")
    outcome = run.copy()
    assert sorted(f.path for f in outcome.failures) == ["big", "d1/f00001"]
    assert {f.exit_code for f in outcome.failures} == {5}
    assert outcome.exit_code == 5
    assert outcome.files == len(run.entries) - 2
    here = read_tree(run.data)
    assert set(here) == {e.path for e in run.entries} - {"big", "d1/f00001"}


def test_unchanged_files_are_linked_or_else_copied(tmp_path: Path, source: Path) -> None:
    base = shard_run(tmp_path / "base", source)
    base.copy()
    run = shard_run(tmp_path / "run", source)
    known = journal.replay(base.journals, base.shard.digest)
    reuses = [Reuse(known[row].digest, "full", "crc32c:full:0a") for row in range(len(run.entries))]
    rewrite(run, [entry._replace(reuse=text) for entry, text in zip(run.entries, reuses, strict=True)])
    os.unlink(base.data / "big")
    outcome = run.copy(base=base.data)
    assert outcome.failures == []
    assert outcome.linked == len(run.entries) - 1
    assert read_tree(run.data) == read_tree(source)
    assert os.stat(run.data / "block").st_ino == os.stat(base.data / "block").st_ino
    copied = journal.replay(run.journals, run.shard.digest)
    row = [e.path for e in run.entries].index("block")
    assert copied[row][1:4] == (known[row].digest, "full", "crc32c:full:0a")


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tiny"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_target_stops_the_shard_and_is_resumed(tmp_path: Path, tiny: Path) -> None:
    source = make_tree(tmp_path / "source", {f"{i:03d}": 40_000 for i in range(60)})
    run = shard_run(tmp_path / "run", source)
    data = tiny / "data"
    data.mkdir()
    with pytest.raises(NoSpaceError) as told:
        run.copy(data=data)
    assert told.value.exit_code == 6
    done = set(journal.replay(run.journals, run.shard.digest))
    assert 0 < len(done) < 60
    subprocess.run(["mount", "-o", "remount,size=8m", str(tiny)], check=True)
    outcome = run.copy(data=data)
    assert outcome.resumed_files == len(done)
    assert read_tree(data) == read_tree(source)


def test_a_full_target_for_parts_too(tmp_path: Path, tiny: Path) -> None:
    source = make_tree(tmp_path / "source", {"giant": 4 << 20})
    run = shard_run(tmp_path / "run", source, giant=1 << 20)
    data = tiny / "data"
    data.mkdir()
    with pytest.raises(NoSpaceError):
        run.copy(data=data)


@pytest.mark.cold_start
def test_a_tidy_stop_keeps_what_was_done(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {f"f{i:03d}": 4000 for i in range(400)})
    run = shard_run(tmp_path / "run", source)
    seen = [0]

    def stop() -> None:
        if seen[0] > 100:
            raise InterruptedRunError(signal.SIGTERM)

    def report(files: int, size: int, failed: int) -> None:
        seen[0] = files

    with pytest.raises(InterruptedRunError):
        run.copy(report, stop, engine={"limit": 800_000})
    assert workers_of(os.getpid()) == []
    done = journal.replay(run.journals, run.shard.digest)
    assert 100 < len(done) < len(run.entries)
    for row, copied in done.items():
        data = (run.data / run.entries[row].path).read_bytes()
        assert copied.digest == "xxh3_128:" + xxhash.xxh3_128_hexdigest(data)
    outcome = run.copy()
    assert outcome.resumed_files == len(done)
    assert read_tree(run.data) == read_tree(source)


@pytest.mark.cold_start
def test_a_worker_that_is_killed_gets_a_successor(tmp_path: Path, source: Path) -> None:
    run = shard_run(tmp_path / "run", source)
    killed: list[int] = []

    def report(files: int, size: int, failed: int) -> None:
        if size and not killed:
            killed.append(workers_of(os.getpid())[0])
            os.kill(killed[0], signal.SIGKILL)

    outcome = run.copy(report, engine={"limit": 6_000_000, "workers": 2})
    assert killed
    assert outcome.failures == []
    assert outcome.files == len(run.entries)
    here = {k: v for k, v in read_tree(run.data).items() if ".p." not in k}
    assert here == read_tree(source)


@pytest.mark.cold_start
def test_workers_that_keep_dying_fail_the_run_clearly(tmp_path: Path, source: Path) -> None:
    run = shard_run(tmp_path / "run", source)

    def report(files: int, size: int, failed: int) -> None:
        for pid in workers_of(os.getpid()):
            os.kill(pid, signal.SIGKILL)

    def stop() -> None:
        report(0, 0, 0)

    with pytest.raises(FailedError, match="worker processes die: ended by SIGKILL"):
        run.copy(report, stop, engine={"limit": 1_000_000})
    assert workers_of(os.getpid()) == []
    run.copy()
    here = {k: v for k, v in read_tree(run.data).items() if ".p." not in k}
    assert here == read_tree(source)


def test_a_foreign_journal_stops_it_before_a_byte_moves(tmp_path: Path, source: Path) -> None:
    run = shard_run(tmp_path / "run", source)
    journal.Journal(run.journals, shard_digest="sha256:00", run="r", attempt="x", host="h").close()
    with pytest.raises(FailedError, match="another shard"):
        run.copy()
    assert read_tree(run.data) == {}


def test_staging_that_is_gone_is_one_clear_error(tmp_path: Path, source: Path) -> None:
    run = shard_run(tmp_path / "run", source)
    with pytest.raises(FailedError):
        run.copy(data=tmp_path / "nowhere")


@pytest.mark.parametrize("voids", [frozenset[int](), frozenset({7, 60_000})])
def test_which_rows_need_no_copy_costs_no_memory_of_its_own(voids: frozenset[int]) -> None:
    """A set of all rows that are done would be 70 MB for each million."""
    done = CopiedRows()
    for row in range(1, 50_000):
        done.add(Copied(row, "xxh3_128:" + "0" * 32, "size", "", "h", "a"))
    tracemalloc.start()
    try:
        rows = need_no_copy(done, voids)
        assert [row in rows for row in (0, 1, 7, 49_999, 50_000, 60_000)] == [
            *(False, True, True, True, False),
            bool(voids),
        ]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000
