"""Staging with `cluster.slurm_api: pyslurm`: by the stand-in, and by pyslurm itself where it was built."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.cluster.processes import below
from tests.support.pyslurm_python import KINDS, of_kind

from penstock.cluster.slurm.bindings import helper

if TYPE_CHECKING:
    import subprocess

    from tests.cluster.place import Place

pytestmark = pytest.mark.slurm

SLOW = {"limit": "250KiB/s"}


def configure(place: Place, kind: str, *, slow: bool = False, **faults: object) -> None:
    python = of_kind(kind, place.folder, **faults)
    place.configure(
        ["a"],
        cluster={"slurm_api": "pyslurm", "pyslurm_python": python},
        plan={"shard_files": 60},
        engine=SLOW if slow else {},
    )


def step_receipt(place: Place, step: str) -> dict[str, Any]:
    (run,) = (place.target / "a" / ".penstock" / "runs").iterdir()
    found: dict[str, Any] = json.loads((run / "receipts" / f"{step}.json").read_text())
    return found


def helpers(process: subprocess.Popen[bytes]) -> list[int]:
    """The processes with pyslurm below a controller."""
    found = []
    for pid in below(process.pid):
        words = (
            Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") if Path(f"/proc/{pid}").exists() else []
        )
        if os.fsencode(helper.WORKER) in words:
            found.append(pid)
    return found


def arrays_of_copy(place: Place) -> set[str]:
    """Those that SLURM knows, of all tests until now."""
    lines = place.machine.run("squeue", "-h", "--states=all", "-o", "%F %j").stdout.splitlines()
    return {line.split()[0] for line in lines if "-copy-" in line}


@pytest.mark.parametrize("kind", KINDS)
def test_a_staging_whose_controller_is_killed_and_an_element_cancelled(kind: str, place: Place) -> None:
    """S26: the receipts name the way. Nothing is submitted twice, and what a person cancelled not at all."""
    place.fill("a", 240)
    configure(place, kind, slow=True)
    tried = place.ends(place.penstock("preflight", "a"))
    assert "slurm by pyslurm" in tried
    first = place.penstock("run")
    place.until(lambda: place.fetched("a"), "bytes on their way", first)
    assert helpers(first)
    place.kill(first)
    ((array, indices),) = place.submissions("a", "copy")
    second = place.penstock("run")
    place.until(lambda: f"array {array} of an" in place.output(second), "the array is met", second)
    place.until(place.running, "an element that runs", second)
    place.machine.run("scancel", min(place.running()))
    said = place.ends(second, 1)
    assert "1 element was cancelled" in said
    assert place.submissions("a", "copy") == [(array, indices)], said
    configure(place, kind)
    place.ends(place.penstock("run"))
    place.published("a")
    for step in ("copy", "verify"):
        way = step_receipt(place, step)["slurm_api"]
        assert way.startswith("pyslurm ")
        assert "commands" not in way


@pytest.mark.parametrize("kind", KINDS)
def test_a_helper_that_is_killed_leaves_the_run_to_the_commands(kind: str, place: Place) -> None:
    place.fill("a", 120)
    configure(place, kind, slow=True)
    place.planned("a")
    copying = place.penstock("copy", "a")
    place.until(lambda: place.fetched("a") and helpers(copying), "bytes on their way", copying)
    for pid in helpers(copying):
        os.kill(pid, signal.SIGKILL)
    before = place.submissions("a", "copy")
    # An element that fails is submitted again: by sbatch now.
    node = place.running()[f"{before[0][0]}_0"]
    place.machine.kill_payload(node)
    said = place.ends(copying)
    assert said.count("pyslurm's helper is lost") == 1
    arrays = [indices for _, indices in place.submissions("a", "copy")]
    assert arrays[0] == [0, 1]
    assert arrays[1:]
    assert all(indices == [0] for indices in arrays[1:])
    assert step_receipt(place, "copy")["slurm_api"].endswith(", then commands")


def test_a_helper_that_dies_after_a_submission_leaves_one_array(place: Place) -> None:
    """The answer is lost, the array is there: it is found by its name."""
    place.fill("a", 60)
    before = arrays_of_copy(place)
    configure(place, "stand-in", dies_after=["submit"])
    place.planned("a")
    said = place.ends(place.penstock("copy", "a"))
    assert said.count("pyslurm's helper is lost") == 1
    ((array, _),) = place.submissions("a", "copy")
    assert arrays_of_copy(place) - before == {array}
