"""Staging with `cluster.slurm_api: pyslurm`: by the stand-in, and by pyslurm itself where it was built."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.pyslurm_python import KINDS, of_kind, that_loses_answers

if TYPE_CHECKING:
    from tests.cluster.place import Place

pytestmark = pytest.mark.slurm

SLOW = {"limit": "250KiB/s"}


def configure(place: Place, python: str, *, slow: bool = False) -> None:
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_staging_whose_controller_is_killed_and_an_element_cancelled(kind: str, place: Place) -> None:
    """S26: the receipts name the way. Nothing is submitted twice, and no worker in place of one that a person
    cancelled: the other one does its shard."""
    place.fill("a", 240)
    python = of_kind(kind, place.folder)
    configure(place, python, slow=True)
    tried = place.ends(place.penstock("preflight", "a"))
    assert "slurm by pyslurm" in tried
    first = place.staging("a")
    place.until(lambda: place.fetched("a"), "bytes on their way", first)
    place.kill(first)
    ((array, indices),) = place.submissions("a", "copy")
    second = place.staging("a")
    place.until(lambda: f"array {array} of an" in place.output(second), "the array is met", second)
    place.until(place.running, "an element that runs", second)
    place.machine.run("scancel", min(place.running()))
    said = place.ends(second)
    assert "cancelled on n" in said
    assert place.submissions("a", "copy") == [(array, indices)], said
    place.published("a")
    for step in ("copy", "verify"):
        way = step_receipt(place, step)["slurm_api"]
        assert way.startswith("pyslurm ")
        assert "commands" not in way


@pytest.mark.parametrize("kind", KINDS)
def test_a_submission_without_an_answer_leaves_one_array(kind: str, place: Place) -> None:
    """The helper dies when the array has ended: it is found by its name all the same, and what comes after it
    goes by the commands."""
    place.fill("a", 60)
    configure(
        place, that_loses_answers(kind, place.folder, "while squeue -h | grep -q .; do sleep 0.1; done")
    )
    place.planned("a")
    said = place.ends(place.penstock("step", "copy", "a"))
    assert said.count("pyslurm's helper is lost") == 1
    # The book may name it twice: where the first try did not reach SLURM, it was made again.
    (array,) = {array for array, _ in place.submissions("a", "copy")}
    assert place.arrays("copy") == {array}
    assert re.fullmatch(r"pyslurm \S+, then commands", step_receipt(place, "copy")["slurm_api"])


def test_a_helper_that_dies_leaves_the_run_to_the_commands(place: Place) -> None:
    """Nothing was submitted by it: the array is sbatch's."""
    place.fill("a", 60)
    configure(place, of_kind("stand-in", place.folder, dies=["submit"]))
    place.planned("a")
    said = place.ends(place.penstock("step", "copy", "a"))
    assert said.count("pyslurm's helper is lost (it ended with signal 11)") == 1
    assert len(place.arrays("copy")) == 1
    assert len({array for array, _ in place.submissions("a", "copy")}) == 1
