"""Real processes: the locks are the kernel's."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from penstock.workflow import controller
from penstock.workflow.controller import ABOVE, WORKFLOW

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TAKE = """
import sys, pathlib
from penstock.workflow import controller
from penstock.core.errors import LockedError
try:
    controller.take(pathlib.Path(sys.argv[1]), lambda text: print("said", text, flush=True))
except LockedError as error:
    print("locked", error, flush=True)
    sys.exit(7)
print("taken", flush=True)
sys.stdin.read()
"""
STEP = """
import fcntl, sys
file = open(sys.argv[1] + "/steps", "a")
fcntl.flock(file, fcntl.LOCK_SH)
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def running(code: str, folder: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    environment = {k: v for k, v in os.environ.items() if k not in (ABOVE, WORKFLOW)} | variables
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env=environment,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_second_is_told_who_is_first(tmp_path: Path) -> None:
    with running(TAKE, tmp_path) as first:
        assert line(first) == "taken"
        with running(TAKE, tmp_path) as second:
            told = line(second)
            assert told.startswith("locked")
            host = os.uname().nodename
            assert f"a Snakemake is at work in this working directory already: process {first.pid}" in told
            assert f" on {host}, since 20" in told
            assert line(second) == (
                f"wait for it, stop it (`kill {first.pid}` on {host}), or work in another directory"
            )
            assert second.wait() == 7
        first.kill()
        first.wait()
        with running(TAKE, tmp_path) as third:
            assert line(third) == "taken", "kill -9 frees it"


def test_what_is_at_work_below_penstock_run_is_called_so(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        run = stack.enter_context(running("input()", tmp_path))
        first = stack.enter_context(running(TAKE, tmp_path, **{ABOVE: controller.name(run.pid)}))
        assert line(first) == "taken"
        told = line(stack.enter_context(running(TAKE, tmp_path)))
        assert f"`penstock run` is at work in this working directory already: process {run.pid} on " in told


def test_steps_of_a_killed_controller_are_waited_for(tmp_path: Path) -> None:
    with running(STEP, tmp_path) as step:
        assert line(step) == "held"
        with running(TAKE, tmp_path) as controller:
            assert line(controller) == "said waiting for the steps of a killed run to end"
            step.kill()
            assert line(controller) == "taken"


def test_a_controller_whose_start_was_killed_is_waited_for(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        top = stack.enter_context(running("input()", tmp_path))
        first = stack.enter_context(running(TAKE, tmp_path, **{ABOVE: controller.name(top.pid)}))
        assert line(first) == "taken"
        top.kill()
        top.wait()
        second = stack.enter_context(running(TAKE, tmp_path))
        assert line(second) == "said waiting for the remains of a killed run to end"
        first.kill()
        assert line(second) == "taken"
