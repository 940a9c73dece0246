from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from penstock.host import command

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_command_that_is_not_there_is_an_answer() -> None:
    answer = command.run(["no-such-command-of-a-vendor"])
    assert (answer.ok, answer.there, answer.code) == (False, False, None)
    assert answer.words == "not there: No such file or directory"
    assert not command.present("no-such-command-of-a-vendor")


def test_exit_status_and_both_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("BEEGFS_MGMTD_ADDR", "mgmt:8010")
    monkeypatch.setenv("BEEGFS_COLUMNS", "alias")
    answer = command.run(["sh", "-c", "env; printf 'one\\n\\033[31mtwo\\n' >&2; exit 7"])
    assert (answer.ok, answer.there, answer.code) == (False, True, 7)
    assert answer.words == r"one; \x1b[31mtwo"
    seen = dict(line.split("=", 1) for line in answer.out.splitlines())
    assert seen["LC_ALL"] == "C"
    assert seen["BEEGFS_MGMTD_ADDR"] == "mgmt:8010"
    assert not {"AWS_SECRET_ACCESS_KEY", "BEEGFS_COLUMNS"} & set(seen)


def test_what_does_not_end_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    started = time.monotonic()
    answer = command.run(["sh", "-c", f"sleep 60 & echo $! > {pid}; wait"], deadline=0.5)
    assert time.monotonic() - started < 10
    assert (answer.code, answer.why) == (None, "no answer within 1 s")
    assert answer.there
    child = int(pid.read_text())
    while os.path.exists(f"/proc/{child}") and "Z" not in _state(child):
        assert time.monotonic() - started < 10
        time.sleep(0.01)


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stream:
            return stream.read().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_commands_share_a_budget() -> None:
    assert command.run(["true"], command.TimeBudget(5)).ok
    spent = command.run(["true"], command.TimeBudget(0))
    assert "not asked" in spent.why
