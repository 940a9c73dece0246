"""Reads SLURM's traces on this machine: the job environment of this process, from its environment variables,
and SLURM's configuration files.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.host.kernel_facts import PROC, JobEnvironment, process_stat
from penstock.host.machine_settings import setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.core.node_answer import FileValue


# The job environment that SLURM gives this process. No other module knows the names of SLURM's variables.
#
# Every process started inside an allocation inherits SLURM_JOB_ID, even if it outlives the allocation (tmux,
# nohup). A shell of `salloc` on a login node has the variable, but is not in the job. So a job counts as
# proven only if the kernel confirms it:
#
# | SLURM_JOB_ID | control group names job_<id> | a slurmstepd of that job above | proven | its group is  |
# |--------------|------------------------------|--------------------------------|--------|---------------|
# | not set      | any                          | any                            | no     |               |
# | set          | yes                          | any                            | yes    | job_<id>      |
# | set          | no                           | yes                            | yes    | above step_*  |
# | set          | no                           | no                             | no     |               |
#
# SLURM 26.05 names the group after the job's SLUID (`s7HGR1M1P1EH00`), not after its number.

# The variable in which the batch script states when its element must stop, in seconds since the epoch. It is
# unset if the job's time is unknown.
STOP_AT = "PENSTOCK_STOP_AT"
CPUS = "SLURM_CPUS_ON_NODE"  # excludes the cores that `--core-spec` keeps for the system
_STEP = rb"slurmstepd: \[(\d+)"


def read(environment: Mapping[str, str], proc: str | os.PathLike[str] = PROC) -> JobEnvironment:
    """Read the job environment. A value in a form that SLURM does not write counts as unset. /proc is read
    only if the environment names a job."""
    job = _decimal(environment.get("SLURM_JOB_ID", ""))
    array = _decimal(environment.get("SLURM_ARRAY_JOB_ID", ""))
    cpus = _number(environment.get(CPUS, ""))
    confined = bool(job) and _confined(job, proc)
    below = bool(job) and _below(job, proc)
    return JobEnvironment(
        job=job,
        proven=confined or below,
        cluster=environment.get("SLURM_CLUSTER_NAME", ""),
        array=array,
        array_name=environment.get("SLURM_JOB_NAME", ""),
        element=_number(environment.get("SLURM_ARRAY_TASK_ID", "")),
        restarts=_number(environment.get("SLURM_RESTART_COUNT", "")) or 0,
        node=environment.get("SLURMD_NODENAME", ""),
        cpus=cpus or None,
        cpus_from=CPUS if cpus else "",
        # The variable is in MiB. It is 0 for a job that asked for all of a node's memory.
        memory=(_number(environment.get("SLURM_MEM_PER_NODE", "")) or 0) << 20 or None,
        cgroup=f"job_{job}" if confined else _group_of_step(proc) if below else "",
        stop_at=float(_number(environment.get(STOP_AT, "")) or 0),
    )


def _decimal(text: str) -> str:
    return text if text.isdecimal() else ""


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _confined(number: str, proc: str | os.PathLike[str]) -> bool:
    return re.search(rf"/job_{number}(/|$)", _groups(proc), re.MULTILINE) is not None


def _group_of_step(proc: str | os.PathLike[str]) -> str:
    """Return the control group above the step's, whatever its name; "" if this process is in no step."""
    above = re.search(r"/([^/\n]+)/step_[^/\n]+(?:/|$)", _groups(proc), re.MULTILINE)
    return above[1] if above else ""


def _groups(proc: str | os.PathLike[str]) -> str:
    try:
        with open(f"{proc}/self/cgroup", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def _below(number: str, proc: str | os.PathLike[str]) -> bool:
    """Return whether a slurmstepd of this job is among the parent processes. Its title names the job. If the
    title was cut off, the program's name is enough."""
    process = process_stat("self", proc)
    for _ in range(1000):
        if process is None:
            return False
        if process.name.startswith("slurmstepd"):
            try:
                with open(f"{proc}/{process.pid}/cmdline", "rb") as stream:
                    title = re.match(_STEP, stream.read())
            except OSError:
                return False
            return title is None or title[1].decode() == number
        if process.parent in (0, 1):
            return False
        process = process_stat(process.parent, proc)
    return False


# Folders that may contain slurm.conf and cgroup.conf if SLURM_CONF is unset. A node without files of its own
# (`configless`) keeps copies in the first two.
FOLDERS = ("run/slurm/conf", "var/spool/slurmd/conf-cache", "etc/slurm", "etc/slurm-llnl", "usr/local/etc")


def constrained_cores(environment: Mapping[str, str], root: str | os.PathLike[str] = "/") -> FileValue | None:
    """Read ConstrainCores from this machine's cgroup.conf; None without such a file. Never raises."""
    conf = environment.get("SLURM_CONF", "")
    folders = [Path(conf).parent] if conf else []
    for folder in [*folders, *(Path(root, name) for name in FOLDERS)]:
        path = folder / "cgroup.conf"
        if os.path.lexists(path):
            return setting(path, "ConstrainCores")
    return None
