"""Killed anywhere, stopped by hand, started twice: a plain rerun ends right."""

from __future__ import annotations

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
    """40 MiB at 2 MiB/s: copying until somebody ends it or `fast` lifts the limit."""
    for index in range(40):
        (place.source / f"big{index:02d}").write_bytes(os.urandom(1 << 20))
    place.config["engine"] = {"limit": "2MiB/s", "workers": 1}
    place.write()
    return place


def fast(place: Place) -> None:
    del place.config["engine"]
    place.write()


def copying(place: Place) -> bool:
    """Some files are whole in staging, and others are not."""
    found = [p for p in place.target.glob("d/releases/.*.staging/data/big*") if p.stat().st_size]
    return len(found) >= 2


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


def test_kill_9_of_everything(slow: Place) -> None:
    with started(*RUN, cwd=slow.folder) as process:
        until(lambda: copying(slow), "the copy to be under way")
        kill_session(process.pid)
    ends_right(slow)


@pytest.mark.parametrize("command", ["penstock", "snakemake"])
def test_kill_9_of_the_controller_alone(slow: Place, command: str) -> None:
    """What it started ends by itself, and the rerun waits for that instead of failing."""
    words = RUN if command == "penstock" else (*SNAKEMAKE, "--configfile", "config.yaml")
    with started(*words, cwd=slow.folder) as process:
        until(lambda: copying(slow), "the copy to be under way")
        process.kill()
        process.wait()
        ends_right(slow)
        until(lambda: not session_members(process.pid), "the killed run's remains to end")


def test_kill_9_of_a_step_alone_is_told(slow: Place) -> None:
    """It could say nothing itself: Snakemake says how it died."""
    with started(*RUN, cwd=slow.folder) as process:
        until(lambda: copying(slow), "the copy to be under way")
        step = next(pid for pid in session_members(process.pid) if b"\0copy\0d\0" in command_line(pid))
        os.kill(step, signal.SIGKILL)
        said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    # An older bash stands in between, and says 137.
    assert "SIGKILL" in said or "137" in said
    assert "STATUS        FAILED" in said
    ends_right(slow)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_tidy_stop(slow: Place, number: signal.Signals, code: int) -> None:
    with started(*RUN, cwd=slow.folder) as process:
        until(lambda: copying(slow) and counted(slow), "the copy to be under way")
        process.send_signal(number)
        out, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, out
        assert "the same command goes on" in out
        assert re.search(r"d copy: left off at \d+ of 45 files, .* of 40.1 MiB\n", out), out
        assert "Traceback" not in out
        until(lambda: not session_members(process.pid), "all its processes to end")
    ends_right(slow)


def snakemake_of(process: int) -> list[int]:
    """The process that `penstock run` started, as soon as it is there."""
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def loads(process: int, library: str) -> bool:
    return any(library in Path(f"/proc/{pid}/maps").read_text() for pid in snakemake_of(process))


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


def test_a_second_one_in_the_same_directory_is_told(slow: Place) -> None:
    with started(*RUN, cwd=slow.folder) as process:
        until(lambda: copying(slow), "the copy to be under way")
        second = slow.penstock("run")
        assert second.returncode == 7, second.stderr
        assert "a Snakemake is at work in this working directory already: process" in second.stderr
        third = slow.snakemake()
        assert third.returncode == 1
        assert "already" in third.stderr
        for told in (second.stderr, third.stderr):
            assert "WorkflowError" not in told
            assert "Traceback" not in told
        assert process.poll() is None, "the first is not disturbed"
        kill_session(process.pid)
    ends_right(slow)


def test_a_second_one_elsewhere_is_told_who_holds_the_dataset(slow: Place, tmp_path: Path) -> None:
    other = Place(
        tmp_path / "elsewhere", slow.monkeypatch, {**slow.config, "target": {"root": str(slow.target)}}
    )
    other.config["datasets"] = {"d": {"source": str(slow.source)}}
    other.folder.mkdir()
    other.write()
    with started(*RUN, cwd=slow.folder) as process:
        until(lambda: copying(slow), "the copy to be under way")
        second = other.penstock("run")
        assert second.returncode == 7, second.stderr
        assert os.uname().nodename in second.stderr
        assert "Traceback" not in second.stderr
        kill_session(process.pid)
    ends_right(slow)
