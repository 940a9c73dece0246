"""What a misbehaving source does to a row: a bounded retry or a clear refusal, never a wrong file."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import xxhash
from tests.support.engine_runs import read_tree, shard_run
from tests.support.hostile import Hostile

from penstock.core.element_documents import KEPT
from penstock.core.errors import (
    ExpiredCredentialsError,
    FailedError,
    IntegrityError,
    ObjectError,
    OverloadedError,
    PenstockError,
    SourceChangedError,
    TransientError,
)
from penstock.core.model import Entry, SourceChecksum
from penstock.engine import stream
from penstock.engine.copier import Copier
from penstock.engine.stream import BLOCK, Stopped
from penstock.host.wire import EXPIRED, PRESSURE
from penstock.target.staging_writer import StagingWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

SMALL, LARGE = b"small " * 100, b"large!" * 600_000


@dataclass
class Script:
    """A source whose object's bytes, checksums and faults are written down here."""

    data: bytes
    checksums: Sequence[SourceChecksum] = ()
    url: str = "s3://bucket/"
    drip: int = 1 << 30
    """Bytes of one readinto at most."""
    fails_at: int = -1
    error: PenstockError | None = None
    close_error: PenstockError | None = None
    times: int = 1 << 30
    """How often it fails before it works."""
    whole: Sequence[SourceChecksum] = ()
    opened: int = 0
    offsets: list[int] = field(default_factory=list)
    """Where its bodies began."""
    abandoned: int = 0

    def get(self, index: int) -> Script:
        return self

    def reader(self) -> Script:
        return self

    def open(self, entry: Entry, offset: int, length: int) -> ScriptBody:
        self.opened += 1
        self.offsets.append(offset)
        return ScriptBody(self, self.data[offset:], failing=self.opened <= self.times)

    def close(self) -> None:
        """A reader without a connection."""

    def checksums_of(self, entry: Entry) -> Sequence[SourceChecksum]:
        return self.whole


@dataclass
class ScriptBody:
    script: Script
    data: bytes
    failing: bool
    at: int = 0
    checksums: Sequence[SourceChecksum] = field(init=False)

    def __post_init__(self) -> None:
        self.checksums = self.script.checksums

    def readinto(self, buffer: memoryview) -> int:
        script = self.script
        if self.failing and script.error and self.at >= script.fails_at >= 0:
            raise script.error
        piece = self.data[self.at : self.at + min(len(buffer), script.drip)]
        buffer[: len(piece)] = piece
        self.at += len(piece)
        return len(piece)

    def close(self) -> None:
        if self.failing and self.script.close_error:
            raise self.script.close_error

    def abandon(self) -> None:
        self.script.abandoned += 1


class Bench:
    """A copier over a script and a real writer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[int] = []
        self.stopping = threading.Event()
        self.counters = [0]
        self.closers: list[Callable[[], None]] = []

    def copier(self, script: Script, **changes: Any) -> Copier:
        writer = StagingWriter(
            self.folder,
            file_mode=0o440,
            dir_mode=0o2550,
            gid=None,
            durability="syncfs",
            attempt="a",
            keep_mtime=True,
        )
        script_sources: Any = type(
            "Sources", (), {"get": lambda _, n: script, "checksums": lambda _, e: script.checksums_of(e)}
        )()
        common: dict[str, Any] = {
            "slot": 0,
            "counters": self.counters,
            "stopping": self.stopping,
            "attempts": 3,
            "limiter": None,
            "tell": lambda kind, _: self.told.append(kind),
        }
        copier = Copier(sources=script_sources, writer=writer, base=None, **common | changes)
        self.closers.append(copier.close)
        return copier

    def run(self, script: Script, listed: bytes | None = None, **changes: Any) -> str:
        data = script.data if listed is None else listed
        part = changes.pop("part", -1)
        entry = Entry("d/x", "x", len(data), "t", 0, length=len(data), part=part)
        entry = entry._replace(checksum=changes.pop("checksum", ""))
        line = self.copier(script, **changes).attempt(0, entry)
        assert isinstance(line, str)
        return line


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    folder = tmp_path / "data"
    folder.mkdir()
    bench = Bench(folder)
    yield bench
    for close in bench.closers:
        close()


@pytest.fixture(params=[SMALL, LARGE], ids=["small", "large"])
def data(request: pytest.FixtureRequest) -> bytes:
    value: bytes = request.param
    return value


def test_the_line_has_the_digest(bench: Bench, data: bytes) -> None:
    line = bench.run(Script(data))
    assert xxhash.xxh3_128_hexdigest(data) in line
    assert read_tree(bench.folder) == {"d/x": data}
    assert bench.counters == [len(data)]


@pytest.mark.parametrize("drip", [1000, 70_001, BLOCK])
def test_dripped_bytes_are_put_together(bench: Bench, data: bytes, drip: int) -> None:
    assert xxhash.xxh3_128_hexdigest(data) in bench.run(Script(data, drip=drip))
    assert read_tree(bench.folder) == {"d/x": data}


def test_a_short_body_is_tried_again_and_then_fails(bench: Bench, data: bytes) -> None:
    script = Script(data[:-1])
    with pytest.raises(TransientError, match="ended early"):
        bench.run(script, listed=data)
    assert script.opened == script.abandoned == 3
    assert read_tree(bench.folder) == {}
    assert bench.counters == [0]


def test_a_long_body_is_never_stored(bench: Bench, data: bytes) -> None:
    with pytest.raises(IntegrityError, match="longer"):
        bench.run(Script(data + b"x"), listed=data)
    assert read_tree(bench.folder) == {}


@pytest.mark.parametrize("pins", [True, False])
def test_a_break_in_the_middle_is_mended_by_another_try(bench: Bench, data: bytes, *, pins: bool) -> None:
    script = Script(data, drip=200, fails_at=200, error=TransientError("reset"), times=2)
    if len(data) > BLOCK:
        script.drip, script.fails_at = BLOCK, BLOCK
    script.url = "s3://bucket/" if pins else "sftp://host/"
    bench.run(script)
    assert script.offsets == ([0, script.fails_at, 2 * script.fails_at] if pins else [0, 0, 0])
    assert read_tree(bench.folder) == {"d/x": data}
    assert bench.counters == [len(data)]


@pytest.mark.parametrize("error", [SourceChangedError("changed"), ObjectError("refused")])
def test_permanent_errors_are_not_tried_again(bench: Bench, data: bytes, error: PenstockError) -> None:
    script = Script(data, close_error=error)
    with pytest.raises(type(error)):
        bench.run(script)
    assert script.opened == 1
    assert read_tree(bench.folder) == {}


def test_a_wrong_checksum_is_read_once_more(bench: Bench, data: bytes) -> None:
    script = Script(data, checksums=[SourceChecksum("crc32c", "full", "00000001")])
    with pytest.raises(IntegrityError, match="crc32c"):
        bench.run(script)
    assert script.opened == 2
    assert read_tree(bench.folder) == {}


def test_a_checksum_of_a_checksum_file_is_checked_too(bench: Bench, data: bytes) -> None:
    with pytest.raises(IntegrityError, match="sha256"):
        bench.run(Script(data), checksum="sha256:full:" + "0" * 64)


def test_parts_keep_the_crc_that_the_whole_object_has(bench: Bench) -> None:
    script = Script(LARGE, whole=[SourceChecksum("crc64nvme", "full", "0" * 16)])
    assert '"crc64nvme:part:' in bench.run(script, part=0)
    assert read_tree(bench.folder) == {"d/x": LARGE}


def test_pressure_and_expiry_are_told(bench: Bench, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "RENEWAL", 0.0)
    bench.run(Script(data, fails_at=0, error=TransientError("x", why="4290503 of 8388608 bytes"), times=1))
    bench.run(Script(data, fails_at=0, error=OverloadedError("x"), times=1))
    bench.run(Script(data, fails_at=0, error=ExpiredCredentialsError("x"), times=1))
    assert bench.told == [PRESSURE, EXPIRED]


def test_a_stop_leaves_a_large_row_and_a_pause(bench: Bench) -> None:
    bench.stopping.set()
    with pytest.raises(Stopped):
        bench.run(Script(LARGE))
    with pytest.raises(Stopped):
        bench.run(Script(SMALL, fails_at=0, error=TransientError("x", after=100.0)))
    assert read_tree(bench.folder) == {}


def test_a_fenced_attempt_stops_the_shard(bench: Bench) -> None:
    class Moves(Script):
        def open(self, entry: Entry, offset: int, length: int) -> ScriptBody:
            for path in (bench.folder / "d").glob(".p.*"):
                path.unlink()
            return super().open(entry, offset, length)

    script = Moves(LARGE, drip=BLOCK)
    copier = bench.copier(script)
    copier.attempt(0, Entry("d/x", "x", len(LARGE), "t", 0, length=len(LARGE)))
    bench.folder.rename(bench.folder.with_name("gone"))
    with pytest.raises(FailedError, match="overtaken"):
        copier.attempt(1, Entry("d/y", "y", len(LARGE), "t", 0, length=len(LARGE), part=0))


MODES = {
    "fine": ("", ""),
    "cut": ("cut*2", ""),
    "reset": ("reset*1", ""),
    "slow": ("slowdown*2", ""),
    "chunk": ("badchunk*1", ""),
    "flipped": ("flipcrc*1", ""),
    "redirected": ("redirect*1", ""),
    "short": ("shortlen", "length"),
    "long": ("long", "length"),
    "lengthless": ("nolen*1", ""),
    "broken": ("flipcrc", "crc32"),
    "checksums": ("falsecrc", "crc32"),
    "login": ("errhtml200", "no object of the store"),
    "zipped": ("gzip", "Content-Encoding"),
    "other": ("changed", "changed"),
    "gone": ("404", "gone"),
    "denied": ("denied", "refuses"),
}


def test_a_hostile_store_costs_its_own_rows_alone(tmp_path: Path) -> None:
    objects = {f"{name}/{size}": name.encode() * size for name in MODES for size in (100, 400_000)}
    modes = {f"{name}/{size}": mode for name, (mode, _) in MODES.items() for size in (100, 400_000)}
    with Hostile(objects, modes=modes) as server:
        run = shard_run(tmp_path / "run", f"s3://{server.bucket}/", endpoint_url=server.endpoint, anon=True)
        outcome = run.copy(engine={"attempts": 4, "timeout": 5.0})
    here = read_tree(run.data)
    whys = {failure.path: failure.why for failure in outcome.failures}
    for name, (_, why) in MODES.items():
        for size in (100, 400_000):
            key = f"{name}/{size}"
            if why:
                assert key not in here
                assert why in whys[key], key
            else:
                assert here[key] == objects[key]
                assert key not in whys
    assert outcome.retries >= 10
    assert "asked for less" in outcome.why
    assert sum(outcome.retried.values()) == outcome.retries
    assert outcome.retried["HTTP 503"] == 4
    assert set(outcome.retried) > {"HTTP 503", "the body ended early"}
    assert len(outcome.slowest) == KEPT
    # Its two tries more waited for a server that asked for it.
    assert "slow/" in " ".join(key for _, _, key in outcome.slowest)


def test_a_source_that_is_away_ends_the_shard_and_not_each_row(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    copier = bench.copier(Script(SMALL))
    now = [0.0]
    monkeypatch.setattr(stream.time, "monotonic", lambda: now[0])
    away, gone = TransientError("no answer", where="k", why="reset"), SourceChangedError("gone")

    def after(seconds: float, error: PenstockError = away, rows: int = 0, moved: int = 0) -> bool:
        now[0] += seconds
        return copier.gives_up(error, rows, moved) is not None

    assert not after(900)  # the first one
    assert not after(100)
    assert after(100)
    assert not after(100, moved=1)
    assert not after(179, moved=1)
    assert not after(900, rows=1, moved=1)
    assert not after(900, gone, rows=1, moved=1)
    assert not after(900, gone, rows=1, moved=1)
    assert not after(100, rows=1, moved=1)
    now[0] += 100
    error = copier.gives_up(away, 1, 1)
    assert error is not None
    assert error.retry
    assert "no answer: reset" in str(error)


def test_ranges_and_drips_end_in_a_refusal_of_that_object(tmp_path: Path) -> None:
    """Ranged requests answered by another range or by all of the object; bytes that hardly come."""
    modes = {
        "ignored": "rangeignored",
        "other": "wrongrange",
        "cut": "cut*1",
        "drip": "drip",
        "silent": "silent",
    }
    objects = {name: name.encode() * 100_000 for name in [*modes, "fine"]}
    with Hostile(objects, modes=modes) as server:
        url = f"s3://{server.bucket}/"
        run = shard_run(
            tmp_path / "run", url, giant=1, part_bytes=1 << 18, endpoint_url=server.endpoint, anon=True
        )
        outcome = run.copy(engine={"attempts": 2, "timeout": 2.0, "streams": 16})
        asked = {name: server.count(name) for name in objects}
    whys = {failure.path: failure.why for failure in outcome.failures}
    parts = {name: len([entry for entry in run.entries if entry.path == name]) for name in objects}
    assert "ignores ranges" in whys["ignored"]
    assert "another range" in whys["other"]
    assert whys.keys() == {"ignored", "other", "drip", "silent"}
    assert all(asked[name] == 2 * parts[name] for name in ("drip", "silent"))
    assert all(asked[name] == parts[name] for name in ("ignored", "other", "fine"))
    here = read_tree(run.data)
    assert {name: here[name] for name in ("fine", "cut")} == {name: objects[name] for name in ("fine", "cut")}


def test_an_answer_that_makes_no_sense_is_one_objects_trouble(bench: Bench, data: bytes) -> None:
    """Whatever a reader trips over: it is read again, and then named."""
    odd: Any = ValueError("invalid literal for int() with base 10: '²'")
    bench.run(Script(data, fails_at=0, error=odd, times=1))
    assert read_tree(bench.folder) == {"d/x": data}
    with pytest.raises(TransientError, match="makes no sense") as caught:
        bench.run(Script(data, fails_at=0, error=odd))
    assert "x" in caught.value.where
    assert "ValueError" in caught.value.why


def test_a_row_waits_for_renewed_credentials(
    bench: Bench, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More often than it may fail."""
    monkeypatch.setattr(stream, "RENEWAL", 0.0)
    script = Script(data, fails_at=0, error=ExpiredCredentialsError("ran out"), times=20)
    bench.run(script)
    assert read_tree(bench.folder) == {"d/x": data}
    assert bench.told == [EXPIRED] * 20
