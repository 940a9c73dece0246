"""How many processes and threads this account may still start, and the error when the kernel refuses one.

Two limits refuse with the same EAGAIN. `ulimit -u` (RLIMIT_NPROC) counts all processes and threads of the
account on this machine, but not root's. `pids.max` counts those of a cgroup, as SLURM, systemd (TasksMax) and
containers set it.
"""

from __future__ import annotations

import os
import resource

from penstock.core.errors import FailedError
from penstock.host import cgroups
from penstock.host.proc import PROC, Root

# Usage is not counted under larger limits: they are the machine's default, and counting costs some 10 us a
# process.
NEAR = 1024


def room(proc: Root = PROC) -> int | None:
    """Return how many processes and threads may still be started; None: no limit below NEAR."""
    left = []
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if 0 <= limit < NEAR and os.geteuid() != 0:
        left.append(limit - _tasks(os.getuid(), proc))
    left += [most - now for most, now in cgroups.process_limits(proc) if most < NEAR]
    return max(0, min(left)) if left else None


def refused(error: BaseException) -> FailedError | None:
    """Return the error to raise if the kernel refused a process or thread; None: `error` is another."""
    thread = isinstance(error, RuntimeError) and "start new thread" in str(error)
    process = isinstance(error, BlockingIOError) and error.filename is None
    return too_few() if thread or process else None


def too_few() -> FailedError:
    """Return the error for a refused process, with the limits that hold."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    limits = [f"`ulimit -u` is {limit}"] if limit >= 0 else []
    limits += [f"a cgroup's pids.max is {most}, {now} are used" for most, now in cgroups.process_limits()]
    return FailedError(
        "the system lets this account start no more processes or threads",
        why="; ".join(limits),
        hint="raise that limit, or end other processes of this account; the same command goes on",
    )


def _tasks(uid: int, proc: Root) -> int:
    """Count processes and threads of this user."""
    tasks = 0
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                if os.stat(f"{proc}/{name}").st_uid == uid:
                    tasks += len(os.listdir(f"{proc}/{name}/task"))
            except OSError:
                continue  # it ended meanwhile
    return tasks
