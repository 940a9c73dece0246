"""A node that confines its jobs: an element gets the cores and the memory that it was promised, and one that
takes more memory ends right."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import pytest
from tests.cluster.place import Place
from tests.cluster.settings import CONFINED

from penstock.core import range_lists

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.machine import Machine

pytestmark = pytest.mark.slurm

PROMISED = 400
"""MiB of memory."""
OPTIONS = {"core_spec": 1, "max_elements": 1, "memory": f"{PROMISED}MiB"}


@pytest.fixture
def place(slurm_confined: Machine) -> Iterator[Place]:
    """An ordinary user's place of work on the one node."""
    with Place(slurm_confined) as made:
        yield made


def cores_of_jobs(machine: Machine) -> str:
    """The CPUs that SLURM says it gives to jobs: all but those that the node keeps."""
    shown = machine.run("scontrol", "show", "node", CONFINED).stdout
    kept = re.search(r"CPUSpecList=(\S+)", shown)
    assert kept, shown
    return range_lists.listed(os.sched_getaffinity(0) - set(range_lists.cpus(kept[1])))


def of_a_job(place: Place) -> tuple[str, int]:
    """The cpuset and the memory limit of a job with the elements' options, as files of its own cgroups have
    them: the limit in the job's, not in the one that the process is in."""
    written = place.folder / "seen"
    place.machine.run(
        "sbatch", "--wait", "--core-spec=1", f"--mem={PROMISED}M", "--chdir=/", f"--output={written}",
        """--wrap=
        own() { sed -n "s/^[0-9]*:$1://p" /proc/self/cgroup; }
        cat "/sys/fs/cgroup/cpuset$(own cpuset)/cpuset.cpus"
        memory="/sys/fs/cgroup/memory$(own memory)"
        cat "$memory/memory.limit_in_bytes" "${memory%/step_*}/memory.limit_in_bytes"
        """,
    )  # fmt: skip
    cores, *limits = written.read_text().split()
    return cores, min(map(int, limits))


@pytest.mark.later_release
def test_an_element_gets_what_it_was_promised(place: Place) -> None:
    """L2: core-spec keeps a core, the job's cpuset is the others, and the memory limit holds."""
    place.fill("a", 40)
    place.configure(["a"], cluster=OPTIONS, engine={"workers": None, "streams": "auto"})
    place.ends(place.staging("a"))
    place.published("a")
    cores = cores_of_jobs(place.machine)
    assert of_a_job(place) == (cores, PROMISED << 20)
    here = set(range_lists.cpus(cores))
    for step in ("copy", "verify"):
        (receipt,) = place.receipts("a", step)
        assert receipt["cpus"] == len(here), "the engine sized itself by it"
    # One element copied and read back.
    (written,) = place.target.glob("a/.penstock/runs/*/usage/*/*.json")
    usage = json.loads(written.read_text())
    assert usage["job_memory_file"] in ("memory.max_usage_in_bytes", "memory.peak")
    assert 10 << 20 < usage["job_memory_peak"] <= PROMISED << 20, "of the job's own control group"


@pytest.mark.later_release
def test_one_that_runs_out_of_memory_is_told_in_a_line_and_goes_on_with_more(place: Place) -> None:
    """SLURM's word for it, how much the element had, and which key to raise."""
    place.fill("a", 10)
    short = {**OPTIONS, "retries": 1, "steps": {"copy": {"memory": "20MiB"}}}
    place.configure(["a"], cluster=short)
    said = place.ends(place.penstock("run"), 1)
    line = f"shard 0 on {CONFINED}: OUT_OF_MEMORY: it had 20.0 MiB; raise cluster.steps.copy.memory"
    assert line in [text.strip() for text in said.splitlines()]
    assert "Traceback" not in said
    assert len(place.submissions("a", "copy")) == 2
    assert place.unpublished("a")
    place.configure(["a"], cluster={**short, "steps": {"copy": {"memory": "300MiB"}}})
    place.ends(place.staging("a"))
    place.published("a")
    assert len(place.receipts("a", "copy")) == 1
