from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import until

from penstock.core.errors import FailedError
from penstock.dataset.holder import this_process
from penstock.jobs import shares
from penstock.jobs.share_rule import PARTS, Post, parse
from penstock.jobs.shares import Hold, claimed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("left", "works", "used", "claims"),
    [
        (PARTS, False, None, PARTS),
        (PARTS, True, 0.1, PARTS),
        (900, False, None, 600),
        (499, False, None, 1),
        (500, True, None, 600),
        (500, True, 0.49, 250),
        (500, True, 0.5, 600),
        (500, True, 0.89, 600),
        (500, True, 0.9, PARTS),
    ],
)
def test_s25_the_table_of_what_a_holder_claims(
    left: int, works: bool, used: float | None, claims: int
) -> None:
    assert claimed(600, 0.5, used, left=left, works=works) == claims


def test_s25_what_is_halved_again_and_again_is_never_nothing() -> None:
    assert claimed(1, 0.0, 0.0, left=500, works=True) == 1


def _hold(tmp_path: Path, rate: float, **more: object) -> Hold:
    return Hold(tmp_path, "0a1b2c3d", this_process("run", "copy data"), rate=lambda: rate, **more)  # type: ignore[arg-type]


def test_s25_without_a_cap_of_bytes_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by what a process can use, nor by what was used: bytes say nothing of requests."""
    now = 100.0
    monkeypatch.setattr(shares, "clock", lambda: now)
    hold = _hold(tmp_path, math.inf, per_process=1000.0, processes=2)
    assert hold._wanted() == Post(PARTS, 2)
    for number in range(20):
        now += 31.0
        hold.uses(2, number)
    assert hold._wanted() == Post(PARTS, 2)


def test_s25_a_folder_that_takes_no_file_ends_the_wait_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(shares, "clock", lambda: now)
    hold = _hold(tmp_path, 1e6)
    hold.now = lambda: 0.0  # type: ignore[method-assign]
    hold.member.trouble = "holder.x: No space left on device"

    def wait(_: float) -> None:
        nonlocal now
        now += 10.0

    with pytest.raises(FailedError, match=r"cannot be used.*No space left on device"):
        hold.begin(4, wait)
    assert now < 300


def test_s25_a_controller_that_begins_again_keeps_what_was_posted_for_more(tmp_path: Path) -> None:
    """Elements of an earlier controller that still live never use the part of fewer."""
    before = _hold(tmp_path, 1e6)
    with before:
        before.begin(8, time.sleep, first=True)
    again = _hold(tmp_path, 1e6, processes=1, lowers=False)
    with again:
        again.begin(4, time.sleep)
        posted = {post.processes for _, post in parse(os.listdir(tmp_path)).holders.values()}
        assert max(posted) == 8
        again.begin(1, time.sleep, first=True)
        until(
            lambda: {post.processes for _, post in parse(os.listdir(tmp_path)).holders.values()} == {1},
            "the post of one process",
        )
