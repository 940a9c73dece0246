from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import until

from penstock.core.errors import FailedError, PreflightError
from penstock.host.shared_memory import SharedMemory
from penstock.jobs.bandwidth import cap_file, holder, share
from penstock.jobs.bandwidth.cap_file import Cap, render
from penstock.jobs.bandwidth.share import Share
from penstock.jobs.bandwidth.slots import SLOTS, parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


CAP = Cap(6000)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAUSE", "QUICK", "SETTLE"):
        monkeypatch.setattr(holder, name, 0.02)
    monkeypatch.setattr(holder, "BEAT", 0.2)
    monkeypatch.setattr(share, "READ", 0.02)


@contextlib.contextmanager
def held(folder: Path, cap: Cap = CAP, limit: int | None = None) -> Iterator[Share]:
    with Share(folder, cap, limit, "copy data, shard 3", "r1", lambda _: None) as one:
        one.first(time.sleep)
        yield one


def test_z1_elements_share_the_cap_and_give_it_back(tmp_path: Path) -> None:
    with held(tmp_path) as one:
        until(lambda: one().rate == 6000, "the whole cap")
        with held(tmp_path) as other:
            until(lambda: one().rate == other().rate == 3000, "two halves")
        until(lambda: one().rate == 6000, "the whole cap again")
    names = os.listdir(tmp_path / "slots")
    assert len(parse(names).free) == SLOTS
    assert not parse(names).beats


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
        cap_file.write(tmp_path, render("300B/s", None))
        until(lambda: memory.allowance[0] == 300, "the new cap")
        one.hand_to(None)
    memory.close()
    assert max(sums) <= 6000 + 0.001


def test_z1_the_cap_file_is_followed_and_the_lower_one_holds(tmp_path: Path) -> None:
    cap_file.write(tmp_path, render("600B/s", 120))
    with held(tmp_path, Cap(6000)) as one:
        until(lambda: one().rate == 600, "the cap file's")
        assert one().requests == 120
        assert one().most == 600
        cap_file.write(tmp_path, render("300B/s", None))
        until(lambda: one().rate == 300 and math.isinf(one().requests), "the new one")
        cap_file.write(tmp_path, render("none", None))
        until(lambda: one().rate == 6000, "what is configured")


def test_without_any_cap_nothing_bounds_the_bytes(tmp_path: Path) -> None:
    with held(tmp_path, Cap()) as one:
        assert math.isinf(one().rate)


def test_z1_what_an_element_cannot_use_by_its_own_limit_others_have(tmp_path: Path) -> None:
    with held(tmp_path, limit=1000) as one, held(tmp_path) as other:
        until(lambda: (one().rate, other().rate) == (1000, 5000), "what each can use")


def test_s25_who_holds_a_share_is_said_in_its_file(tmp_path: Path) -> None:
    with held(tmp_path):
        beat = next(iter(parse(os.listdir(tmp_path / "slots")).beats.values()))
        for _ in range(100):
            with contextlib.suppress(FileNotFoundError):
                beat = next(iter(parse(os.listdir(tmp_path / "slots")).beats.values()))
                who = json.loads((tmp_path / "slots" / beat.name).read_bytes())
                break
    assert who["command"] == "copy data, shard 3"
    assert who["pid"] == os.getpid()


_CHILD = """
import sys, time
from pathlib import Path
from penstock.jobs.bandwidth.cap_file import Cap
from penstock.jobs.bandwidth.share import Share
with Share(Path(sys.argv[1]), Cap(6000), None, "copy", "r", print) as one:
    one.first(time.sleep)
    print("held", flush=True)
    time.sleep(600)
"""


def test_z1_the_share_of_a_process_that_was_killed_here_is_taken_over(tmp_path: Path) -> None:
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
    cap_file.write(tmp_path, render("600B/s", None))
    (tmp_path / "cap").chmod(0o666)
    said: list[str] = []
    with Share(tmp_path, CAP, None, "copy data, shard 3", "r1", said.append) as one:
        until(
            lambda: any(beat.slots for beat in parse(os.listdir(tmp_path / "slots")).beats.values()), "slots"
        )
        assert one().rate == one().requests == 0
        wrong = f"{tmp_path}/cap has mode 0666: others than its owner may write it"
        assert said == [f"warning: nothing is read before the bandwidth cap is known: {wrong}"]
        (tmp_path / "cap").chmod(0o644)
        until(lambda: one().rate == 600, "the cap")
        assert said[1:] == ["the cap is right again"]


def test_a_folder_that_vanishes_stops_the_reading_and_it_goes_on_when_it_is_back(tmp_path: Path) -> None:
    with held(tmp_path) as one:
        (tmp_path / "slots").rename(tmp_path / "away")
        until(lambda: one().rate == 0, "the end of the share")
        (tmp_path / "away").rename(tmp_path / "slots")
        until(lambda: one().rate > 0, "a new share")


def test_s25_an_element_without_a_share_says_why_and_when_it_has_one_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share, "TOLD", 0.1)
    said: list[str] = []
    with Share(tmp_path, CAP, None, "copy data, shard 3", "r1", said.append) as one:
        one.first(time.sleep)
        said.clear()
        (tmp_path / "slots").rename(tmp_path / "away")
        until(lambda: one() and said, "what the log says")
        assert len(said) == 1
        assert said[0].startswith(f"waits for a share of the bandwidth below {tmp_path}: {tmp_path}/slots")
        assert said[0].endswith("No such file or directory")
        (tmp_path / "away").rename(tmp_path / "slots")
        until(lambda: one().rate > 0 and len(said) > 1, "a new share")
        assert said[1:] == [f"has a share of the bandwidth below {tmp_path} now"]


def test_z1_a_share_whose_thread_fails_is_given_back_and_the_element_hears_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held(tmp_path) as one:
        until(lambda: one().rate == 6000, "the whole cap")
        monkeypatch.setattr(one._file, "read", lambda: 1 / 0)
        until(lambda: one._failed, "the end of the thread")
        with pytest.raises(FailedError, match="ZeroDivisionError: division by zero"):
            one()
        until(lambda: not parse(os.listdir(tmp_path / "slots")).beats, "no beat")
        assert len(parse(os.listdir(tmp_path / "slots")).free) == SLOTS


def test_a_thread_that_ends_is_no_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with held(tmp_path) as one:
        monkeypatch.setattr(one, "_failed", "Permission denied")
        with pytest.raises(FailedError, match="Permission denied"):
            one()
