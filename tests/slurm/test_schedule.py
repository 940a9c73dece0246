"""The documented scrontab entry, run by a real cluster as the batch job that slurmctld makes of it.

`scrontab` itself fetches the environment of a login first, which the tests' account has none of (and Debian's
packages of Slurm 22.05 have no such command): its lines are given to sbatch here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.support import schedule

if TYPE_CHECKING:
    from tests.cluster.place import Place

pytestmark = pytest.mark.slurm


def test_an_audit_whose_controller_is_a_job(place: Place) -> None:
    place.fill("a", 60)
    place.configure(["a"])
    place.ends(place.staging("a"))
    line = schedule.lines(place.work)[1]
    asked = [word for word in schedule.options() if not word.startswith("--output")]
    assert "--fraction 1/30" in line
    script = place.work / "entry.sh"
    script.write_text(f"#!/bin/sh\n# This job was submitted through scrontab\n{line}\n")
    said = place.work / "audit.txt"
    words = ("sbatch", "--wait", "--export=ALL", *asked, f"--output={said}", str(script))
    # Such a job has nothing of a login's environment.
    bare = dict.fromkeys(("VIRTUAL_ENV", "PYTHONPATH"), "") | {"PATH": os.defpath}
    place.ends(place.start(*words, env=bare))
    told = said.read_text()
    assert "slice 1 of 30" in told, told
    assert "PASSED" in told
