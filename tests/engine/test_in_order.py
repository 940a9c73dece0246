"""Large files of folders: copied in order by one stream, and gone on with at the last mark."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from typing import TYPE_CHECKING, Any

import pytest
import xxhash
from tests.contracts.storage_contract import make_writer
from tests.engine.test_kill import gone, start, until
from tests.engine.test_sparse import copier, entry_of, make, room
from tests.support.engine_runs import read_tree, rewrite, shard_run
from tests.support.large import DATA, HEX, OTHER, PART, SMALLER

from penstock.core.errors import InterruptedRunError, SourceChangedError, TransientError
from penstock.core.row_codec import part_line, parts_of
from penstock.engine import journal
from penstock.engine.pump import Pump, ResumedBody
from penstock.engine.stream import Stopped
from penstock.engine.tasks import (
    Unfinished,
    in_order,
    is_spare,
    most_lost,
)
from penstock.host.wire import RECORD
from penstock.sources.posix_reader import PosixReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.engine_runs import ShardRun

    from penstock.core.model import Entry, PartLine
    from penstock.sources.port import Body

MIB = 1 << 20
MARKS = -(-len(DATA) // MIB)
"""Of DATA: one after each block that ends a part of SMALLER, and one at the end."""
TEMPORARY = ".p.0123456789abcdef"


def folder_run(folder: Path, **files: bytes) -> ShardRun:
    """A shard of a folder with these files."""
    source = folder / "source"
    source.mkdir()
    for name, data in files.items():
        source.joinpath(name).write_bytes(data)
    return shard_run(folder / "run", source)


def marks(run: ShardRun) -> dict[int, PartLine]:
    """The last mark of each row that has no record."""
    unfinished = Unfinished()
    journal.replay(run.journals, run.shard.digest, unfinished=unfinished)
    return {row: max(lines, key=lambda one: one.part_bytes) for row, lines in unfinished.parts.items()}


def interrupted(run: ShardRun, marked: int = 3, **engine: Any) -> dict[int, PartLine]:
    """An attempt that is stopped once so many parts are marked: its marks."""

    def stop() -> None:
        if sum(one.part_bytes for one in marks(run).values()) >= marked * PART:
            raise InterruptedRunError(15)

    with pytest.raises(InterruptedRunError):
        run.copy(stop=stop, engine={"limit": 3 * MIB, **engine}, **SMALLER)
    left = marks(run)
    assert left
    return left


def without_the_rows_line(run: ShardRun) -> None:
    """As a kill -9 between the file's name and the next flush leaves it."""
    (path,) = journal.files(run.journals)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(one for one in lines if one[9:11] in (b'{"', b'["')))


@pytest.mark.parametrize("durability", ["syncfs", "fsync"])
def test_the_next_attempt_goes_on_at_the_marks(tmp_path: Path, durability: str) -> None:
    run = folder_run(tmp_path, big=DATA, other=OTHER, small=DATA[:4000])
    left = interrupted(run, durability=durability)
    outcome = run.copy(engine={"durability": durability}, **SMALLER)
    assert outcome.failures == []
    done = sum(one.part_bytes for one in left.values())
    assert outcome.resumed_bytes >= done >= 3 * PART
    assert outcome.bytes + outcome.resumed_bytes == run.shard.bytes
    assert read_tree(run.data) == {"big": DATA, "other": OTHER, "small": DATA[:4000]}
    assert os.stat(run.data / "big").st_mtime_ns == run.entries[0].modified_ns
    # Verify has nothing to add: the digest is over all bytes.
    assert journal.replay(run.journals, run.shard.digest)[0].digest == f"xxh3_128:{HEX}"
    assert run.reread().failures == []


def test_kill_9_costs_what_was_not_marked(tmp_path: Path) -> None:
    run = folder_run(tmp_path, big=DATA, other=OTHER)
    process = start(run, task=SMALLER, limit=2 * MIB, streams=2)
    until(lambda: sum(one.part_bytes for one in marks(run).values()) >= 3 * PART, process)
    process.kill()
    process.wait()
    gone(process.pid)
    done = sum(one.part_bytes for one in marks(run).values())
    outcome = run.copy(**SMALLER)
    assert (outcome.failures, outcome.resumed_bytes) == ([], done)
    assert outcome.bytes == run.shard.bytes - done
    # A temporary file without a mark stays until the tree is published.
    here = {name: data for name, data in read_tree(run.data).items() if ".p." not in name}
    assert here == {"big": DATA, "other": OTHER}
    assert run.reread().failures == []


@pytest.mark.parametrize("why", ["a byte", "gone", "another size", "another version"])
def test_a_mark_that_does_not_hold_counts_for_nothing(tmp_path: Path, why: str) -> None:
    run = folder_run(tmp_path, big=DATA)
    left = interrupted(run)[0]
    temporary = run.data / left.temporary
    if why == "a byte":
        with temporary.open("r+b") as stream:
            stream.seek(left.part_bytes // 2)
            stream.write(b"!")
    elif why == "gone":
        temporary.unlink()
    elif why == "another size":
        os.truncate(temporary, len(DATA) - 1)
    else:
        line = part_line(left._replace(token="1-1-1-1"))
        (path,) = journal.files(run.journals)
        path.write_bytes(path.read_bytes().splitlines(keepends=True)[0] + line.encode())
    outcome = run.copy(**SMALLER)
    assert outcome.failures == []
    assert outcome.resumed_bytes == (left.part_bytes if why == "a byte" else 0)
    kept = {name: data for name, data in read_tree(run.data).items() if name != left.temporary}
    assert kept == {"big": DATA}
    assert run.reread().failures == []


@pytest.mark.parametrize("marked", [0, 3, MARKS])
def test_a_file_that_has_its_name_and_no_record(tmp_path: Path, marked: int) -> None:
    """It is kept where a mark is of all its bytes. A file that has its name is never written again."""
    run = folder_run(tmp_path, big=DATA)
    assert run.copy(**SMALLER).failures == []
    without_the_rows_line(run)
    (path,) = journal.files(run.journals)
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + MARKS
    path.write_bytes(b"".join(lines[: 1 + marked]))
    inode = os.stat(run.data / "big").st_ino
    outcome = run.copy(**SMALLER)
    assert (outcome.failures, outcome.files) == ([], 1)
    assert outcome.resumed_bytes == (len(DATA) if marked == MARKS else 0)
    assert outcome.bytes == len(DATA) - outcome.resumed_bytes
    assert (os.stat(run.data / "big").st_ino == inode) is (marked == MARKS)
    assert stat.S_IMODE(os.stat(run.data / "big").st_mode) == 0o440
    assert os.stat(run.data / "big").st_mtime_ns == run.entries[0].modified_ns
    assert run.reread().failures == []


def test_a_file_that_verify_took_back_is_copied_anew(tmp_path: Path) -> None:
    run = folder_run(tmp_path, big=DATA)
    assert run.copy(**SMALLER).failures == []
    with (run.data / "big").open("r+b") as stream:
        stream.write(b"!")
    assert "read back as" in run.reread().failures[0].why
    outcome = run.copy(**SMALLER)
    assert (outcome.failures, outcome.resumed_bytes, outcome.bytes) == ([], 0, len(DATA))
    assert read_tree(run.data) == {"big": DATA}
    assert run.reread().failures == []


def test_a_file_that_changed_since_its_mark_is_refused(tmp_path: Path) -> None:
    run = folder_run(tmp_path, big=DATA)
    interrupted(run)
    (tmp_path / "source/big").write_bytes(OTHER)
    outcome = run.copy(**SMALLER)
    assert "changed since it was listed" in outcome.failures[0].why
    assert read_tree(run.data) == {}


def test_what_is_read_of_a_newer_version_is_never_written(tmp_path: Path) -> None:
    """A later attempt may have this file by now, and have given it its name."""
    run = folder_run(tmp_path, big=DATA)
    source, entry = tmp_path / "source", run.entries[0]
    stream = copier(source, run.data)
    reader = PosixReader(str(source))
    pump = Pump(stream, stream.writer.alive)
    stream.writer.begin_multipart("big", TEMPORARY, entry.size)
    pending = stream.writer.begin_range("big", TEMPORARY, entry.size, 0)
    assert pending is not None
    body = pump.open(str(source), reader, entry, 0, entry.size)
    assert isinstance(body, ResumedBody)

    def edit(_: object) -> None:
        with (source / "big").open("r+b") as file:
            file.write(b"!" * len(DATA))

    with pytest.raises(SourceChangedError):
        pump.run(entry, body, pending, None, entry.size, None, edit, body.require_listed)
    body.abandon()
    stream.writer.discard(pending)
    stream.close()
    assert (run.data / TEMPORARY).read_bytes().rstrip(b"\0") == DATA[:MIB].rstrip(b"\0")


def test_a_mark_that_did_not_hold_is_not_met_again(tmp_path: Path) -> None:
    run = folder_run(tmp_path, big=DATA)
    false = interrupted(run, marked=4)[0]
    with (run.data / false.temporary).open("r+b") as stream:
        stream.seek(false.part_bytes - 1)
        stream.write(bytes([DATA[false.part_bytes - 1] ^ 1]))
    next_one = interrupted_again(run, false)
    assert next_one.temporary != false.temporary
    assert not (run.data / false.temporary).exists()
    outcome = run.copy(**SMALLER)
    assert (outcome.failures, outcome.resumed_bytes) == ([], next_one.part_bytes)
    assert read_tree(run.data) == {"big": DATA}


def interrupted_again(run: ShardRun, before: PartLine) -> PartLine:
    """A further attempt that is stopped once it has marks of its own: the last one."""

    def own() -> list[PartLine]:
        unfinished = Unfinished()
        journal.replay(run.journals, run.shard.digest, unfinished=unfinished)
        lines = unfinished.parts.get(0, ())
        return [line for line in lines if line.temporary != before.temporary and line.number == 0]

    def stop() -> None:
        if own():
            raise InterruptedRunError(15)

    with pytest.raises(InterruptedRunError):
        run.copy(stop=stop, engine={"limit": 3 * MIB}, **SMALLER)
    return max(own(), key=lambda line: line.part_bytes)


def test_an_attempt_that_wakes_after_another_named_the_file_leaves_its_times(tmp_path: Path) -> None:
    """The file may have been read back since, and its ctime noted."""
    make(tmp_path / "source/f", 2 * MIB, {0: os.urandom(2 * MIB)})
    (tmp_path / "data").mkdir()
    entry = entry_of(tmp_path / "source", "f")
    frozen, other = (copier(tmp_path / "source", tmp_path / "data") for _ in range(2))
    times: list[tuple[int, int]] = []

    def marked(kind: int, value: tuple[int, bytes, int]) -> None:
        (mark,) = parts_of(value[1])
        if mark.part_bytes == entry.size and not times:
            other.do(0, in_order(entry, TEMPORARY, MIB, mark))
            status = (tmp_path / "data/f").stat()
            times.append((status.st_mtime_ns, status.st_ctime_ns))

    frozen.recorded = other.recorded = threading.Semaphore(99)
    other.tell = lambda *_: None
    frozen.tell = marked
    frozen.do(0, in_order(entry, TEMPORARY, MIB, None))
    status = (tmp_path / "data/f").stat()
    assert times == [(status.st_mtime_ns, status.st_ctime_ns)]
    assert status.st_mtime_ns == entry.modified_ns
    for stream in (frozen, other):
        stream.close()


@pytest.mark.parametrize("right", [True, False])
def test_a_stated_checksum_is_of_all_bytes(tmp_path: Path, *, right: bool) -> None:
    """Also of those that an earlier attempt copied. A contradiction leaves nothing to go on with."""
    run = folder_run(tmp_path, big=DATA)
    value = hashlib.sha256(DATA if right else OTHER).hexdigest()
    rewrite(run, [run.entries[0]._replace(checksum=f"sha256:full:{value}")])
    interrupted(run)
    before = journal.names(run.journals)
    outcome = run.copy(**SMALLER)
    if right:
        assert outcome.failures == []
        copied = journal.replay(run.journals, run.shard.digest)[0]
        assert (copied.source_grade, copied.source_proof) == ("full", f"sha256:full:{value}")
        assert run.reread().failures == []
    else:
        assert outcome.failures[0].contradicts
        assert read_tree(run.data) == {}
        assert not journal.records_more(run.journals, before)
        assert run.copy(**SMALLER).resumed_bytes == 0


@pytest.mark.parametrize(
    ("streams", "unrecorded", "answer"),
    [(8, 0, True), (8, 1, False), (64, 1, False), (2, 288 * MIB, True), (2, 289 * MIB, False)],
)
def test_few_streams_may_be_further_ahead(streams: int, unrecorded: int, *, answer: bool) -> None:
    """A disk is idle between two flushes where two streams wait for them."""
    assert is_spare(unrecorded, streams) is answer
    assert most_lost(streams) == max(384, 48 * streams) * MIB


def test_holes_stay_holes(tmp_path: Path) -> None:
    content = make(tmp_path / "source/f", 64 * MIB, {9 * MIB: os.urandom(MIB), 40 * MIB: os.urandom(MIB)})
    (tmp_path / "data").mkdir()
    entry = entry_of(tmp_path / "source", "f")
    stream = copier(tmp_path / "source", tmp_path / "data")
    given: list[PartLine] = []

    def killed(_: int, value: tuple[int, bytes, int]) -> None:
        given.extend(parts_of(value[1]))
        if len(given) == 2:
            raise Stopped

    stream.recorded = threading.Semaphore(99)
    stream.tell = killed
    with pytest.raises(Stopped):
        stream.do(0, in_order(entry, TEMPORARY, 5 * MIB, None))
    last = given[-1]
    assert 9 * MIB < last.part_bytes < len(content)
    stream.tell = lambda *_: None
    line = stream.do(0, in_order(entry, TEMPORARY, 5 * MIB, last))
    stream.close()
    assert xxhash.xxh3_128_hexdigest(content) in line
    assert (tmp_path / "data/f").read_bytes() == content
    assert room(tmp_path / "data/f") <= 2 * MIB + 16384


def test_a_stream_is_one_mark_ahead_of_the_journal(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    stream = copier(tmp_path, tmp_path / "data")
    given: list[int] = []
    stream.tell = lambda kind, value: given.append(value[2] if kind == RECORD else -1)
    thread = threading.Thread(target=lambda: [stream.record("", number) for number in range(4)])
    thread.start()
    for marks_given in (2, 3, 4):
        while len(given) < marks_given:
            assert thread.is_alive()
        thread.join(0.02)
        assert given == list(range(marks_given))
        assert thread.is_alive()
        stream.recorded.release()
    thread.join()
    stream.stopping.set()
    stream.recorded.release()
    with pytest.raises(Stopped):
        stream.record("", 4)
    stream.close()


def test_a_mark_is_told_once_the_bytes_up_to_it_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "source/f", 4 * MIB, {0: os.urandom(4 * MIB)})
    (tmp_path / "data").mkdir()
    entry, writer = entry_of(tmp_path / "source", "f"), make_writer(tmp_path / "data", durability="fsync")
    stream = copier(tmp_path / "source", tmp_path / "data", writer)
    fsync, durable, marked = os.fsync, 0, []

    def synced(fd: int) -> None:
        nonlocal durable
        fsync(fd)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            durable = stream.counters[0]

    monkeypatch.setattr(os, "fsync", synced)
    stream.recorded = threading.Semaphore(99)
    stream.tell = lambda _, value: marked.extend((one.part_bytes, durable) for one in parts_of(value[1]))
    stream.do(0, in_order(entry, TEMPORARY, MIB, None))
    stream.close()
    assert sorted({at for at, _ in marked}) == [MIB, 2 * MIB, 3 * MIB, 4 * MIB]
    assert all(at <= up_to for at, up_to in marked), marked


class Breaking:
    """A reader of a folder, each of whose bodies fails once it gave so many bytes."""

    def __init__(self, reader: PosixReader, size: int) -> None:
        self.reader, self.size = reader, size
        self.opened: list[int] = []

    def open(self, entry: Entry, offset: int, length: int) -> Body:
        self.opened.append(offset)
        body, left = self.reader.open(entry, offset, length), self.size
        plain: Callable[[memoryview], int] = body.readinto

        class Breaks:
            checksums = body.checksums
            close, abandon = body.close, body.abandon

            def readinto(self, buffer: memoryview) -> int:
                nonlocal left
                if not left:
                    raise TransientError("reading the file failed", where=entry.key)
                count = plain(buffer[:left])
                left -= count
                return count

        return Breaks()


def test_a_mount_that_breaks_is_read_on_at_the_break(tmp_path: Path) -> None:
    run = folder_run(tmp_path, big=DATA)
    stream = copier(tmp_path / "source", run.data)
    stream.attempts = 2
    reader = Breaking(PosixReader(str(tmp_path / "source")), MIB)
    reader.reader.stat("big")
    descriptors = len(os.listdir("/proc/self/fd"))
    body = Pump(stream, stream.writer.alive).open(
        str(tmp_path / "source"), reader, run.entries[0], 0, len(DATA)
    )
    data = bytearray()
    block = memoryview(bytearray(MIB))
    while count := body.readinto(block):
        data += block[:count]
    body.close()
    assert bytes(data) == DATA
    assert len(os.listdir("/proc/self/fd")) == descriptors
    stream.close()
    assert reader.opened == list(range(0, len(DATA), MIB))
