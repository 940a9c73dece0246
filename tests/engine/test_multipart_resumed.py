"""Large objects whose parts were interrupted: what is gone on with, and nothing is fetched twice."""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING

import pytest
from tests.engine.test_kill import gone, start, until
from tests.support.engine_runs import read_tree, shard_run
from tests.support.hostile import Hostile
from tests.support.large import COUNT, DATA, OTHER, PART, SMALLER, ranges, run_of
from tests.support.s3server import S3Server

from penstock.core.errors import InterruptedRunError
from penstock.engine import journal
from penstock.engine.rows_left import Multipart
from penstock.engine.tasks import Outcome, Unfinished

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.engine_runs import ShardRun


def test_parts_that_were_given_up_are_not_met_again_and_are_no_progress(tmp_path: Path) -> None:
    """Else an object that one stream cannot fetch in its time would be submitted again without end."""
    with Hostile({"big": DATA}, modes={"big": "falsecrc"}) as server:
        run = run_of(server, tmp_path)

        def stop() -> None:
            if ranges(server)[""]:
                raise InterruptedRunError(15)

        with pytest.raises(InterruptedRunError):
            run.copy(stop=stop, engine={"limit": 8 << 20}, **SMALLER)
        assert not journal.records_more(run.journals, set())
        multipart = Multipart(run.task(**SMALLER), Outcome())
        journal.replay(run.journals, run.shard.digest, unfinished=multipart.unfinished)
        assert len(multipart.unfinished.parts[0]) == COUNT + 2
        assert multipart.resume(0, run.entries[0]) == 0


def without_the_rows_line(run: ShardRun) -> None:
    """As a kill -9 between the file's name and the next keeping leaves it."""
    (path,) = journal.files(run.journals)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(one for one in lines if one[9:11] in (b'{"', b'["')))


def test_a_file_that_has_its_name_and_no_record_is_not_fetched_again(tmp_path: Path) -> None:
    with Hostile({"big": DATA}) as server:
        run = run_of(server, tmp_path)
        assert run.copy(**SMALLER).failures == []
        without_the_rows_line(run)
        asked = server.count("big")
        outcome = run.copy(**SMALLER)
        assert (outcome.failures, outcome.files) == ([], 1)
        assert (outcome.bytes, outcome.resumed_bytes) == (0, len(DATA))
        assert server.count("big") == asked
        assert run.reread().failures == []


@pytest.mark.parametrize("why", ["gone", "another size", "another version", "other parts"])
def test_parts_that_no_longer_stand_are_fetched_anew(tmp_path: Path, why: str) -> None:
    with Hostile({"big": DATA}) as server:
        run = run_of(server, tmp_path)
        assert run.copy(**SMALLER).failures == []
        without_the_rows_line(run)
        (path,) = journal.files(run.journals)
        lines = path.read_bytes().splitlines(keepends=True)
        temporary = lines[1].split(b'"')[3].decode()
        if why == "another version":
            kept = [line.replace(run.entries[0].token.encode(), b"0" * 24) for line in lines]
            kept = [f"{zlib.crc32(line[9:-1]):08x} ".encode() + line[9:] for line in kept]
        else:
            kept = lines[:-1]
        path.write_bytes(b"".join(kept))
        final = run.data / "big"
        if why == "gone":
            final.unlink()
        else:
            final.rename(run.data / temporary)
        if why == "another size":
            os.truncate(run.data / temporary, len(DATA) - 1)
        sizes = SMALLER | {"part_bytes": 1 << 20} if why == "other parts" else SMALLER
        outcome = run.copy(**sizes)
        assert (outcome.failures, outcome.resumed_bytes) == ([], 0)
        assert outcome.bytes == len(DATA)
    assert final.read_bytes() == DATA
    assert run.reread().failures == []


def test_a_file_that_another_attempt_named_amid_the_parts_is_copied_whole(tmp_path: Path) -> None:
    """It has written the same bytes; which of them were there is not known."""
    with Hostile({"big": DATA}) as server:
        run = run_of(server, tmp_path)

        def name() -> None:
            if server.count("big") >= 3 and not (run.data / "big").exists():
                (one,) = run.data.glob(".p.*")
                one.rename(run.data / "big")

        outcome = run.copy(stop=name, engine={"limit": 2 << 20}, **SMALLER)
        assert (outcome.failures, outcome.files, outcome.bytes) == ([], 1, len(DATA))
    assert read_tree(run.data) == {"big": DATA}
    assert run.reread().failures == []


def test_kill_9_costs_the_parts_that_were_on_their_way(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    source.joinpath("big").write_bytes(DATA)
    source.joinpath("other").write_bytes(OTHER)
    with S3Server(source) as server:
        run = shard_run(tmp_path / "run", server.url(), endpoint_url=server.endpoint, anon=True)

        def kept() -> int:
            unfinished = Unfinished()
            journal.replay(run.journals, run.shard.digest, unfinished=unfinished)
            return sum(line.number >= 0 for lines in unfinished.parts.values() for line in lines)

        process = start(run, task=SMALLER, limit=2 << 20, streams=2)
        until(lambda: kept() >= 3, process)
        process.kill()
        process.wait()
        gone(process.pid)
        unfinished = Unfinished()
        whole = len(journal.replay(run.journals, run.shard.digest, unfinished=unfinished))
        done = {
            (run.entries[row].key, f"bytes={n * PART}-")
            for row, lines in unfinished.parts.items()
            for n in {line.number for line in lines} - {-1}
        }
        assert 3 <= len(done) + whole * COUNT < 2 * COUNT
        asked = len(server.requests())
        outcome = run.copy(**SMALLER)
        assert outcome.failures == []
        assert outcome.resumed_bytes >= (len(done) - 2) * PART
        gets = [
            (one.key, one.range.partition("-")[0] + "-")
            for one in server.requests()[asked:]
            if one.method == "GET" and one.range
        ]
        assert len(gets) == len(set(gets)) == (2 - whole) * COUNT - len(done)
        assert not done & set(gets)
    assert read_tree(run.data) == {"big": DATA, "other": OTHER}
    assert run.reread().failures == []


def test_rows_that_wait_to_be_gone_on_with_hold_nobody_up(tmp_path: Path) -> None:
    """An attempt that meets more begun rows than may be on their way at once."""
    objects = {f"big{n}": DATA for n in range(4)}
    with Hostile(objects) as server:
        run = run_of(server, tmp_path)
        limited = SMALLER | {"engine": {"limit": 4 << 20, "streams": 4}}

        def stop() -> None:
            if len(server.asked) > 16:
                raise InterruptedRunError(15)

        with pytest.raises(InterruptedRunError):
            run.copy(stop=stop, **limited)
        multipart = Multipart(run.task(**SMALLER), Outcome())
        journal.replay(run.journals, run.shard.digest, unfinished=multipart.unfinished)
        assert len(multipart.unfinished.parts) == len(objects)
        multipart._most = PART
        for row, entry in enumerate(run.entries):
            multipart.open(row, entry)
        assert not multipart.full
        assert run.copy(**SMALLER).failures == []
    assert read_tree(run.data) == objects
