"""When the pump asks whether its attempt is still to go on, and what it takes of the limit."""

from __future__ import annotations

import os
from time import monotonic
from typing import TYPE_CHECKING

import pytest
from tests.engine.test_sparse import copier

from penstock.core.errors import FailedError
from penstock.core.model import Entry
from penstock.engine.pump import ASK_EVERY, Pump

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.core.model import SourceChecksum
    from penstock.target.staging_folder import Pending

SIZE = (3 << 20) + 5


class Slow:
    """Zeros, and some time before each read."""

    checksums: Sequence[SourceChecksum] = ()

    def __init__(self, seconds: float) -> None:
        self.left, self.seconds = SIZE, seconds

    def readinto(self, buffer: memoryview) -> int:
        began = monotonic()
        while monotonic() - began < self.seconds and self.left:
            os.sched_yield()
        count = min(len(buffer), self.left)
        self.left -= count
        return count

    def close(self) -> None:
        """Nothing to compare."""

    abandon = close


@pytest.mark.parametrize("seconds", [0.0, ASK_EVERY])
def test_it_is_asked_first_and_then_now_and_then(tmp_path: Path, seconds: float) -> None:
    stream = copier(tmp_path, tmp_path)
    entry = Entry("f", "f", SIZE, "", 0, length=SIZE)
    asked: list[int] = []

    def alive(pending: Pending) -> None:
        asked.append(pending.position)

    for _ in range(2):
        asked.clear()
        pending = stream.writer.begin("f", SIZE)
        began = monotonic()
        Pump(stream, alive).run(entry, Slow(seconds), pending, None, SIZE)
        took = monotonic() - began
        stream.writer.finish(pending, 0)
        assert asked[0] == 0
        assert len(asked) <= 1 + took / ASK_EVERY
        if seconds:
            assert len(asked) == 4
    stream.close()


def test_who_was_overtaken_writes_nothing(tmp_path: Path) -> None:
    stream = copier(tmp_path, tmp_path)

    def alive(pending: Pending) -> None:
        raise FailedError("overtaken", where=pending.path)

    pending = stream.writer.begin("f", SIZE)
    with pytest.raises(FailedError, match="overtaken"):
        Pump(stream, alive).run(Entry("f", "f", SIZE, "", 0, length=SIZE), Slow(0), pending, None, SIZE)
    assert pending.position == 0
    stream.writer.discard(pending)
    stream.close()


def test_each_byte_is_taken_of_the_limit_before_it_is_read(tmp_path: Path) -> None:
    body = Slow(0)
    taken: list[tuple[int, int]] = []

    class Limit:
        def take(self, count: int) -> None:
            taken.append((SIZE - body.left, count))

    stream = copier(tmp_path, tmp_path)
    stream.limiter = Limit()
    pending = stream.writer.begin("f", SIZE)
    Pump(stream, lambda _: None).run(Entry("f", "f", SIZE, "", 0, length=SIZE), body, pending, None, SIZE)
    stream.writer.finish(pending, 0)
    stream.close()
    assert taken == [(0, 1 << 20), (1 << 20, 1 << 20), (2 << 20, 1 << 20), (3 << 20, 5)]
