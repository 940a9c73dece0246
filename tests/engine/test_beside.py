"""Slow sums in their own thread: every block in order, none changed under it, errors not lost."""

from __future__ import annotations

import hashlib
import os
import threading
from typing import TYPE_CHECKING

import pytest
import xxhash
from tests.engine.test_sparse import copier, entry_of

from penstock.core.errors import IntegrityError, SourceChangedError
from penstock.engine.pump import Beside

if TYPE_CHECKING:
    from pathlib import Path


def test_no_buffer_is_filled_while_it_is_worked_on() -> None:
    """Two buffers in turn, a sum that dawdles until the next one was given."""
    seen: list[bytes] = []
    go = threading.Semaphore(0)

    def update(block: memoryview) -> None:
        assert go.acquire(timeout=60)
        seen.append(bytes(block))

    buffers = [memoryview(bytearray(8)), memoryview(bytearray(8))]
    beside = Beside(update, 2)
    for number in range(50):
        if number >= 2:
            go.release()
        beside.room()
        buffers[number % 2][:] = number.to_bytes(8, "big")
        beside.give(buffers[number % 2])
    go.release(2)
    beside.end()
    assert seen == [number.to_bytes(8, "big") for number in range(50)]


def test_what_the_sum_raises_is_raised_again() -> None:
    def update(block: memoryview) -> None:
        raise ValueError(bytes(block))

    beside = Beside(update, 2)
    beside.give(memoryview(b"x"))
    with pytest.raises(ValueError, match="x"):
        beside.end()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sums")]


@pytest.mark.parametrize("size", [(1 << 20) + 1, 4 << 20, (7 << 20) + 12345])
def test_a_large_body_with_an_md5(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    for name in ("source", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "source/f").write_bytes(content)
    entry = entry_of(tmp_path / "source", "f")
    stated = f"md5:full:{hashlib.md5(content, usedforsecurity=False).hexdigest()}"
    stream = copier(tmp_path / "source", tmp_path / "data")
    line = stream.do(0, entry._replace(checksum=stated))
    assert stated in line
    assert xxhash.xxh3_128_hexdigest(content) in line
    assert (tmp_path / "data/f").read_bytes() == content
    (tmp_path / "data/f").unlink()
    with pytest.raises(IntegrityError, match="contradict the source's own md5"):
        stream.do(0, entry._replace(checksum="md5:full:" + "0" * 32))
    os.truncate(tmp_path / "source/f", size - 1)
    with pytest.raises(SourceChangedError):
        stream.do(0, entry._replace(checksum=stated))
    stream.close()
    assert os.listdir(tmp_path / "data") == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sums")]
