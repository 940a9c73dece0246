"""In which SLURM job a process really is, by the table in storage.jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.runtime.job_environment import Job, this_job

if TYPE_CHECKING:
    from pathlib import Path

SET = {"SLURM_JOB_ID": "4711", "SLURM_CLUSTER_NAME": "alpha", "SLURM_RESTART_COUNT": "2"}
IT = Job("4711", "alpha", "2")


def process(
    proc: Path, name: str, program: str, parent: int, title: str = "", cgroup: str = "0::/\n"
) -> None:
    folder = proc / name
    folder.mkdir()
    number = 500 if name == "self" else int(name)
    (folder / "stat").write_text(f"{number} ({program}) S {parent} 1 1 0\n")
    (folder / "cmdline").write_bytes(title.encode() + b"\0")
    (folder / "cgroup").write_text(cgroup)


@pytest.mark.parametrize(
    ("environment", "cgroup", "above", "job"),
    [
        ({}, "0::/slurm/uid_0/job_4711/step_batch\n", "", Job()),
        (SET, "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n", "", IT),
        (SET, "8:cpuset:/slurm/uid_7/job_4711\n0::/x\n", "", IT),
        (SET, "0::/slurm/uid_0/job_47110/step_batch\n", "", Job()),
        (SET, "0::/user.slice\n", "slurmstepd: [4711.batch]", IT),
        (SET, "0::/user.slice\n", "slurmstepd: [4711.0]", IT),
        (SET, "0::/user.slice\n", "slurmstepd: [4712.batch]", Job()),
        (SET, "0::/user.slice\n", "/usr/sbin/slurmstepd", IT),
        (SET, "0::/user.slice\n", "", Job()),  # tmux, begun inside an allocation that has ended
        ({"SLURM_JOB_ID": "4711_1"}, "0::/job_4711_1\n", "", Job()),
    ],
)
def test_who_is_in_a_job(
    tmp_path: Path, environment: dict[str, str], cgroup: str, above: str, job: Job
) -> None:
    process(tmp_path, "self", "python", 400, cgroup=cgroup)
    process(tmp_path, "400", "a (odd) name", 300)
    process(tmp_path, "300", "slurmstepd" if above else "tmux", 1, above)
    assert this_job(environment, tmp_path) == job


def test_without_proc_a_process_is_in_no_job(tmp_path: Path) -> None:
    assert this_job(SET, tmp_path) == Job()
