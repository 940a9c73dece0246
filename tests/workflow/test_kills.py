"""Killed anywhere, stopped by hand, started twice: a plain rerun ends right."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from tests.support.commands import PATIENCE, SNAKEMAKE, kill_session, session_members, started, until
from tests.workflow.conftest import Place, digests

RUN = (sys.executable, "-m", "penstock", "run")


@pytest.fixture
def slow(place: Place) -> Place:
    """7.5 MiB at 128 KiB/s: copying until somebody ends it or `fast` lifts the limit."""
    for index in range(60):
        (place.source / f"big{index:02d}").write_bytes(os.urandom(128 << 10))
    place.config["engine"] = {"limit": "128KiB/s", "workers": 1}
    place.write()
    return place


def fast(place: Place) -> None:
    del place.config["engine"]
    place.write()


def whole_files(place: Place) -> int:
    """How many of the big files are in staging with bytes in them."""
    return sum(p.stat().st_size > 0 for p in place.target.glob("d/releases/.*.staging/data/big*"))


def copies(place: Place, before: int = 0) -> None:
    """Wait until a run that found `before` files has copied two more."""
    until(lambda: whole_files(place) >= before + 2, "the copy to be under way")


def counted(place: Place) -> bool:
    """The element has told how much it did."""
    found = place.target.glob("d/.penstock/runs/*/progress/copy/*.json")
    return any(json.loads(path.read_bytes())["bytes"] for path in found)


def command_line(pid: int) -> bytes:
    """Of a process that may just have ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def ends_right(place: Place) -> None:
    fast(place)
    done = place.penstock("run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert digests(place.published()) == digests(place.source)
    left = list(place.target.glob("d/releases/.*"))
    assert not left


def test_a_run_that_is_ended_in_each_way_goes_on_and_ends_right(slow: Place, tmp_path: Path) -> None:
    """One story: each run goes on from what the one before left, and ends in another way."""
    elsewhere = Place(
        tmp_path / "elsewhere", slow.monkeypatch, {**slow.config, "target": {"root": str(slow.target)}}
    )
    elsewhere.config["datasets"] = {"d": {"source": str(slow.source)}}
    elsewhere.folder.mkdir()
    with started(*RUN, cwd=slow.folder) as process:
        copies(slow)
        _a_second_one_in_the_same_directory_is_refused(slow, process.pid)
        elsewhere.write()
        second = elsewhere.penstock("run")
        assert second.returncode == 7, second.stderr
        assert os.uname().nodename in second.stderr
        assert "Traceback" not in second.stderr
        assert process.poll() is None, "the first is not disturbed"
        kill_session(process.pid)
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        _a_tidy_stop(slow, number, code)
    _kill_9_of_a_step_alone_is_reported(slow)
    ends_right(slow)


def _a_second_one_in_the_same_directory_is_refused(place: Place, first: int) -> None:
    second = place.penstock("run")
    assert second.returncode == 7, second.stderr
    assert (
        f"`penstock run` is at work in this working directory already: process {first} on " in second.stderr
    )
    third = place.snakemake()
    assert third.returncode == 1
    assert "already" in third.stderr
    for refusal in (second.stderr, third.stderr):
        assert "WorkflowError" not in refusal
        assert "Traceback" not in refusal


def _a_tidy_stop(place: Place, number: signal.Signals, code: int) -> None:
    before = whole_files(place)
    with started(*RUN, cwd=place.folder) as process:
        copies(place, before)
        until(lambda: counted(place), "the element to report how much it did")
        process.send_signal(number)
        out, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, out
        assert f"stopped by {number.name}\n" in out
        assert "the same command goes on" in out
        assert re.search(r"d copy: left off at \d+ of 65 files, .* of 7.57 MiB\n", out), out
        assert "Traceback" not in out
        until(lambda: not session_members(process.pid), "all its processes to end")


def _kill_9_of_a_step_alone_is_reported(place: Place) -> None:
    """It could say nothing itself: Snakemake says how it died."""
    before = whole_files(place)
    with started(*RUN, cwd=place.folder) as process:
        copies(place, before)
        step = next(pid for pid in session_members(process.pid) if b"\0copy\0d\0" in command_line(pid))
        os.kill(step, signal.SIGKILL)
        said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    # An older bash stands in between, and says 137.
    assert "SIGKILL" in said or "137" in said
    assert "STATUS        FAILED" in said


def test_kill_9_of_the_controller_alone(slow: Place) -> None:
    """What it started ends by itself, and the rerun waits for that instead of failing: twice, since penstock
    and Snakemake are controllers each."""
    sessions = []
    with contextlib.ExitStack() as stack:
        for words in ((*SNAKEMAKE, "--configfile", "config.yaml"), RUN):
            before = whole_files(slow)
            process = stack.enter_context(started(*words, cwd=slow.folder))
            copies(slow, before)
            process.kill()
            process.wait()
            sessions.append(process.pid)
        ends_right(slow)
        for session in sessions:
            until(lambda at=session: not session_members(at), "the killed run's remains to end")


def snakemake_of(process: int) -> list[int]:
    """The process that `penstock run` started, as soon as it is there."""
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def loads(process: int, library: str) -> bool:
    return any(library in Path(f"/proc/{pid}/maps").read_text() for pid in snakemake_of(process))


@pytest.mark.cold_start  # it looks at the children and the imports of a process that starts
@pytest.mark.parametrize("moment", ["start", "imports", "graph"])
def test_a_stop_before_anything_began(place: Place, moment: str) -> None:
    """U11: Ctrl-C in the first second showed the traceback of whatever was being imported."""
    with started(*RUN, cwd=place.folder) as process:
        began = {
            "start": lambda: snakemake_of(process.pid),
            "imports": lambda: loads(process.pid, "/_yaml"),
            "graph": lambda: list(place.folder.glob(".snakemake/log/*")),
        }
        until(began[moment], moment)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, out
    assert "Traceback" not in out
    assert "KeyboardInterrupt" not in out
    assert "the same command goes on" in out
