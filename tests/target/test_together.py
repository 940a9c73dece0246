"""Small files read together: the same bytes and claims as one by one, and whoever is odd read alone."""

from __future__ import annotations

import mmap
import os
import resource
from typing import TYPE_CHECKING

import pytest
from tests.support.forked import forked
from tests.target.conftest import facts_with

from penstock.core.errors import IntegrityError
from penstock.fs import libc
from penstock.fs.capabilities import facts
from penstock.fs.cold_read import ColdReader
from penstock.fs.libc import Reads

if TYPE_CHECKING:
    from pathlib import Path

SIZES = [0, 1, 4095, 4096, 4097, 70_000, 200_000, 300_000, 5000, 1, 0] + [3000 + i for i in range(100)]


@pytest.fixture
def stored(folder: Path) -> Path:
    """Durable files in two folders, all in the page cache, where direct reads are honoured."""
    if not facts(folder).direct:
        pytest.skip("the temporary folder has no direct reads")
    for name in ("a", "b"):
        (folder / name).mkdir()
    for i, size in enumerate(SIZES):
        with (folder / path(i)).open("wb") as file:
            file.write(os.urandom(size))
            file.flush()
            os.fsync(file.fileno())
    return folder


def path(index: int) -> str:
    return f"{'ab'[index % 2]}/{index:04d}"


def ranges() -> list[tuple[str, int, int]]:
    return [(path(i), 0, size) for i, size in enumerate(SIZES)]


def read(reader: ColdReader, wanted: tuple[str, int, int]) -> tuple[str, bytes]:
    got = bytearray()
    seen = reader.read(*wanted, got.extend)
    return seen.method, bytes(got)


def content(folder: Path, wanted: tuple[str, int, int]) -> bytes:
    name, offset, length = wanted
    return (folder / name).read_bytes()[offset : offset + length]


def test_all_bytes_in_order_and_cold(stored: Path) -> None:
    with ColdReader(stored, facts(stored)) as reader:
        reader.expect(ranges())
        found = [read(reader, wanted) for wanted in ranges()]
    assert {how for how, _ in found} == {"direct"}
    assert [data for _, data in found] == [content(stored, wanted) for wanted in ranges()]


def test_they_are_read_by_few_submissions(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    run = Reads.run

    def counting(self: Reads, wanted: list[tuple[int, int, int, int]]) -> list[int]:
        asked.append(len(wanted))
        return run(self, wanted)

    monkeypatch.setattr(Reads, "run", counting)
    small = [wanted for wanted in ranges() if wanted[2] < libc.LARGE]
    with ColdReader(stored, facts(stored)) as reader:
        reader.expect(ranges())
        for wanted in ranges():
            read(reader, wanted)
    assert sum(asked) == len(small)
    assert len(asked) <= 4
    assert max(asked) <= libc.MOST


def test_ranges_that_are_not_aligned(stored: Path) -> None:
    wanted = [
        (path(6), 4095, 2),
        (path(6), 1, 1),
        (path(6), 5, 190_000),
        (path(5), 69_999, 1),
        (path(5), 7, 0),
    ]
    with ColdReader(stored, facts(stored)) as reader:
        reader.expect(wanted)
        assert [read(reader, one)[1] for one in wanted] == [content(stored, one) for one in wanted]


def test_pages_that_stay_are_never_called_cold(stored: Path) -> None:
    held_one = ranges()[4]
    with (stored / held_one[0]).open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as held:
        assert len(bytes(held)) == held_one[2]  # mapped pages cannot be dropped
        with ColdReader(stored, facts(stored)) as reader:
            reader.expect(ranges())
            methods = {wanted: read(reader, wanted)[0] for wanted in ranges()}
    assert methods.pop(held_one) == "cached"
    assert set(methods.values()) == {"direct"}


def test_odd_ones_are_told_and_the_others_read(stored: Path) -> None:
    wanted = ranges()
    (stored / path(20)).unlink()
    (stored / path(22)).unlink()
    (stored / path(22)).symlink_to("0024")
    os.truncate(stored / path(24), 100)
    os.unlink(stored / path(26))
    os.mkfifo(stored / path(26))
    told = {}
    with ColdReader(stored, facts(stored)) as reader:
        reader.expect(wanted)
        for i, one in enumerate(wanted):
            try:
                assert read(reader, one)[1] == content(stored, one)
            except IntegrityError as error:
                told[i] = error.why
    assert sorted(told) == [20, 22, 24, 26]
    assert told[24] == f"it has 100 bytes, not {SIZES[24]}"


def test_another_order_again_and_none(stored: Path) -> None:
    wanted = ranges()
    with ColdReader(stored, facts(stored)) as reader:
        reader.expect(wanted)
        for i in (0, 1, 1, 5, 2, 2, 3, 40, 4):
            assert read(reader, wanted[i])[1] == content(stored, wanted[i])
        reader.expect(wanted[50:60])
        for one in wanted[50:60]:
            assert read(reader, one)[1] == content(stored, one)
        assert read(reader, wanted[60])[1] == content(stored, wanted[60])


def test_where_it_is_refused_each_is_read_by_itself(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libc, "Reads", _refuse)
    with ColdReader(stored, facts(stored)) as reader:
        reader.expect(ranges())
        for wanted in ranges():
            assert read(reader, wanted) == ("direct", content(stored, wanted))


def _refuse(*_: object) -> Reads:
    raise PermissionError(1, "no such calls in this sandbox")


def test_without_direct_reads_nothing_is_expected(stored: Path) -> None:
    with ColdReader(stored, facts_with(stored, direct=False)) as reader:
        reader.expect(ranges())
        for wanted in ranges():
            assert read(reader, wanted)[1] == content(stored, wanted)


def test_few_descriptors(stored: Path) -> None:
    def with_few() -> list[str]:
        # Room for a few above what this process has open already.
        most = max(map(int, os.listdir("/proc/self/fd"))) + 12
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        with ColdReader(stored, facts(stored)) as reader:
            reader.expect(ranges())
            return [read(reader, wanted)[0] for wanted in ranges()]

    assert set(forked(with_few)) == {"direct"}


def test_what_the_kernel_answers(stored: Path) -> None:
    with mmap.mmap(-1, 3 * 4096) as buffer:
        plain = os.open(stored / path(3), os.O_RDONLY | os.O_DIRECT)
        folder = os.open(stored, os.O_RDONLY)
        try:
            with Reads(buffer, 4) as reads:
                good = (plain, 0, 4096, 0)
                assert reads.run([good, (plain, 4096, 4096, 4096)]) == [4096, 0]
                assert buffer[:4096] == (stored / path(3)).read_bytes()
                # The first that is refused ends the submission; those before it are awaited.
                first, refused, left = reads.run([good, (folder, 4096, 4096, 0), good])
                assert (first, refused < 0, left < 0) == (4096, True, True)
        finally:
            os.close(plain)
            os.close(folder)
