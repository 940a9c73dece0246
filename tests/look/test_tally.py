from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.core.element_documents import ElementReceipt
from penstock.core.run_steps import Ended, Progressed, Started
from penstock.dataset import receipts
from penstock.dataset.receipts import DoneBefore
from penstock.look.views import html_report, run_summary
from penstock.look.views.line_view import Tally, finished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.look.views.keys import TimedAmount


def test_a_step_that_counts_files_alone_has_its_share() -> None:
    """U9: publish's bar stayed at 0 %."""
    tally = Tally()
    tally.take(Started("d", "publish", 4, 1 << 30), 0.0)
    task = tally.take(Progressed("d", "publish", 3), 1.0)
    assert task.fraction() == 0.75
    assert task.amount() == "3 of 4 files"
    tally.take(Started("d", "copy", 4, 1 << 30), 0.0)
    copied = tally.take(Progressed("d", "copy", 1), 1.0)
    assert copied.fraction() == 0.0


def test_what_an_earlier_command_moved_is_no_speed_of_this_one() -> None:
    """5.53 MiB/s beside a chart at 512 KiB/s."""
    elements = [
        ElementReceipt(bytes=700, done_bytes=700, started=100.0, ended=900.0),  # by the command before
        ElementReceipt(bytes=500, done_bytes=200, started=955.0, ended=990.0),  # resumed by this one
        ElementReceipt(bytes=300, done_bytes=300, linked_bytes=100, started=955.0, ended=999.0),
        # It ran on when its controller was killed: 450 bytes were there when this one began.
        ElementReceipt(
            bytes=600, done_bytes=550, started=800.0, ended=999.0, samples=((0.0, 0, 0), (140.0, 1, 450))
        ),
    ]
    assert receipts.moved(elements, 950.0) == 200 + 200 + 150
    assert receipts.moved(elements) == 700 + 200 + 200 + 550


def test_what_killed_attempts_of_this_command_moved_counts() -> None:
    """42 KiB/s of a copy at 134: of a shard of which 100 bytes were done before, the last attempt did 200."""
    killed = ElementReceipt(index=1, bytes=500, done_bytes=200, started=980.0, ended=990.0)
    whole = ElementReceipt(index=2, bytes=300, done_bytes=300, started=955.0, ended=990.0)
    assert receipts.moved([killed, whole], 950.0) == 200 + 300
    before, claims = {1: DoneBefore(100, claims=1), 2: DoneBefore(0, claims=0)}, {1: 3, 2: 1}
    assert receipts.moved([killed, whole], 950.0, before, claims) == 400 + 300
    # A shard that is copied again after it was done: what its attempt did.
    assert receipts.moved([killed], 950.0, {1: DoneBefore(500, claims=1)}, claims) == 200
    # One attempt since: what it found done is exact, and the progress file of a killed one is behind it.
    assert receipts.moved([killed], 950.0, {1: DoneBefore(100, claims=2)}, claims) == 200


def test_a_rate_is_of_what_this_command_moved_in_its_time() -> None:
    def line(**result: float) -> str:
        tally = Tally()
        tally.take(Started("d", "copy", 100, 80 << 20), 0.0)
        return finished(tally.take(Ended("d", "copy", {"files": 100, "bytes": 80 << 20, **result}), 20.0))

    done = "done: 100 files, 80.0 MiB"
    assert line(seconds=10.0) == f"{done} in 10 s (8.00 MiB/s)"
    assert line(seconds=10.0, moved_bytes=80 << 20, moved_seconds=10.0) == f"{done} in 10 s (8.00 MiB/s)"
    now = line(seconds=30.0, moved_bytes=48 << 20, moved_seconds=6.0)
    assert now == f"{done}, of them 48.0 MiB now in 6.0 s (8.00 MiB/s)"
    assert line(seconds=30.0, moved_bytes=0, moved_seconds=0.5) == f"{done} in 0.50 s"
    copied: TimedAmount = {"bytes": 80 << 20, "seconds": 36.0, "moved_bytes": 48 << 20, "moved_seconds": 6.0}
    assert run_summary.rate(copied) == "8.00 MiB/s"
    assert run_summary.amount({"files": 100, **copied}) == (
        "100 files, 80.0 MiB, of them 48.0 MiB by the last command in 6.0 s"
    )
    assert ("8.00 MiB/s", "copied") in html_report._figures({"copied": copied})
    assert "8.00 MiB/s (48.0 MiB)" in run_summary.render(
        {"dataset": "d", "copied": copied, "bytes_in": 48 << 20}
    )
    element = {"bytes": 80 << 20, "moved_bytes": 48 << 20, "started": 0.0, "ended": 6.0}
    assert ", 80.0 MiB, of them 48.0 MiB by this attempt, 8.00 MiB/s" in html_report._about(element)  # type: ignore[arg-type]


def test_the_time_of_a_resumed_run_says_so() -> None:
    """U9: 53 s for 2 min 46 s."""
    told = run_summary.render({"dataset": "d", "status": "PASSED", "seconds": 53.0, "resumed": {"files": 2}})
    assert "Steps took    53 s since the run was resumed\n" in told
    assert "Steps took    53 s\n" in run_summary.render({"dataset": "d", "status": "PASSED", "seconds": 53.0})


@pytest.mark.parametrize(
    ("copied", "read", "left"),
    [
        (400, [None] * 41, 60),  # another step, or one of an older version
        (400, [0] * 41, 60 + 100),  # the first byte is still to come: all at the copy's rate
        (400, [600] * 41, 60 + 40),  # what an earlier command read is no rate
        (400, range(0, 205, 5), 160),  # 800 bytes at 5 a second outlast the copy
        (400, range(0, 410, 10), 60),
        (400, [0] * 20 + [*range(0, 210, 10)], 80),  # the mean since the first byte
        (1000, range(0, 410, 10), 60),  # only reading is left
        (1000, [1000] * 41, None),
    ],
)
def test_one_remaining_time_is_of_what_is_copied_and_what_is_read_back(
    copied: int, read: Sequence[int | None], left: float | None
) -> None:
    """1000 bytes in 100 files, 400 of them copied in 40 s."""
    tally = Tally()
    tally.take(Started("d", "copy", 100, 1000), 0.0)
    for at, size in enumerate(read):
        task = tally.take(Progressed("d", "copy", at, 10 * at, read_back_bytes=size), float(at))
    task = tally.take(Progressed("d", "copy", copied // 10, copied, read_back_bytes=read[-1]), 40.0)
    assert task.seconds_left(40.0) == left


def test_the_time_left_stays_while_all_elements_read_back() -> None:
    tally = Tally()
    tally.take(Started("d", "copy", 100, 1000), 0.0)
    for at in range(201):
        copied, read = min(at, 100), max(0, at - 100)
        task = tally.take(Progressed("d", "copy", copied // 10, copied, read_back_bytes=read), float(at))
    assert task.seconds_left(200.0) == 900, "nothing was copied for longer than a rate is of"
