"""What SLURM told a process, and in which job it really is, by the table in `cluster.slurm.environment`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.cluster.registry import read_job_environment
from penstock.cluster.slurm import environment as slurm
from penstock.dataset import holder
from penstock.host import kernel_facts
from penstock.host.kernel_facts import JobEnvironment

if TYPE_CHECKING:
    from pathlib import Path

SET = {"SLURM_JOB_ID": "4711", "SLURM_CLUSTER_NAME": "alpha", "SLURM_RESTART_COUNT": "2"}
IT = ("4711", "alpha", "2")
NONE = ("", "", "0")


def told(environment: dict[str, str], proc: Path) -> tuple[str, str, str]:
    """The job that a lock of this process would name, as number, cluster and restarts."""
    kernel_facts.enter_job(slurm.read(environment, proc))
    mine = holder.this_process("a-run", "copy")
    return mine.job, mine.cluster, mine.restart


def process(
    proc: Path, name: str, program: str, parent: int, title: str = "", cgroup: str = "0::/\n"
) -> None:
    folder = proc / name
    folder.mkdir()
    number = 500 if name == "self" else int(name)
    (folder / "stat").write_text(
        f"{number} ({program}) S {parent} 1 1 0 -1 0 0 0 0 0 5 7 0 0 20 0 1 0 9000\n"
    )
    (folder / "cmdline").write_bytes(title.encode() + b"\0")
    (folder / "cgroup").write_text(cgroup)


@pytest.mark.parametrize(
    ("environment", "cgroup", "above", "job"),
    [
        ({}, "0::/slurm/uid_0/job_4711/step_batch\n", "", NONE),
        (SET, "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n", "", IT),
        (SET, "8:cpuset:/slurm/uid_7/job_4711\n0::/x\n", "", IT),
        (SET, "0::/slurm/uid_0/job_47110/step_batch\n", "", NONE),
        (SET, "0::/user.slice\n", "slurmstepd: [4711.batch]", IT),
        (SET, "0::/user.slice\n", "slurmstepd: [4711.0]", IT),
        (SET, "0::/user.slice\n", "slurmstepd: [4712.batch]", NONE),
        (SET, "0::/user.slice\n", "/usr/sbin/slurmstepd", IT),
        (SET, "0::/user.slice\n", "", NONE),  # tmux, begun inside an allocation that has ended
        ({"SLURM_JOB_ID": "4711_1"}, "0::/job_4711_1\n", "", NONE),
    ],
)
def test_which_job_a_lock_names(
    tmp_path: Path, environment: dict[str, str], cgroup: str, above: str, job: tuple[str, str, str]
) -> None:
    process(tmp_path, "self", "python", 400, cgroup=cgroup)
    process(tmp_path, "400", "a (odd) name", 300)
    process(tmp_path, "300", "slurmstepd" if above else "tmux", 1, above)
    assert told(environment, tmp_path) == job
    assert slurm.read(environment, tmp_path).proven == (job == IT)


def test_without_proc_a_process_is_in_no_job(tmp_path: Path) -> None:
    assert told(SET, tmp_path) == NONE


def test_what_is_said_and_not_proven_is_still_said(tmp_path: Path) -> None:
    """An attempt is named, and the end of the time watched for, also where /proc hides SLURM's processes."""
    said = slurm.read(SET, tmp_path)
    assert (said.job, said.cluster, said.restarts, said.proven) == ("4711", "alpha", 2, False)


def test_everything_that_slurm_says_of_an_element() -> None:
    said = {
        **SET,
        "SLURM_ARRAY_JOB_ID": "4700",
        "SLURM_ARRAY_TASK_ID": "0",
        "SLURM_JOB_NAME": "penstock-a",
        "SLURMD_NODENAME": "n3",
        "SLURM_CPUS_ON_NODE": "14",
        "SLURM_MEM_PER_NODE": "100",
        slurm.STOP_AT: "1795263274",
        "PENSTOCK_CPUS": "3",
    }
    assert read_job_environment(said) == JobEnvironment(
        job="4711", cluster="alpha", array="4700", array_name="penstock-a", element=0, restarts=2, node="n3",
        cpus=14, cpus_from="SLURM_CPUS_ON_NODE", memory=100 << 20, stop_at=1795263274.0,
    )  # fmt: skip


def test_what_slurm_does_not_write_counts_as_not_said() -> None:
    odd = dict.fromkeys(
        ["SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT",
         "SLURM_CPUS_ON_NODE", "SLURM_MEM_PER_NODE", slurm.STOP_AT, "PENSTOCK_CPUS"], "../x"
    )  # fmt: skip
    assert read_job_environment(odd) == JobEnvironment()
    assert (
        read_job_environment(dict.fromkeys(["SLURM_CPUS_ON_NODE", "SLURM_MEM_PER_NODE"], "0"))
        == JobEnvironment()
    )


def test_cpus_come_from_slurm_then_the_site() -> None:
    given = read_job_environment({"SLURM_CPUS_ON_NODE": "x", "PENSTOCK_CPUS": "3"})
    assert given == JobEnvironment(cpus=3, cpus_from="PENSTOCK_CPUS")
    assert read_job_environment({"PENSTOCK_CPUS": "0"}) == JobEnvironment()
