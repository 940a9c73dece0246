"""SLURM that answers late, or no longer knows an array: each step ends right, and says what it waits for."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.cluster.machine import Machine, missing
from tests.cluster.place import Place
from tests.cluster.processes import kill
from tests.cluster.settings import Settings

if TYPE_CHECKING:
    import subprocess

pytestmark = pytest.mark.slurm


def copying(place: Place, **env: str) -> subprocess.Popen[bytes]:
    """A copy of four elements, two at once, of some seconds each."""
    place.fill("a", 60)
    place.configure(["a"], cluster={"probe": False}, plan={"shard_files": 20}, engine={"limit": "200KiB/s"})
    place.planned("a")
    words = ("-m", "penstock", "--config", "my.yaml", "--backend", "slurm", "--progress", "lines")
    return place.start(sys.executable, *words, "step", "copy", "a", env=env)


def test_a_squeue_of_five_seconds_is_no_reason_to_wait_for_more(place: Place) -> None:
    """The step took 112 s for elements of 13 s."""
    folder = place.folder / "commands"
    folder.mkdir()
    real = shutil.which("squeue", path=place.machine.env["PATH"])
    (folder / "squeue").write_text(f'#!/bin/sh\nsleep 5\nexec {real} "$@"\n')
    (folder / "squeue").chmod(0o755)
    begun = time.monotonic()
    said = place.ends(copying(place, PATH=f"{folder}:{place.env['PATH']}"))
    assert time.monotonic() - begun < 90
    assert "the cluster answers slowly: the last query took 5." in said


def test_receipts_end_the_step_of_an_array_that_was_renamed(place: Place) -> None:
    process = copying(place)
    place.until(place.running, "elements that run", process)
    ((array, _),) = place.submissions("a", "copy")
    assert not place.machine.run("scontrol", "update", f"JobId={array}", "Name=lab-job").returncode
    said = place.ends(process, seconds=100)
    assert len(place.submissions("a", "copy")) == 1, said
    assert "without finishing anything" not in said


def test_what_slurmctld_forgot_is_unknown_and_then_submitted_again() -> None:
    """It is killed, and gets back the state that it had before the submission: the nodes end its elements."""
    settings = Settings(min_job_age=2)
    if problem := missing(settings):
        pytest.skip(problem)
    machine = Machine.new(settings)
    try:
        machine.up()
        machine.guard()
        with Place(machine) as place:
            state, before = machine.folder / "state", machine.folder / "before"
            shutil.copytree(state, before)
            process = copying(place, PENSTOCK_TEST_HEARTBEAT="0.5")
            place.until(place.running, "elements that run", process)
            kill(machine.daemons["slurmctld"])
            shutil.rmtree(state)
            shutil.copytree(before, state)
            machine.start_controller()
            said = place.ends(process)
            assert "unknown" in said
            assert "elements are submitted again" in said
            assert len(place.submissions("a", "copy")) > 1
    finally:
        machine.down()
