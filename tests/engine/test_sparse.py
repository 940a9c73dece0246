"""Files with holes: the same bytes and digest as without, and the holes stay, whatever the source says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contracts.storage_contract import make_writer
from tests.support.engine_runs import shard_run

from penstock.config.settings import DatasetConfig, SourceConfig
from penstock.core.errors import SourceChangedError
from penstock.core.model import Entry
from penstock.engine import journal
from penstock.engine.copier import Copier
from penstock.engine.pump import PIECE, Pump
from penstock.engine.stream import Sources
from penstock.sources.posix import PosixSource
from penstock.sources.posix_reader import PosixBody, SparseBody

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.target.staging_writer import StagingWriter

MIB = 1 << 20


@pytest.fixture(params=["/dev/shm", "disk"])
def place(request: pytest.FixtureRequest) -> Iterator[Path]:
    base = tempfile.gettempdir() if request.param == "disk" else request.param
    with tempfile.TemporaryDirectory(prefix="penstock-test-", dir=base) as folder:
        yield Path(folder)


def make(path: Path, size: int, data: dict[int, bytes]) -> bytes:
    """A file of holes but for some data; its bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = bytearray(size)
    with path.open("wb") as file:
        file.truncate(size)
        for at, piece in data.items():
            file.seek(at)
            file.write(piece[: max(0, size - at)])
            content[at : at + len(piece)] = piece[: max(0, size - at)]
        file.flush()
        os.fsync(file.fileno())
    return bytes(content)


def room(path: Path) -> int:
    return path.stat().st_blocks * 512


def copier(source: Path, data: Path, writer: StagingWriter | None = None) -> Copier:
    dataset = DatasetConfig("set", (SourceConfig(str(source)),))
    return Copier(
        sources=Sources(dataset, [None]),
        writer=writer or make_writer(data),
        base=None,
        slot=0,
        counters=[0],
        stopping=Event(),
        attempts=1,
        limiter=None,
        tell=lambda _: None,
    )


def entry_of(source: Path, name: str) -> Entry:
    listed = next(o for batch in PosixSource(str(source)).list() for o in batch if o.key == name)
    return Entry(name, name, listed.size, listed.token, listed.modified_ns, length=listed.size)


@given(
    size=st.integers(MIB + 1, 6 * MIB),
    data=st.dictionaries(
        st.one_of(st.integers(0, 6 * MIB), st.integers(0, 6 * 256).map(lambda n: n * 4096)),
        st.integers(1, 300_000),
        max_size=6,
    ),
    parts=st.sampled_from([0, 700_001, 2 * MIB]),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_holes(place: Path, size: int, data: dict[int, int], parts: int) -> None:
    for old in ("source", "data"):
        shutil.rmtree(place / old, ignore_errors=True)
    (place / "data").mkdir()
    content = make(place / "source/f", size, {at: os.urandom(length) for at, length in data.items()})
    entry = entry_of(place / "source", "f")
    rows = [entry]
    if parts:
        rows = [
            entry._replace(part=n, offset=at, length=min(parts, size - at))
            for n, at in enumerate(range(0, size, parts))
        ]
    stream = copier(place / "source", place / "data")
    for number, row in enumerate(rows):
        digest = xxhash.xxh3_128_hexdigest(content[row.offset : row.offset + row.length])
        assert digest in stream.do(number, row)
    assert stream.counters[0] == size
    stream.close()
    assert (place / "data/f").read_bytes() == content
    # A page more at each end of a part that cuts through one.
    assert room(place / "data/f") <= room(place / "source/f") + len(rows) * 8192
    assert (place / "data/f").stat().st_mtime_ns == entry.modified_ns


def test_the_whole_way_by_workers(place: Path) -> None:
    contents = {
        "hole": make(place / "source/hole", 9 * MIB + 7, {}),
        "ends": make(place / "source/ends", 5 * MIB, {0: b"first", 5 * MIB - 4: b"last"}),
        "giant": make(place / "source/giant", 40 * MIB + 1, {21 * MIB: os.urandom(MIB)}),
        "small": make(place / "source/small", 70_000, {60_000: b"x"}),
        "dense": make(place / "source/dense", 3 * MIB, {0: os.urandom(3 * MIB)}),
    }
    run = shard_run(place / "run", place / "source", giant=30 * MIB, part_bytes=8 * MIB)
    assert run.copy().failures == []
    assert run.reread().failures == []
    copied = journal.replay(run.journals, run.shard.digest)
    for number, entry in enumerate(run.entries):
        piece = contents[entry.path][entry.offset : entry.offset + entry.length]
        assert copied[number].digest == "xxh3_128:" + xxhash.xxh3_128_hexdigest(piece)
    for name, content in contents.items():
        assert (run.data / name).read_bytes() == content
    assert room(run.data / "hole") == 0
    assert room(run.data / "ends") <= 16384
    assert room(run.data / "giant") <= 2 * MIB


def test_what_lay_in_a_giants_hole_is_gone(place: Path) -> None:
    content = make(place / "source/g", 6 * MIB, {5 * MIB: b"end"})
    (place / "data").mkdir()
    (place / "data/g").write_bytes(b"x" * (6 * MIB))
    stream = copier(place / "source", place / "data")
    stream.do(0, entry_of(place / "source", "g")._replace(part=0))
    stream.close()
    assert (place / "data/g").read_bytes() == content
    assert room(place / "data/g") < MIB


class Liar(SparseBody):
    """A file whose file system states holes where data is, and does not stand for it."""

    __slots__ = ()

    def __init__(self, content: bytes) -> None:
        fd = os.memfd_create("dense")
        os.write(fd, content)
        super().__init__(fd, "f", os.fstat(fd), 0, len(content))
        self.certain = False

    def gap(self) -> int:
        return self._left

    def skip(self, count: int) -> None:
        raise AssertionError(f"{count} bytes were passed over unread")

    def readinto(self, buffer: memoryview) -> int:
        return PosixBody.readinto(self, buffer)


def test_a_hole_that_is_none_is_read(place: Path) -> None:
    """As a file system may state that has not yet written back (a bug of ZFS before 2.2.2)."""
    content = b"x" * 10 + bytes(4 * PIECE) + os.urandom(12 * PIECE) + bytes(2 * PIECE)
    body = Liar(content)
    (place / "data").mkdir()
    stream = copier(place, place / "data")
    entry = Entry("f", "f", len(content), "", 0, length=len(content))
    pending = stream.writer.begin("f", len(content), holes=True)
    digest = Pump(stream, stream.writer.alive).run(entry, body, pending, None, len(content))
    stream.writer.finish(pending, 0)
    stream.close()
    body.close()
    assert digest == xxhash.xxh3_128_hexdigest(content)
    assert (place / "data/f").read_bytes() == content
    assert room(place / "data/f") <= 15 * PIECE


def test_a_file_that_is_cut_meanwhile_is_refused(place: Path) -> None:
    """Its lost end would look like a hole."""
    make(place / "source/f", 4 * MIB, {0: b"x"})
    entry = entry_of(place / "source", "f")
    body = PosixSource(str(place / "source")).reader().open(entry, 0, entry.size)
    assert isinstance(body, SparseBody)
    os.truncate(place / "source/f", MIB)
    buffer = memoryview(bytearray(MIB))
    while (gap := body.gap()) or body.readinto(buffer):
        body.skip(gap)
    with pytest.raises(SourceChangedError, match="changed since it was listed"):
        body.close()


_SCRIPT = """
import sys
from pathlib import Path
from tests.engine.test_sparse import copier, entry_of
source, data = map(Path, sys.argv[1:])
stream = copier(source, data)
print(stream.do(0, entry_of(source, "f")))
stream.close()
"""


@pytest.mark.parametrize("lies", ["error=EINVAL", "retval=0"])
def test_a_file_system_that_cannot_tell(tmp_path: Path, lies: str) -> None:
    """No SEEK_DATA, or answers that make no sense: everything is data."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    content = make(tmp_path / "source/f", 3 * MIB, {MIB: b"data"})
    (tmp_path / "data").mkdir()
    done = subprocess.run(
        [strace, "-f", "-qq", "-o", "/dev/null", "-P", str(tmp_path / "source/f"), "-e", "trace=lseek",
         "-e", f"inject=lseek:{lies}", sys.executable, "-c", _SCRIPT, tmp_path / "source", tmp_path / "data"],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert xxhash.xxh3_128_hexdigest(content) in done.stdout
    assert (tmp_path / "data/f").read_bytes() == content
