from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import until

from penstock.config.settings import BandwidthConfig
from penstock.core.errors import FailedError, PreflightError
from penstock.dataset.holder import this_process
from penstock.host.pacing import SharedMemory
from penstock.jobs import bandwidth, share_rule
from penstock.jobs import shares as shares_share
from penstock.jobs.bandwidth import LinkShare, prepared, reading, render
from penstock.jobs.shares import Hold

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("PAUSE", 0.02), ("QUICK", 0.02), ("BEAT", 0.2), ("VALID", 0.5), ("LIVES", 0.7)):
        monkeypatch.setattr(share_rule, name, seconds)
    monkeypatch.setattr(shares_share, "READ", 0.02)


@contextlib.contextmanager
def held(folder: Path, rate: int | None = 6000) -> Iterator[LinkShare]:
    link = BandwidthConfig(folder, rate)
    with reading(link, "", "copy data, an element", "r1", lambda _: None, time.sleep) as one:
        assert one is not None
        yield one


def test_z1_elements_share_the_cap_and_give_it_back(tmp_path: Path) -> None:
    with held(tmp_path) as one:
        until(lambda: one().rate == 6000, "the whole cap")
        with held(tmp_path) as other:
            until(lambda: one().rate == other().rate == 3000, "two halves")
        until(lambda: one().rate == 6000, "the whole cap again")
    assert os.listdir(tmp_path / "holders") == []


def test_z1_workers_follow_while_the_engine_stands_in_a_call(tmp_path: Path) -> None:
    """The main loop of the first element asks for nothing: its workers hear of a lower rate all the same,
    before others have what it gave back."""
    memory, sums = SharedMemory(), []
    with held(tmp_path) as one:
        until(lambda: one().rate == 6000, "the whole cap")
        one.hand_to(lambda now: setattr(memory, "allowance", now[:3]))
        with held(tmp_path) as other:
            other.hand_to(lambda now: sums.append(now.rate + memory.allowance[0]))
            until(lambda: other().rate == 3000 == memory.allowance[0], "two halves")
            other.hand_to(None)
        until(lambda: memory.allowance[0] == 6000, "the whole cap again")
        bandwidth.write(tmp_path, render("300B/s", None))
        until(lambda: memory.allowance[0] == 300, "the new cap")
        one.hand_to(None)
    memory.close()
    assert max(sums) <= 6000 + 0.001


def test_z1_the_cap_file_is_followed_and_the_lower_one_holds(tmp_path: Path) -> None:
    bandwidth.write(tmp_path, render("600B/s", 120))
    with held(tmp_path, 6000) as one:
        until(lambda: one().rate == 600, "the cap file's")
        assert one().requests == 120
        assert one().most == 600
        bandwidth.write(tmp_path, render("300B/s", None))
        until(lambda: one().rate == 300 and math.isinf(one().requests), "the new one")
        bandwidth.write(tmp_path, render("none", None))
        until(lambda: one().rate == 6000, "what is configured")


def test_without_any_cap_nothing_bounds_the_bytes(tmp_path: Path) -> None:
    with held(tmp_path, None) as one:
        assert math.isinf(one().rate)


def test_z1_what_a_run_cannot_use_by_its_elements_limit_others_have(tmp_path: Path) -> None:
    who = this_process("r1", "copy data")
    with Hold(
        prepared(tmp_path), "01234567", who, rate=lambda: 10_000.0, per_process=1000, ends=True
    ) as hold:
        hold.begin(1, time.sleep)
        with held(tmp_path, 10_000) as other:
            until(lambda: other().rate == 8990, "what the run cannot use")


def test_s25_who_holds_a_share_is_said_in_its_file(tmp_path: Path) -> None:
    with held(tmp_path):
        (shown,) = shares_share.look(tmp_path / "holders")
    assert shown.part == 1
    assert "copy data, an element" in shown.who
    assert f"process {os.getpid()}" in shown.who


_CHILD = """
import sys, time
from pathlib import Path
from penstock.config.settings import BandwidthConfig
from penstock.jobs.bandwidth import reading
with reading(BandwidthConfig(Path(sys.argv[1]), 6000), "", "copy", "r", print, time.sleep):
    print("held", flush=True)
    time.sleep(600)
"""


def test_z1_the_share_of_a_process_that_was_killed_is_taken_over(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", _CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    with held(tmp_path) as one:
        until(lambda: one().rate == 6000, "the dead one's share")


def test_a_folder_that_cannot_be_written_ends_the_element_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="the bandwidth folder cannot be used"), held(tmp_path / "gone"):
        raise AssertionError("it began")


def test_s25_nothing_is_read_before_the_cap_is_known(tmp_path: Path) -> None:
    """A cap file that is not believed when an element begins: that of a node which sees another owner."""
    bandwidth.write(tmp_path, render("600B/s", None))
    (tmp_path / "cap").chmod(0o666)
    said: list[str] = []
    with LinkShare(BandwidthConfig(tmp_path, 6000), "", "copy data, an element", "r1", said.append) as one:
        until(lambda: one.now() == 1, "a share")
        assert one().rate == one().requests == 0
        wrong = f"{tmp_path}/cap has mode 0666: others than its owner may write it"
        assert said == [f"warning: nothing is read before the bandwidth cap is known: {wrong}"]
        (tmp_path / "cap").chmod(0o644)
        until(lambda: one().rate == 600, "the cap")
        assert said[1:] == ["the cap is right again"]


def test_a_folder_that_vanishes_stops_the_reading_and_it_goes_on_when_it_is_back(tmp_path: Path) -> None:
    with held(tmp_path) as one:
        (tmp_path / "holders").rename(tmp_path / "away")
        until(lambda: one().rate == 0, "the end of the share")
        (tmp_path / "away").rename(tmp_path / "holders")
        until(lambda: one().rate > 0, "a new share")


def test_s25_an_element_without_a_share_says_why_and_when_it_has_one_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bandwidth, "TOLD", 0.1)
    said: list[str] = []
    with LinkShare(BandwidthConfig(tmp_path, 6000), "", "copy data, an element", "r1", said.append) as one:
        until(lambda: one().rate > 0, "a share")
        said.clear()
        (tmp_path / "holders").rename(tmp_path / "away")
        until(lambda: one() and said, "what the log says")
        assert len(said) == 1
        assert said[0].startswith(f"waits for a share of the bandwidth below {tmp_path}: ")
        assert f"No such file or directory: '{tmp_path}/holders" in said[0]
        (tmp_path / "away").rename(tmp_path / "holders")
        until(lambda: one().rate > 0 and len(said) > 1, "a new share")
        assert said[1:] == [f"has a share of the bandwidth below {tmp_path} now"]


def test_z1_an_element_whose_thread_fails_hears_why_and_others_have_its_share(tmp_path: Path) -> None:
    with held(tmp_path) as one:
        until(lambda: one().rate == 6000, "the whole cap")
        one._file.look = lambda: 1 / 0  # type: ignore[assignment,method-assign,return-value]
        until(lambda: one.failed, "the end of the thread")
        with pytest.raises(FailedError, match="ZeroDivisionError: division by zero"):
            one()
    assert os.listdir(tmp_path / "holders") == []


def test_z1_a_runs_elements_divide_its_share(tmp_path: Path) -> None:
    """Also those that come late; and they keep it when the controller was killed."""
    digits = "01234567"
    hold = Hold(prepared(tmp_path), digits, this_process("r1", "copy data"), rate=lambda: 6000.0)
    with hold:
        hold.begin(2, time.sleep)
        with contextlib.ExitStack() as stack:
            shares = [
                stack.enter_context(
                    LinkShare(BandwidthConfig(tmp_path, 6000), hold.holder, "copy", "r1", print)
                )
                for _ in range(2)
            ]
            until(lambda: [share().rate for share in shares] == [3000, 3000], "a half each")
            hold.__exit__()
            until(lambda: any(n.endswith(".9") for n in os.listdir(tmp_path / "holders")), "nine beats")
            assert [share().rate for share in shares] == [3000, 3000]
    hold.member.end()
    assert os.listdir(tmp_path / "holders") == []
