from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from penstock.workflow import controller

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_names_tell_processes_apart(sleeper: subprocess.Popen[bytes]) -> None:
    name = controller.name(sleeper.pid)
    assert name.startswith(f"{sleeper.pid}.")
    assert controller.alive(name)
    assert not controller.alive(f"{sleeper.pid}.1")
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not controller.alive(name), "a zombie has ended"
    sleeper.wait()
    assert not controller.alive(name)
    with pytest.raises(ProcessLookupError):
        controller.name(sleeper.pid)


@pytest.mark.parametrize("bad", ["x", "", "1.", "-1.5", "99999999.1"])
def test_bad_names_are_not_alive(bad: str) -> None:
    assert not controller.alive(bad)


def test_the_end_of_a_watched_process_is_told(sleeper: subprocess.Popen[bytes]) -> None:
    told = threading.Event()
    with controller.watched(f"{controller.name(os.getpid())} {controller.name(sleeper.pid)}", told.set):
        assert not told.is_set()
        sleeper.kill()
        assert told.wait(60)


def test_one_that_is_gone_already_is_told_at_once() -> None:
    told = threading.Event()
    with controller.watched(f"{os.getpid()}.1", told.set):
        assert told.is_set()


def test_nothing_is_told_when_nothing_ends() -> None:
    told = threading.Event()
    before = len(os.listdir("/proc/self/fd"))
    with controller.watched(controller.name(os.getpid()), told.set):
        pass
    with controller.watched("", told.set):
        pass
    assert not told.is_set()
    assert len(os.listdir("/proc/self/fd")) == before


def test_processes_of_another_host_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of the outer workflow, submitted with its environment, calls penstock on a node."""
    monkeypatch.setenv(controller.ABOVE, "1.1")
    monkeypatch.delenv(controller.ABOVE_HOST, raising=False)
    own = controller.name(os.getpid())
    assert controller.handed_down()[controller.ABOVE] == f"1.1 {own}"
    monkeypatch.setenv(controller.ABOVE_HOST, "elsewhere")
    assert controller.above() == []
    assert controller.handed_down() == {controller.ABOVE: own, controller.ABOVE_HOST: os.uname().nodename}
