"""What the methods of a cold read claim, and when they claim less."""

from __future__ import annotations

import mmap
import os
import stat
from typing import TYPE_CHECKING

import pytest
from tests.support.forked import NOBODY, forked
from tests.target.conftest import facts_with, need_cold_reads, need_root

from penstock.core.errors import IntegrityError
from penstock.fs import cold_read
from penstock.fs.capabilities import facts
from penstock.fs.cold_read import ColdReader

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 300_001


@pytest.fixture
def stored(folder: Path) -> Path:
    """A durable file of SIZE bytes, all of it in the page cache, on a file system that can drop it."""
    need_cold_reads(folder)
    with (folder / "f").open("wb") as file:
        file.write(os.urandom(SIZE))
        file.flush()
        os.fsync(file.fileno())
    (folder / "f").chmod(0o444)
    return folder


def method(folder: Path, *, direct: bool) -> str:
    got = bytearray()
    with ColdReader(folder, facts_with(folder, direct=direct)) as reader:
        seen = reader.read("f", 0, SIZE, got.extend)
    assert bytes(got) == (folder / "f").read_bytes()
    assert stat.S_ISREG(seen.stat.st_mode)
    return seen.method


@pytest.mark.parametrize("cachestat", [True, False])
@pytest.mark.parametrize("direct", [True, False])
def test_what_can_be_dropped_is_read_cold(
    stored: Path, direct: bool, cachestat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_read, "_cachestat_works", cachestat)
    for _ in range(2):  # the comparison with the file's content has cached it again
        expected = ("direct",) if direct and facts(stored).direct else ("dropped", "direct")
        assert method(stored, direct=direct) in expected


@pytest.mark.parametrize("cachestat", [True, False])
@pytest.mark.parametrize("direct", [True, False])
def test_pages_that_stay_are_never_called_cold(
    stored: Path, direct: bool, cachestat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_read, "_cachestat_works", cachestat)
    with (stored / "f").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as held:
        assert len(bytes(held)) == SIZE  # mapped pages cannot be dropped
        assert method(stored, direct=direct) == "cached"


def test_whom_the_kernel_does_not_tell(stored: Path) -> None:
    need_root()
    # Neither owner nor writer: mincore says that all pages are there, and cachestat may refuse.
    cold_reads = {"direct", "dropped", "cached"}
    assert forked(lambda: method(stored, direct=True), uid=NOBODY) in cold_reads

    def by_mincore() -> str:
        cold_read._cachestat_works = False
        return method(stored, direct=True)

    assert forked(by_mincore, uid=NOBODY) == "cached"


def test_ranges_that_are_not_aligned(stored: Path) -> None:
    content = (stored / "f").read_bytes()
    for known in (facts(stored), facts_with(stored, direct=False)):
        with ColdReader(stored, known) as reader:
            for offset, length in ((0, 0), (1, 1), (4095, 2), (4096, 4096), (5, SIZE - 5), (SIZE, 0)):
                got = bytearray()
                reader.read("f", offset, length, got.extend)
                assert bytes(got) == content[offset : offset + length]


@pytest.mark.parametrize("direct", [True, False])
def test_one_part_alone_is_read_cold_wherever_it_begins(stored: Path, direct: bool) -> None:
    """The kernel keeps what was written at once in large folios, and drops none of which the range covers
    only a part: a part read before its neighbours passed for cached (D9)."""
    with ColdReader(stored, facts_with(stored, direct=direct)) as reader:
        seen = reader.read("f", 100_000, 20_000, lambda _: None)
    assert seen.method in ("direct", "dropped")


def test_what_stands_in_a_files_place(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "dir").mkdir()
    (folder / "real").mkdir()
    (folder / "real/f").write_text("x")
    (folder / "link").symlink_to("real/f")
    (folder / "linked").symlink_to("real")
    with ColdReader(folder, facts(folder)) as reader:
        for path in ("pipe", "dir", "link", "linked/f", "none", "none/f", "real/f/x"):
            with pytest.raises(IntegrityError, match="not as it was written"):
                reader.read(path, 0, 0, lambda _: None)
        assert reader.read("real/f", 0, 1, lambda _: None).stat.st_size == 1
