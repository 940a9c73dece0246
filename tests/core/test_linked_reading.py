"""When linked files are read back: by rows of the table, and each file at an age of its own."""

from __future__ import annotations

import pytest

from penstock.core.grades import (
    AHEAD,
    Now,
    due_fraction,
    is_overdue,
)
from penstock.engine.linked_rows import Dues

DAY = 86_400
NOW = 1_000 * DAY
LONGEST = 30 * DAY
RIGHT = Now(NOW, NOW)


@pytest.mark.parametrize(
    ("read_at", "now", "share"),
    [
        (0, RIGHT, 1.0),
        (NOW + AHEAD + 1, RIGHT, 1.0),
        (NOW + AHEAD, RIGHT, 0.0),
        (NOW - LONGEST, RIGHT, 1.0),
        (NOW - 100 * DAY, RIGHT, 1.0),
        (NOW, RIGHT, 0.0),
        (NOW - 15 * DAY, RIGHT, 0.0),
        (NOW - 20 * DAY, RIGHT, 1 / 3),
        (NOW - 29 * DAY, RIGHT, 28 / 30),
        # Of two clocks that differ the one counts by which more is read.
        (NOW + 2 * DAY, Now(NOW, NOW + 7 * DAY), 1.0),
        (NOW - 23 * DAY, Now(NOW, NOW + 7 * DAY), 1.0),
        (NOW - 13 * DAY, Now(NOW, NOW + 7 * DAY), 1 / 3),
    ],
)
def test_the_share_that_is_due(read_at: int, now: Now, share: float) -> None:
    assert due_fraction(read_at, now, LONGEST) == pytest.approx(share)
    assert is_overdue(read_at, now, LONGEST) == (share == 1.0)


def test_each_file_falls_due_at_an_age_of_its_own_and_stays_so() -> None:
    paths = [b"a/%d" % number for number in range(4000)]
    before: set[bytes] = set()
    for day in range(31):
        dues = Dues(LONGEST, Now(NOW + day * DAY, NOW + day * DAY))
        due = {path for path in paths if dues.include(path, NOW)}
        assert before <= due
        wanted = max(0, 2 * day / 30 - 1) * len(paths)
        assert abs(len(due) - wanted) < 150
        before = due
    assert len(before) == len(paths)
