"""Reading back beside the copy: never faster than the copy, and not while it makes the copy slower."""

from __future__ import annotations

import pytest

from penstock.jobs import reading_beside
from penstock.jobs.reading_beside import (
    AGAIN,
    QUIET,
    REST,
    SLACK,
    TRIED,
    ReadingPace,
)

MIB = 1 << 20
TICK = 0.1


class Worker:
    """A clock, a copy of `alone` bytes a second and of `beside` while something is read at `reads`."""

    def __init__(self, alone: float, beside: float, reads: float) -> None:
        self.now, self.copied, self.read = 0.0, 0.0, 0.0
        self.alone, self.beside, self.reads = alone, beside, reads
        self.copies = True
        self.pace = ReadingPace(lambda: int(self.copied) if self.copies else None, lambda: self.now)
        self.rested: list[bool] = []

    def works(self, seconds: float) -> float:
        """Go on for so long; returns the bytes that were read."""
        before = self.read
        for _ in range(round(seconds / TICK)):
            rests = self.pace.rests(int(self.read))
            self.rested.append(rests)
            self.now += TICK
            self.copied += (self.alone if rests else self.beside) * TICK if self.copies else 0
            self.read += 0 if rests else self.reads * TICK
        return self.read - before


def test_it_reads_beside_a_copy_that_keeps_its_rate() -> None:
    worker = Worker(100 * MIB, 98 * MIB, 80 * MIB)
    assert worker.works(QUIET) == 0, "the copy is measured alone first"
    assert worker.works(50) >= 0.95 * 50 * 80 * MIB


def test_it_measures_the_copy_alone_now_and_then() -> None:
    worker = Worker(100 * MIB, 98 * MIB, 80 * MIB)
    worker.works(4 * AGAIN)
    quiet = sum(worker.rested) * TICK
    assert 3 * QUIET - 1 <= quiet <= 4 * QUIET + 2


@pytest.mark.parametrize("times", [0.94, 0.5, 0.0])
def test_it_rests_where_the_copy_gets_slower(times: float) -> None:
    worker = Worker(100 * MIB, times * 100 * MIB, 60 * MIB)
    worker.works(600)
    read = (len(worker.rested) - sum(worker.rested)) * TICK
    tries = 1 if times < reading_beside.MUCH else 2
    assert read <= 6 * (tries * TRIED + 1), "rests get longer"


def test_its_rests_get_longer_and_short_again_once_the_copy_keeps_its_rate() -> None:
    worker = Worker(100 * MIB, 50 * MIB, 40 * MIB)
    worker.works(QUIET + TRIED + REST + 1)
    worker.works(TRIED + 2 * REST)
    worker.beside = worker.alone
    worker.works(4 * REST + AGAIN + TRIED)
    before = len(worker.rested)
    worker.works(60)
    assert sum(worker.rested[before:]) * TICK <= 2 * QUIET + 1


def test_a_rate_that_varies_is_not_slower() -> None:
    """One moment in two of the copy alone is 8 % slower, so are those beside a reading."""
    worker = Worker(100 * MIB, 100 * MIB, 60 * MIB)
    rested = 0
    for turn in range(60):
        worker.alone = worker.beside = (100 - 8 * (turn % 2)) * MIB
        worker.works(10)
    rested = sum(worker.rested) * TICK
    assert rested <= 0.5 * 600, rested


def test_it_reads_no_faster_than_is_copied() -> None:
    worker = Worker(100 * MIB, 100 * MIB, 5000 * MIB)
    worker.works(QUIET)
    read = worker.works(40)
    assert read <= 40 * (100 * MIB + SLACK) + 1000 * MIB


def test_where_nothing_is_copied_it_never_rests() -> None:
    worker = Worker(0, 0, 5000 * MIB)
    worker.copies = False
    assert worker.works(20) == pytest.approx(20 * 5000 * MIB)


def test_a_further_shard_begins_at_nothing() -> None:
    """Bytes of the shard before are not read again."""
    worker = Worker(100 * MIB, 100 * MIB, 80 * MIB)
    worker.works(QUIET + 20)
    worker.read = 0
    assert worker.works(9) >= 0.9 * 9 * 80 * MIB


def test_the_figures_fit() -> None:
    assert reading_beside.REST < reading_beside.LONGEST_REST
    assert QUIET < TRIED < AGAIN
