from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest
from tests.support.engine_runs import ShardRun, make_tree, rewrite, shard_run
from tests.support.published import writable
from tests.support.records import rows_of

from penstock.config.settings import VerifyConfig
from penstock.core.errors import InterruptedRunError
from penstock.core.model import Reuse
from penstock.engine import journal
from penstock.engine.checksums import tree_digest
from penstock.engine.reread_shard import storage_grade

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.tables.manifest import SeenRow


@pytest.fixture
def run(tmp_path: Path) -> ShardRun:
    files = {f"d{i % 3}/{i:03d}": i * 100 for i in range(60)} | {"giant": 3_000_001}
    run = shard_run(tmp_path / "run", make_tree(tmp_path / "source", files), giant=2 << 20)
    assert run.copy().failures == []
    return run


def records(run: ShardRun) -> list[SeenRow]:
    return rows_of(run.folder / "records.parquet")


def damage(path: Path, at: int = 10) -> None:
    """Change one byte and nothing that a listing shows."""
    seen = os.stat(path)
    path.chmod(0o640)
    with path.open("r+b") as stream:
        stream.seek(at)
        byte = stream.read(1)
        stream.seek(at)
        stream.write(bytes([byte[0] ^ 1]))
    path.chmod(0o440)
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def test_the_table_of_grades() -> None:
    assert storage_grade("unread", "a", "b") == "written"
    assert storage_grade("cached", "a", "b") == storage_grade("cached", "a", "a") == "reread"
    assert storage_grade("dropped", "a", "a") == storage_grade("direct", "a", "a") == "cold"
    assert storage_grade("dropped", "", "b") == storage_grade("direct", "", "b") == "cold"
    assert storage_grade("disk", "", "b") == storage_grade("disk", "b", "b") == "cold"
    assert storage_grade("disk", "a", "b") == "cold-other-node"
    assert storage_grade("dropped", "a", "b") == storage_grade("direct", "a", "b") == "cold-other-node"


def test_records_say_what_was_seen(run: ShardRun) -> None:
    outcome = run.reread(VerifyConfig(digests=("xxh3_128", "sha256")))
    assert outcome.failures == []
    assert outcome.files == run.shard.rows
    assert sum(outcome.grades.values()) == sum(outcome.methods.values()) == run.shard.rows
    rows = records(run)
    copied = journal.replay(run.journals, run.shard.digest)
    assert [(r.row, r.part, r.offset, r.length) for r in rows] == [
        (n, e.part, e.offset, e.length) for n, e in enumerate(run.entries)
    ]
    for row, entry in zip(rows, run.entries, strict=True):
        record, seen = row.record, os.stat(run.data / entry.path)
        assert (record.path, record.key, record.size, record.token) == (
            entry.path,
            entry.key,
            entry.size,
            entry.token,
        )
        assert record.digest == copied[row.row].digest
        assert (record.mtime_ns, record.ctime_ns) == (seen.st_mtime_ns, seen.st_ctime_ns)
        assert (record.written_host, record.verified_host) == ("writer", "reader")
        assert record.storage_grade == storage_grade(record.method, "writer", "reader")
        if entry.part < 0:
            whole = hashlib.sha256((run.data / entry.path).read_bytes()).hexdigest()
            assert record.digests == f"sha256:{whole}"


@pytest.mark.parametrize("harm", ["damage", "cut", "longer", "remove", "link", "part"])
def test_what_is_not_as_written_is_a_failure_and_is_made_anew(
    run: ShardRun, harm: str, tmp_path: Path
) -> None:
    name = "giant" if harm == "part" else "d1/031"
    path = run.data / name
    good = path.read_bytes()
    if harm in ("damage", "part"):
        damage(path, 2_500_000 if harm == "part" else 10)
    elif harm == "cut":
        with writable(path):
            os.truncate(path, len(good) - 1)
    elif harm == "longer":
        with writable(path), path.open("ab") as stream:
            stream.write(b"x")
    else:
        path.unlink()
        if harm == "link":
            (tmp_path / "elsewhere").write_bytes(good)
            path.symlink_to(tmp_path / "elsewhere")
    outcome = run.reread()
    assert [failure.path for failure in outcome.failures] == [name]
    assert outcome.exit_code == 1
    assert not (run.folder / "records.parquet").exists()
    # The permissions step gives a giant's file its write bit back before a copy comes again.
    if harm == "part":
        path.chmod(0o640)
    again = run.copy()
    assert (again.files, again.failures) == (1, [])
    assert path.read_bytes() == good
    assert not path.is_symlink()
    assert run.reread().failures == []
    assert len(records(run)) == run.shard.rows


def test_rows_that_were_never_copied_are_told(run: ShardRun) -> None:
    journal.clear(run.journals)
    outcome = run.reread()
    assert f"{run.shard.rows} rows" in outcome.failures[0].why
    assert not (run.folder / "records.parquet").exists()


def test_a_stop_writes_no_records(run: ShardRun) -> None:
    def stop() -> None:
        raise InterruptedRunError(2)

    with pytest.raises(InterruptedRunError):
        run.reread(stop=stop)
    assert not (run.folder / "records.parquet").exists()


def test_a_giant_that_was_linked_whole_is_read_as_a_tree(run: ShardRun) -> None:
    whole = [e for e in run.entries if e.part < 0]
    giant = next(e for e in run.entries if e.part == 0)
    copied = journal.replay(run.journals, run.shard.digest)
    parts = b"".join(
        bytes.fromhex(copied[n].digest.partition(":")[2]) for n, e in enumerate(run.entries) if e.part >= 0
    )
    digest = str(tree_digest(1 << 20, parts))
    run.data.joinpath("giant").chmod(0o440)
    base = run.data.rename(run.folder / "base")
    run.data.mkdir()
    journal.clear(run.journals)
    giant = giant._replace(part=-1, offset=0, length=giant.size, reuse=Reuse(digest))
    rewrite(run, [*whole, giant])
    assert run.copy(base=base).linked == 1
    assert run.reread().failures == []
    last = records(run)[-1].record
    assert (last.path, last.digest, last.parts) == ("giant", digest, parts)


def test_what_several_attempts_recorded_is_taken_back_at_once(run: ShardRun) -> None:
    """Each verify would else take back one of the records, and the damaged file stay in between."""
    (path,) = journal.files(run.journals)
    _, _, lines = path.read_bytes().partition(b"\n")
    late = journal.Journal(run.journals, shard_digest=run.shard.digest, run="run", attempt="late", host="h")
    late.append(lines)
    late.close()
    row = next(n for n, entry in enumerate(run.entries) if entry.path == "d1/007")
    damage(run.data / "d1/007")
    assert [one.path for one in run.reread().failures] == ["d1/007"]
    assert row not in journal.replay(run.journals, run.shard.digest)
    assert run.copy().files == 1
    assert run.reread().failures == []
