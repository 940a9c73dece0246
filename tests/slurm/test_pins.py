"""A job that says what it reads, on a real cluster: its pin lasts as long as the job, requeued or not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from tests.cluster.processes import wait_for

if TYPE_CHECKING:
    from tests.cluster.place import Place

pytestmark = pytest.mark.slurm

JOB = """\
data=$({python} -m penstock --config my.yaml path a --job) || exit 1
printf '%s\\n' "$data" >> given
exec sleep 600
"""


@pytest.mark.later_release
@pytest.mark.timeout(420)
def test_s32_a_requeued_job_is_given_the_same_release_which_stays_until_the_job_has_ended(
    place: Place,
) -> None:
    """S6 and S32."""
    place.fill("a", 40)
    place.configure(["a"])
    place.ends(place.staging("a"))
    first = place.published("a")
    slurm, given = place.machine.run, place.work / "given"
    words = ("sbatch", "--parsable", "--requeue", "--partition=data", "--time=10", "--output=job.log")
    job = place.ends(place.start(*words, "--wrap", JOB.format(python=sys.executable))).strip()

    def lines() -> list[str]:
        return given.read_text().splitlines() if given.exists() else []

    wait_for(lambda: len(lines()) == 1, "the job's release", seconds=120)
    (place.source / "a" / "more").write_bytes(b"more")
    place.ends(place.staging("a"))
    second = place.published("a")
    assert second != first

    def removed(code: int) -> str:
        """What `remove` says, which waits for no grace, and ends with this status."""
        return place.ends(place.penstock("remove", "a", first.parent.name, "--now"), code)

    assert f"job {job} of cluster penstock" in removed(3)
    slurm("scontrol", "requeue", job)
    # It waits to be started again, and holds the release.
    assert f"job {job} of cluster penstock" in removed(3)

    # slurmctld starts it when its old credential has expired. A start before that fails on the node.
    wait_for(lambda: len(lines()) == 2, "the job's release once more", seconds=180, every=0.5)
    assert lines() == [str(first)] * 2
    assert f"job {job} of cluster penstock" in removed(3)

    slurm("scancel", job)
    wait_for(
        lambda: not slurm("squeue", "-h", "-j", job, "-t", "R,CG,PD").stdout.strip(), "its end", seconds=60
    )
    assert "removed 1 of" in removed(0)
    assert not first.exists()
    assert place.published("a") == second
