"""Files that change while a shard is copied, with `changed: follow`: what is copied, recorded, read back."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import xxhash
from tests.engine.test_kill import files_in, gone, start, until
from tests.support.engine_runs import ShardRun, content, following, make_tree, read_tree, shard_run
from tests.support.journals import row_line
from tests.support.published import writable
from tests.support.records import rows_of

from penstock.config.settings import FollowLimit
from penstock.core.errors import SourceChangedError
from penstock.core.model import Pin
from penstock.engine import journal

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.tables.manifest import SeenRow

FILES = {f"d{n % 3}/{n:02d}": 100 + n for n in range(12)}
MAY = {"may_change": (3, 2)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "source", FILES)


@pytest.fixture
def run(tmp_path: Path, source: Path) -> ShardRun:
    return following(shard_run(tmp_path / "run", source))


def replace_file(path: Path, data: bytes) -> None:
    new = path.with_name(".new")
    new.write_bytes(data)
    os.replace(new, path)


def row_of(run: ShardRun, path: str) -> int:
    return next(row for row, entry in enumerate(run.entries) if entry.path == path)


def test_what_changed_is_copied_anew_and_what_is_gone_leaves(run: ShardRun, source: Path) -> None:
    replace_file(source / "d0/00", b"another size")
    os.unlink(source / "d1/04")
    outcome = run.copy(**MAY)
    assert outcome.failures == []
    assert (outcome.files, outcome.amended, outcome.gone) == (12, 1, 1)
    expected = {name: content(n, size) for n, (name, size) in enumerate(FILES.items()) if name != "d1/04"}
    assert read_tree(run.data) == expected | {"d0/00": b"another size"}
    seen = os.stat(source / "d0/00")
    assert os.stat(run.data / "d0/00").st_mtime_ns == seen.st_mtime_ns
    copied = journal.replay(run.journals, run.shard.digest)
    token = f"{seen.st_size}-{seen.st_mtime_ns}-{seen.st_ctime_ns}-{seen.st_ino}"
    assert copied[row_of(run, "d0/00")].pin == Pin(12, token, seen.st_mtime_ns)
    assert copied[row_of(run, "d1/04")].digest == journal.GONE
    assert sum(one.pin is not None for one in copied.values()) == 1
    again = run.copy(**MAY)
    assert (again.files, again.resumed_files, again.amended, again.gone) == (0, 12, 1, 1)


def test_without_follow_nothing_is_pinned_anew(run: ShardRun, source: Path) -> None:
    run.dataset = replace(run.dataset, changed="refuse")
    replace_file(source / "d0/00", b"another size")
    outcome = run.copy()
    assert [(one.path, one.exit_code) for one in outcome.failures] == [("d0/00", 5)]
    assert outcome.files == 11


@pytest.mark.parametrize("what", ["changed", "gone"])
def test_more_than_the_limit_allows_ends_the_shard(run: ShardRun, source: Path, what: str) -> None:
    for n in range(4 if what == "changed" else 3):
        path = source / f"d{n % 3}/{n:02d}"
        replace_file(path, b"new") if what == "changed" else os.unlink(path)
    with pytest.raises(SourceChangedError, match="changed: follow") as caught:
        run.copy(**MAY)
    assert caught.value.exit_code == 5
    assert f"{4 if what == 'changed' else 3} files" in caught.value.why
    # What did not change is kept.
    assert len(journal.replay(run.journals, run.shard.digest)) >= 8


def test_what_earlier_attempts_pinned_anew_counts_too(run: ShardRun, source: Path) -> None:
    replace_file(source / "d0/00", b"new")
    replace_file(source / "d1/01", b"new")
    assert run.copy(**MAY).amended == 2
    copied = journal.replay(run.journals, run.shard.digest)
    taken_back = [copied[row_of(run, name)] for name in ("d2/02", "d0/03")]
    journal.invalidate(run.journals, run.shard.digest, taken_back, run="run", host="h")
    for name in ("d2/02", "d0/03"):
        replace_file(source / name, b"new")
    with pytest.raises(SourceChangedError, match="changed: follow"):
        run.copy(**MAY)


def test_what_an_unrecorded_attempt_left_behind_goes_with_its_object(run: ShardRun, source: Path) -> None:
    run.copy(**MAY)
    journal.clear(run.journals)
    os.unlink(source / "d1/04")
    assert run.copy(**MAY).gone == 1
    assert "d1/04" not in read_tree(run.data)


def test_versions_of_two_attempts_end_as_what_lies_there(run: ShardRun, source: Path) -> None:
    """Two attempts at once recorded different versions: neither counts, the next copy does."""
    run.copy(**MAY)
    row = row_of(run, "d0/00")
    late = journal.Journal(run.journals, shard_digest=run.shard.digest, run="run", attempt="late", host="h")
    late.append((journal.amend_line(row, Pin(3, "t", 1)) + row_line(row, "0" * 32, "size", "")).encode())
    late.close()
    with writable(run.data / "d0/00"):
        (run.data / "d0/00").write_bytes(b"of the late one")
    replace_file(source / "d0/00", b"the newest")
    outcome = run.copy(**MAY)
    assert (outcome.files, outcome.amended) == (1, 1)
    assert (run.data / "d0/00").read_bytes() == b"the newest"
    pin = journal.replay(run.journals, run.shard.digest)[row].pin
    assert pin is not None
    assert pin.size == 10


def test_a_giants_part_waits_for_a_further_round(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {"giant": 5 << 20, "small": 10})
    run = following(shard_run(tmp_path / "run", source, giant=1 << 20, part_bytes=2 << 20))
    replace_file(source / "giant", content(9, 3 << 20))
    outcome = run.copy(**MAY)
    assert sorted(outcome.split) == [0, 1, 2]
    assert {one.exit_code for one in outcome.failures} == {5}
    journal.join(run.journals, run.shard.digest, [0], [1, 2], run="run", host="h")
    outcome = run.copy(**MAY)
    assert (outcome.failures, outcome.amended) == ([], 1)
    assert read_tree(run.data) == {"giant": content(9, 3 << 20), "small": content(1, 10)}
    again = run.copy(**MAY)
    assert (again.resumed_files, again.files, again.amended) == (4, 0, 1)


def test_a_giant_that_is_copied_whole_may_be_as_it_was_planned(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {"giant": 5 << 20})
    run = following(shard_run(tmp_path / "run", source, giant=1 << 20, part_bytes=2 << 20))
    run.copy(**MAY)
    journal.join(run.journals, run.shard.digest, [0], [1, 2], run="run", host="h")
    assert run.copy(**MAY).files == 1
    copied = journal.replay(run.journals, run.shard.digest)
    assert copied[0].pin == Pin.planned(run.entries[0])
    assert sorted(copied) == [0]
    assert (run.data / "giant").read_bytes() == content(0, 5 << 20)


def test_a_row_that_may_not_be_read_any_more_is_not_gone(run: ShardRun, source: Path) -> None:
    """A folder took the file's place."""
    os.unlink(source / "d0/00")
    (source / "d0/00").mkdir()
    outcome = run.copy(**MAY)
    assert [(one.path, one.retry) for one in outcome.failures] == [("d0/00", False)]
    assert (outcome.gone, outcome.files) == (0, 11)


# Read back ---------------------------------------------------------------------------------------


def records(run: ShardRun) -> dict[str, SeenRow]:
    return {one.record.path: one for one in rows_of(run.folder / "records.parquet")}


def test_records_are_of_the_version_that_lies_there(run: ShardRun, source: Path) -> None:
    replace_file(source / "d0/00", b"another size")
    os.unlink(source / "d1/04")
    run.copy(**MAY)
    outcome = run.reread(follow=True)
    assert (outcome.failures, outcome.amended, outcome.gone, outcome.left_out) == ([], 1, 1, 1)
    assert sum(outcome.methods.values()) == sum(outcome.grades.values()) == 11
    found = records(run)
    assert found.keys() == FILES.keys() - {"d1/04"}
    for entry in run.entries:
        if entry.path not in ("d0/00", "d1/04"):
            record = found[entry.path].record
            assert (record.size, record.token) == (entry.size, entry.token)
    new = found["d0/00"].record
    assert (new.size, new.modified_ns) == (12, os.stat(source / "d0/00").st_mtime_ns)
    assert new.token != run.entries[0].token
    assert new.digest == f"xxh3_128:{xxhash.xxh3_128_hexdigest(b'another size')}"


def test_a_giant_that_was_copied_whole_has_one_record(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {"a": 10, "giant": 5 << 20, "z": 10})
    run = following(shard_run(tmp_path / "run", source, giant=1 << 20, part_bytes=2 << 20))
    replace_file(source / "giant", content(9, 3 << 20))
    run.copy(**MAY)
    journal.join(run.journals, run.shard.digest, [1], [2, 3], run="run", host="h")
    run.copy(**MAY)
    outcome = run.reread(follow=True)
    assert (outcome.failures, outcome.amended, outcome.left_out) == ([], 1, 2)
    found = records(run)
    places = {path: (one.part, one.record.size) for path, one in found.items()}
    assert places == {"a": (-1, 10), "giant": (-1, 3 << 20), "z": (-1, 10)}


def test_what_lies_in_the_place_of_what_is_gone_is_no_record(run: ShardRun, source: Path) -> None:
    os.unlink(source / "d1/04")
    run.copy(**MAY)
    (run.data / "d1/04").write_bytes(b"by a late attempt")
    outcome = run.reread(follow=True)
    assert [(one.path, one.retry) for one in outcome.failures] == [("d1/04", True)]
    assert not (run.folder / "records.parquet").exists()
    assert run.copy(**MAY).gone == 1
    assert run.reread(follow=True).failures == []
    assert "d1/04" not in records(run)


def test_what_was_pinned_anew_is_always_read_back(run: ShardRun, source: Path) -> None:
    replace_file(source / "d0/00", b"another size")
    run.copy(**MAY)
    with writable(run.data / "d0/00"):
        (run.data / "d0/00").write_bytes(b"Another size")
    outcome = run.reread(follow=True)
    assert [one.path for one in outcome.failures] == ["d0/00"]


# Killed ------------------------------------------------------------------------------------------


def test_kill_9_while_the_source_moves(tmp_path: Path) -> None:
    """Each attempt meets a source that changed again. In the end every file is of one version that the source
    once held, the journal says of which, and what is gone is gone."""
    files = {f"d{n % 5}/{n:03d}": 2000 + n for n in range(200)}
    source = make_tree(tmp_path / "source", files)
    run = following(shard_run(tmp_path / "run", source))
    run.dataset = replace(run.dataset, follow_limit=FollowLimit(1.0, 1.0))
    held = {name: [content(n, size)] for n, (name, size) in enumerate(files.items())}
    may = (len(files), len(files))
    for moment, least in enumerate((20, 60, 110)):
        for n in range(moment, len(files), 9):
            name = f"d{n % 5}/{n:03d}"
            if (source / name).exists():
                held[name].append(b"%d" % moment * (1000 + n))
                replace_file(source / name, held[name][-1])
        removed = f"d4/{199 - 5 * moment:03d}"
        os.unlink(source / removed)
        held[removed].append(b"")
        process = start(run, {"may_change": may}, limit=300_000, workers=1, streams=2)
        until(lambda least=least: files_in(run.data) >= least, process)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        gone(process.pid)
        copied = journal.replay(run.journals, run.shard.digest)
        for row, one in copied.items():
            path = run.data / run.entries[row].path
            if one.digest == journal.GONE:
                assert not path.exists()
            else:
                assert one.digest == f"xxh3_128:{xxhash.xxh3_128_hexdigest(path.read_bytes())}"
    outcome = run.copy(may_change=may)
    assert outcome.failures == []
    assert outcome.amended > 0
    assert 1 <= outcome.gone <= 3, "what was copied before it left stays"
    assert run.reread(follow=True).failures == []
    # What a killed attempt was writing lies under a temporary name until the staging is closed.
    lie = {path: data for path, data in read_tree(run.data).items() if ".p." not in path}
    copied = journal.replay(run.journals, run.shard.digest)
    left = {run.entries[row].path for row, one in copied.items() if one.digest == journal.GONE}
    assert lie.keys() == files.keys() - left
    assert all(held[name][-1] == b"" for name in left)
    assert all(data in held[name] for name, data in lie.items())
    for name, one in records(run).items():
        assert one.record.size == len(lie[name])
