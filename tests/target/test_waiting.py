"""Calls that wait are made by many threads, calls that answer at once by none; the answers are the same."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from penstock.fs.tree import (
    GROUP,
    LOOKS,
    THREADS,
    WAITS,
    Calls,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.parametrize("count", [0, 1, LOOKS - 1, LOOKS, LOOKS + 1, 5 * GROUP + 3])
@pytest.mark.parametrize("pause", [0.0, 2 * WAITS])
def test_answers_come_in_order(count: int, pause: float) -> None:
    def do(items: Sequence[int]) -> list[int]:
        if pause:  # of nothing it would still give the CPU away
            time.sleep(pause * len(items))
        return [item * 2 for item in items]

    with Calls() as calls:
        assert calls.each(do, range(count)) == list(range(0, 2 * count, 2))
        assert calls.waits == (pause > 0 and count >= LOOKS)
        assert calls.each(do, range(count)) == list(range(0, 2 * count, 2))


def test_calls_that_answer_at_once_stay_in_this_thread() -> None:
    seen = set()

    def do(items: Sequence[int]) -> list[int]:
        seen.add(threading.current_thread())
        return list(items)

    with Calls() as calls:
        calls.each(do, range(10_000))
    assert seen == {threading.current_thread()}


def test_calls_that_wait_are_made_at_the_same_time() -> None:
    together = threading.Barrier(THREADS)

    def do(items: Sequence[int]) -> list[int]:
        if len(items) > 1:
            together.wait(30)
        else:
            time.sleep(2 * WAITS)
        return list(items)

    with Calls() as calls:
        assert calls.each(do, range(LOOKS + THREADS * GROUP)) == list(range(LOOKS + THREADS * GROUP))


@pytest.mark.parametrize("wrong", [0, LOOKS, LOOKS + 3 * GROUP])
@pytest.mark.parametrize("waits", [False, True])
def test_what_a_call_raises_is_raised(wrong: int, waits: bool) -> None:
    def do(items: Sequence[int]) -> list[int]:
        if wrong in items:
            raise PermissionError(wrong)
        return list(items)

    with Calls() as calls:
        calls.waits = waits
        with pytest.raises(PermissionError):
            calls.each(do, range(10 * GROUP))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("calls")]
