"""Which SLURM job this process is in, if it really is in one.

SLURM_JOB_ID is inherited by whatever was begun inside an allocation and outlives it (tmux, nohup), and a
shell of `salloc` on a login node has it without being in the job. So the variables are believed only
where the kernel says the same.

| SLURM_JOB_ID | control group names job_<id> | a slurmstepd of that job above | this job |
|--------------|------------------------------|--------------------------------|----------|
| not set      | any                          | any                            | none     |
| set          | yes                          | any                            | it       |
| set          | no                           | yes                            | it       |
| set          | no                           | no                             | none     |
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

PROC = Path("/proc")
_STEP = re.compile(rb"slurmstepd: \[(\d+)")


class Job(NamedTuple):
    """A job of a cluster: its number means nothing without the cluster's name."""

    number: str = ""
    cluster: str = ""
    restart: str = "0"


def this_job(environment: Mapping[str, str] | None = None, proc: Path | None = None) -> Job:
    """The job by the table above; an empty one where this process is in none."""
    e = os.environ if environment is None else environment
    proc = proc or PROC
    number = e.get("SLURM_JOB_ID", "")
    if not number.isdecimal() or not (_confined(number, proc) or _below(number, proc)):
        return Job()
    return Job(number, e.get("SLURM_CLUSTER_NAME", ""), e.get("SLURM_RESTART_COUNT", "0"))


def host_name() -> str:
    """The node as SLURM calls it, or this machine."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def _confined(number: str, proc: Path) -> bool:
    try:
        text = (proc / "self" / "cgroup").read_text(errors="replace")
    except OSError:
        return False
    return re.search(rf"/job_{number}(/|$)", text, re.MULTILINE) is not None


def _below(number: str, proc: Path) -> bool:
    """Whether a slurmstepd of this job is among the processes above. Its title names the job; where the
    title was cut off, the program's name is enough."""
    pid = "self"
    for _ in range(1000):
        try:
            # The second field is the program's name in brackets and may hold anything.
            head, _, rest = (proc / pid / "stat").read_bytes().rpartition(b")")
            pid = rest.split()[1].decode()
            if head.partition(b"(")[2].startswith(b"slurmstepd"):
                title = _STEP.match((proc / head.split()[0].decode() / "cmdline").read_bytes())
                return title is None or title[1].decode() == number
        except (OSError, IndexError):
            return False
        if pid in ("0", "1"):
            return False
    return False
