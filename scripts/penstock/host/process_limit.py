"""How many processes and threads this account may still start, and the error where the kernel refuses one.

Two limits refuse with the same EAGAIN. `ulimit -u` (RLIMIT_NPROC) counts every process and thread of the
account on this machine, and does not hold for root; `pids.max` counts those of a cgroup, as SLURM, systemd
(TasksMax) and containers set it. For an element, which starts fewer workers where few are left, and for
messages. Reads /proc and cgroups; changes nothing.
"""

from __future__ import annotations

import os
import resource

from penstock.core.errors import FailedError
from penstock.host import cgroups
from penstock.host.proc import PROC, Root

NEAR = 1024
"""Above this limit it is not asked how much is used: it is the machine's default, and the answer costs some
10 us for each process."""


def room(proc: Root = PROC) -> int | None:
    """Processes and threads that may still be started; None where no limit below NEAR holds."""
    left = []
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if 0 <= limit < NEAR and os.geteuid() != 0:
        left.append(limit - _tasks(os.getuid(), proc))
    left += [most - now for most, now in cgroups.process_limits(proc) if most < NEAR]
    return max(0, min(left)) if left else None


def refused(error: BaseException) -> FailedError | None:
    """The error to raise where the kernel refused a process or a thread; None where `error` is another."""
    thread = isinstance(error, RuntimeError) and "start new thread" in str(error)
    process = isinstance(error, BlockingIOError) and error.filename is None
    return too_few() if thread or process else None


def too_few() -> FailedError:
    """No more processes can be started; with the limits that hold."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    limits = [f"`ulimit -u` is {limit}"] if limit >= 0 else []
    limits += [f"a cgroup's pids.max is {most}, {now} are used" for most, now in cgroups.process_limits()]
    return FailedError(
        "the system lets this account start no more processes or threads",
        why="; ".join(limits),
        hint="raise that limit, or end other processes of this account; the same command goes on",
    )


def _tasks(uid: int, proc: Root) -> int:
    """Processes and threads of this user."""
    tasks = 0
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                if os.stat(f"{proc}/{name}").st_uid == uid:
                    tasks += len(os.listdir(f"{proc}/{name}/task"))
            except OSError:
                continue  # it ended meanwhile
    return tasks
