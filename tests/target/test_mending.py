"""Bytes copied between two files by the file system, or by this process where it cannot."""

from __future__ import annotations

import mmap
import os
import random
import tempfile
from typing import TYPE_CHECKING

import pytest
from tests.filesystems.bed import Bed

from penstock.target.file_replacement import Mender, copy_range
from penstock.target.staging_folder import Pending

if TYPE_CHECKING:
    from pathlib import Path

DATA = random.Random(5).randbytes(3_000_001)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["one file system", "two"])
def test_exactly_the_range_is_copied(tmp_path: Path, elsewhere: bool) -> None:
    with tempfile.TemporaryFile(dir="/dev/shm" if elsewhere else tmp_path) as old:
        old.write(DATA)
        old.flush()
        with (tmp_path / "new").open("w+b") as new:
            os.ftruncate(new.fileno(), len(DATA))
            assert copy_range(old.fileno(), new.fileno(), 1_000_000, 1_500_001)
            assert copy_range(old.fileno(), new.fileno(), len(DATA) - 1, 1)
            assert copy_range(old.fileno(), new.fileno(), 5, 0)
            got = new.read()
    wanted = bytearray(len(DATA))
    wanted[1_000_000:2_500_001] = DATA[1_000_000:2_500_001]
    wanted[-1:] = DATA[-1:]
    assert got == wanted


def test_a_file_that_ends_before_or_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(DATA[:1000])
    with (tmp_path / "old").open("rb") as old, (tmp_path / "new").open("wb") as new:
        assert not copy_range(old.fileno(), new.fileno(), 500, 501)
    with (tmp_path / "old").open("ab") as old, (tmp_path / "new").open("wb") as new:
        assert not copy_range(old.fileno(), new.fileno(), 0, 10)


def test_a_file_that_another_reads_directly_is_copied_in_whole_blocks(tmp_path: Path) -> None:
    """BeeGFS refuses reads that are not aligned while a process of the node has the file open by O_DIRECT: by
    repair's `copy_range`, and by what copies a file of a release into a new one."""
    with Bed(shared_handles=True) as bed:
        path = bed.nodes[0] / "file"
        path.write_bytes(DATA)
        direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            with mmap.mmap(-1, 12_288) as page:
                os.preadv(direct, [page], 0)
            with path.open("rb") as old, (tmp_path / "new").open("w+b") as new:
                with pytest.raises(OSError, match="Remote I/O error"):
                    path.read_bytes()
                os.ftruncate(new.fileno(), len(DATA))
                assert copy_range(old.fileno(), new.fileno(), 1_000_001, 1_500_003)
                assert os.pread(new.fileno(), 1_500_003, 1_000_001) == DATA[1_000_001:2_500_004]
                pending = Pending(new.fileno(), "file", "", "file", "", len(DATA), False, 0)
                pending.copy(old.fileno(), memoryview(bytearray(1_000_001)), lambda: None)
                assert (tmp_path / "new").read_bytes() == DATA
        finally:
            os.close(direct)


def test_a_hole_stays_one(tmp_path: Path) -> None:
    size = 8 << 20
    with (tmp_path / "old").open("w+b") as old, (tmp_path / "new").open("w+b") as new:
        for stream in (old, new):
            os.ftruncate(stream.fileno(), size)
        for place in (3 << 20, 6 << 20):
            os.pwrite(old.fileno(), DATA[:4096], place)
        for start in range(0, size, 1 << 20):
            assert copy_range(old.fileno(), new.fileno(), start, 1 << 20)
    assert (tmp_path / "old").read_bytes() == (tmp_path / "new").read_bytes()
    assert (tmp_path / "new").stat().st_blocks <= (tmp_path / "old").stat().st_blocks < 100


@pytest.mark.parametrize(("mode", "mtime", "same"), [(0o440, 5, True), (0o400, 5, False), (0o440, 6, False)])
def test_a_mended_file_is_shared_only_with_what_looks_alike(
    tmp_path: Path, mode: int, mtime: int, same: bool
) -> None:
    """Another mode or time: a file of its own, and the first one keeps its mode and time."""
    new, second = tmp_path / "new", tmp_path / "second"
    new.write_bytes(DATA)
    for release in (tmp_path / "first", second):
        release.mkdir()
        (release / "a").write_bytes(b"damaged")
    with Mender(tmp_path / "first", file_mode=0o440, dir_mode=0o550, gid=None) as first:
        first.dress("a", 5, new)
        with Mender(second, file_mode=mode, dir_mode=0o550, gid=None) as other:
            other.link_or_copy("a", mtime, new)
        first.replace("a", 5, new)
    seen, theirs = (tmp_path / "first/a").stat(), (second / "a").stat()
    assert (seen.st_mode & 0o7777, seen.st_mtime_ns) == (0o440, 5)
    assert (theirs.st_mode & 0o7777, theirs.st_mtime_ns) == (mode, mtime)
    assert (tmp_path / "first/a").read_bytes() == (second / "a").read_bytes() == DATA
    assert (seen.st_ino == theirs.st_ino) == same
    assert os.listdir(second) == ["a"]


def test_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(DATA)
    with (tmp_path / "old").open("rb") as old, open("/dev/full", "wb") as new, pytest.raises(OSError):
        copy_range(old.fileno(), new.fileno(), 0, 10)
