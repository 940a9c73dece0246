"""Large objects in parts: one version, one file, and each byte proven as before."""

from __future__ import annotations

import hashlib
import os
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import xxhash
from tests.support.engine_runs import read_tree, rewrite
from tests.support.hostile import Hostile
from tests.support.large import COUNT, DATA, HEX, OTHER, PART, SMALLER, ranges, records, run_of

from penstock.config.settings import VerifyConfig
from penstock.core.model import IN_PARTS, Reuse
from penstock.engine import journal
from penstock.engine.rows_left import Multipart
from penstock.engine.tasks import LEAST, LOST, BatchAnswer, FailedRow, Failure, Outcome, part_bytes
from penstock.sources.port import pinned

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("durability", ["syncfs", "fsync"])
def test_parts_make_the_file_and_the_digest_that_one_stream_makes(tmp_path: Path, durability: str) -> None:
    objects = {"a/big": DATA, "a/small": DATA[:4000], "b/big": OTHER, "c": DATA[: (4 << 20) - 1]}
    with Hostile(objects, modes={"a/big": "crc"}) as server:
        run = run_of(server, tmp_path)
        outcome = run.copy(engine={"durability": durability}, **SMALLER)
        assert outcome.failures == []
        assert (outcome.files, outcome.bytes) == (4, sum(map(len, objects.values())))
        assert len(ranges(server, "a/big")) == COUNT
        assert set(ranges(server, "c")) == {""}
    assert read_tree(run.data) == objects
    assert os.stat(run.data / "a/big").st_mtime_ns == run.entries[0].modified_ns
    copied = journal.replay(run.journals, run.shard.digest)
    assert copied[0].digest.startswith(f"{IN_PARTS}{PART}:")
    assert run.reread().failures == []
    found = records(run)
    assert found["a/big"].digest == f"xxh3_128:{HEX}"
    assert found["a/big"].parts == b""
    assert found["a/big"].digests == ""
    crc = f"crc32:full:{zlib.crc32(DATA):08x}"
    assert (found["a/big"].source_grade, found["a/big"].source_proof) == ("full", crc)
    assert found["b/big"].digest == "xxh3_128:" + xxhash.xxh3_128_hexdigest(OTHER)
    assert found["b/big"].source_grade == "size"


def test_what_one_version_cannot_be_asked_for_by_goes_in_one_stream(tmp_path: Path) -> None:
    with Hostile({"big": DATA}) as server:
        run = run_of(server, tmp_path)
        rewrite(run, [run.entries[0]._replace(token="")])
        assert run.copy(**SMALLER).failures == []
        assert ranges(server) == {"": 1}
    assert journal.replay(run.journals, run.shard.digest)[0].digest == f"xxh3_128:{HEX}"


@pytest.mark.parametrize(
    ("url", "token", "answer"),
    [
        ("s3://b/", "0123", True),
        ("s3://b/", "", False),
        ("https://h/", "0123", True),
        ("https://h/", "W/0123", False),
        ("https://h/", "Tue, 06 May 2024 07:08:09 GMT", False),
        ("abfs://c@a.blob.core.windows.net/", "0x8D", True),
        ("file:///d", "7-1-1-9", False),
        ("sftp://h/", "7-1", False),
    ],
)
def test_what_pins_a_version(url: str, token: str, answer: bool) -> None:
    assert pinned(url, token) is answer


def test_what_lies_on_the_target_already_is_not_fetched_in_parts(tmp_path: Path) -> None:
    with Hostile({"big": DATA}) as server:
        run = run_of(server, tmp_path)
        (entry,) = run.entries
        for reuse, answer in (
            ("", True),
            (Reuse(f"xxh3_128:{HEX}", "full", "crc32:full:00000000"), False),
        ):
            multipart = Multipart(run.task(**SMALLER), Outcome())
            assert multipart.goes_in_parts(0, entry._replace(reuse=reuse)) is answer


def test_an_object_that_changes_amid_its_parts_is_never_spliced(tmp_path: Path) -> None:
    with Hostile({"big": DATA}) as server:
        run = run_of(server, tmp_path)

        def change() -> None:
            if server.count("big") >= 3:
                server.objects["big"] = OTHER

        outcome = run.copy(stop=change, engine={"limit": 2 << 20}, **SMALLER)
    assert 3 <= server.count("big") < COUNT + 8
    assert outcome.exit_code == 5
    assert len(outcome.failures) == 1
    assert read_tree(run.data) == {}
    assert journal.replay(run.journals, run.shard.digest) == {}


def test_what_changes_amid_its_parts_is_followed_as_one_version(tmp_path: Path) -> None:
    with Hostile({"big": DATA}) as server:
        run = run_of(server, tmp_path)
        run.dataset = replace(run.dataset, changed="follow")

        def change() -> None:
            if server.count("big") >= 3:
                server.objects["big"] = OTHER

        engine = {"limit": 2 << 20}
        outcome = run.copy(stop=change, may_change=(1, 0), engine=engine, **SMALLER)
        assert (outcome.failures, outcome.files, outcome.amended) == ([], 1, 1)
        assert outcome.bytes == len(OTHER)
        asked = server.count("big")
        again = run.copy(may_change=(1, 0), **SMALLER)
        assert (again.failures, again.resumed_files, server.count("big")) == ([], 1, asked)
    assert read_tree(run.data) == {"big": OTHER}
    assert run.reread().failures == []


def test_a_byte_that_the_wire_changed_in_one_part_is_found_and_fetched_again(tmp_path: Path) -> None:
    with Hostile({"big": DATA}, modes={"big": "flipcrc*1"}) as server:
        run = run_of(server, tmp_path)
        outcome = run.copy(**SMALLER)
        assert outcome.failures == []
        assert ranges(server)[""] == 1
    assert (outcome.files, outcome.bytes) == (1, len(DATA))
    assert read_tree(run.data) == {"big": DATA}
    assert run.reread().failures == []
    assert records(run)["big"].source_grade == "full"


def test_parts_that_contradict_the_source_to_the_end_are_no_file(tmp_path: Path) -> None:
    with Hostile({"big": DATA, "other": OTHER}, modes={"big": "falsecrc"}) as server:
        run = run_of(server, tmp_path)
        outcome = run.copy(**SMALLER)
    assert [(one.path, one.exit_code) for one in outcome.failures] == [("big", 1)]
    assert "contradict" in outcome.failures[0].why
    assert read_tree(run.data) == {"other": OTHER}


@pytest.mark.parametrize("mode", ["rangeignored", "wrongrange"])
def test_a_server_that_gives_no_ranges_gives_the_whole(tmp_path: Path, mode: str) -> None:
    with Hostile({"big": DATA, "other": OTHER}, modes={"big": mode}) as server:
        run = run_of(server, tmp_path)
        assert run.copy(**SMALLER).failures == []
    assert read_tree(run.data) == {"big": DATA, "other": OTHER}
    assert run.reread().failures == []


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("then", ["failed", "gone"])
def test_a_row_whose_parts_fail_in_two_ways_counts_once(tmp_path: Path, *, first: bool, then: str) -> None:
    """What may be tried again is told; what may not is fetched whole: never both."""
    with Hostile({"big": DATA}) as server:
        run = run_of(server, tmp_path)
        multipart = Multipart(run.task(**SMALLER), Outcome())
    begin = multipart.open(0, run.entries[0])
    assert multipart.take(begin, BatchAnswer(begin.number, 1, b"a line", [], 0, 0, 0, 0)) == ()
    jobs = [multipart.next(), multipart.next()]
    failed, again = (FailedRow(0, Failure("big", "why", 1, retry=retry)) for retry in (False, True))
    told: list[FailedRow] = []
    for job, retry in zip(jobs, (first, not first), strict=True):
        assert job is not None
        failures = [again if retry else failed] if retry or then == "failed" else []
        told += multipart.take(job, BatchAnswer(job.number, not failures, b"", failures, 0, 0, 0, 0)) or ()
    if first:
        assert told == [again]
        assert multipart.next() is None
        return
    assert told == []
    drop = multipart.next()
    assert drop is not None
    # Who cannot remove the file is told so.
    assert multipart.take(drop, BatchAnswer(drop.number, 0, b"", [failed], 0, 0, 0, 0)) == [failed]
    assert multipart.next() is None


def test_a_part_that_breaks_off_is_fetched_again_alone(tmp_path: Path) -> None:
    with Hostile({"big": DATA}, modes={"big": "reset*3"}) as server:
        run = run_of(server, tmp_path)
        outcome = run.copy(**SMALLER)
        assert outcome.failures == []
        assert outcome.retries == 3
        assert len(ranges(server)) == sum(ranges(server).values()) == COUNT + 3
    assert read_tree(run.data) == {"big": DATA}


@pytest.mark.parametrize("algorithm", ["md5", "sha256", "xxh3_128"])
def test_a_hash_of_the_whole_is_judged_by_the_reading_that_verify_makes(
    tmp_path: Path, algorithm: str
) -> None:
    value = HEX if algorithm == "xxh3_128" else hashlib.new(algorithm, DATA).hexdigest()
    with Hostile({"big": DATA}) as server:
        run = run_of(server, tmp_path)
        rewrite(run, [run.entries[0]._replace(checksum=f"{algorithm}:full:{value}")])
        verify = VerifyConfig(source_checksum="require", digests=("xxh3_128", "sha256"))
        assert run.copy(verify=verify, **SMALLER).failures == []
        assert len(ranges(server)) == COUNT
    assert journal.replay(run.journals, run.shard.digest)[0].source_grade == "size"
    assert run.reread(verify).failures == []
    record = records(run)["big"]
    assert (record.digest, record.source_grade) == (f"xxh3_128:{HEX}", "full")
    assert record.source_proof == f"{algorithm}:full:{value}"
    assert record.digests == f"sha256:{hashlib.sha256(DATA).hexdigest()}"


def test_a_hash_of_the_whole_that_contradicts_is_found_by_verify(tmp_path: Path) -> None:
    with Hostile({"big": DATA}) as server:
        run = run_of(server, tmp_path)
        rewrite(run, [run.entries[0]._replace(checksum=f"md5:full:{hashlib.md5(OTHER).hexdigest()}")])
        assert run.copy(**SMALLER).failures == []
    (failure,) = run.reread().failures
    assert failure.path == "big"
    assert "contradict the source's own md5" in failure.why
    assert journal.replay(run.journals, run.shard.digest) == {}
    assert not (run.folder / "records.parquet").exists()


@pytest.mark.parametrize("wire", [True, False])
def test_what_contradicted_its_parts_is_fetched_by_one_stream(tmp_path: Path, *, wire: bool) -> None:
    """It judges while it reads: what the wire had changed is mended, what the source states wrongly is said
    with what to do, and not fetched in parts over and over."""
    with Hostile({"big": DATA}, modes={"big": "flip*1"} if wire else {}) as server:
        server.etags["big"] = hashlib.md5(DATA if wire else OTHER).hexdigest()
        run = run_of(server, tmp_path)
        assert run.copy(**SMALLER).failures == []
        assert len(ranges(server)) == COUNT
        (failure,) = run.reread().failures
        assert (failure.contradicts, failure.retry) == (True, False)
        assert "verify.source_checksum: stated" in failure.why
        server.asked.clear()
        again = run.copy(**SMALLER)
        assert set(ranges(server)) == {""}
        if not wire:
            assert [(one.path, one.retry) for one in again.failures] == [("big", False)]
            assert "verify.source_checksum: stated" in again.failures[0].why
            assert read_tree(run.data) == {"big": DATA}
            again = run.copy(verify=VerifyConfig(source_checksum="stated"), **SMALLER)
        assert again.failures == []
    assert run.reread().failures == []
    assert read_tree(run.data) == {"big": DATA}
    assert records(run)["big"].source_grade == ("etag-md5" if wire else "size")


def test_the_lists_own_hash_is_judged_beside_what_parts_prove(tmp_path: Path) -> None:
    with Hostile({"big": DATA}, modes={"big": "crc"}) as server:
        run = run_of(server, tmp_path)
        rewrite(run, [run.entries[0]._replace(checksum=f"sha256:full:{'0' * 64}")])
        assert run.copy(**SMALLER).failures == []
    assert journal.replay(run.journals, run.shard.digest)[0].source_grade == "full"
    assert "sha256" in run.reread().failures[0].why


def test_what_nothing_can_prove_is_refused_where_proof_is_required(tmp_path: Path) -> None:
    with Hostile({"big": DATA}) as server:
        run = run_of(server, tmp_path)
        outcome = run.copy(verify=VerifyConfig(source_checksum="require"), **SMALLER)
    assert "no checksum of the source proves the object" in outcome.failures[0].why
    assert read_tree(run.data) == {}


def test_a_byte_that_the_disk_changed_is_found_and_the_file_made_anew(tmp_path: Path) -> None:
    with Hostile({"big": DATA}, modes={"big": "crc"}) as server:
        run = run_of(server, tmp_path)
        assert run.copy(**SMALLER).failures == []
        with (run.data / "big").open("r+b") as stream:
            stream.seek(5 * PART)
            stream.write(b"!")
        assert "read back as" in run.reread().failures[0].why
        asked = server.count("big")
        # What was taken back is not met again by its parts' lines.
        outcome = run.copy(**SMALLER)
        assert (outcome.failures, outcome.resumed_bytes) == ([], 0)
        assert server.count("big") == asked + COUNT
    assert read_tree(run.data) == {"big": DATA}
    assert run.reread().failures == []


def test_how_large_parts_are() -> None:
    mib = 1 << 20
    assert part_bytes(LEAST) == part_bytes(4096 * mib) == 16 * mib
    assert part_bytes(4096 * mib + 1) == 32 * mib
    assert part_bytes(64 << 30) == 32 * mib


def test_how_many_streams_parts_can_use(tmp_path: Path) -> None:
    with Hostile({"big": b"x"}) as server:
        multipart = Multipart(run_of(server, tmp_path).task(), Outcome())
    gib = 1 << 30
    assert multipart.units(1, 2 * gib) == multipart.units(1, 3 * gib) == 24
    assert multipart.units(8, 4 * gib) == 32
    assert multipart.units(1, 64 * gib) == 256
    assert multipart.units(9, 9 << 20) == 9


def test_no_more_is_begun_than_may_be_lost(tmp_path: Path) -> None:
    """A disk that is slower than the store: what is done and not recorded counts as on its way."""
    size = 1 << 30
    with Hostile({"big": b"x"}) as server:
        run = run_of(server, tmp_path)
        rewrite(run, [entry._replace(size=size, length=size) for entry in run.entries])
        multipart = Multipart(run.task(), Outcome())
    begin = multipart.open(0, run.entries[0])
    assert multipart.take(begin, BatchAnswer(begin.number, 1, b"a line", [], 0, 0, 0, 0)) == ()
    unrecorded = 500 << 20
    multipart.waiting, multipart.streams = (lambda: unrecorded), (lambda: 2)
    # Whatever waits, something is on its way.
    assert not multipart.full
    assert multipart.next() is not None
    assert multipart.full
    unrecorded = 0
    given = 1
    while not multipart.full:
        assert multipart.next() is not None
        given += 1
    assert given * (16 << 20) == 8 * LOST
