"""Who holds a lock, and whether that process is still running. Also the owner of a reader's pin: this
process's job, or else the script or shell that called it.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
import json
import os
import secrets
import socket
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from penstock.core import run_steps, typed_json
from penstock.core.human import brief
from penstock.fs.owners import account
from penstock.host import kernel_facts
from penstock.host.kernel_facts import process_stat

# Holders: the process that holds a lock, a run's claim, a reader's pin or a share of a network link.
#
# | the holder is on                | its process            | verdict                                       |
# |---------------------------------|------------------------|-----------------------------------------------|
# | this host, this boot, this      | gone, a zombie, or its | dead: taken over at once                      |
# | PID namespace                   | number is another's    |                                               |
# | this host, boot and namespace   | running                | alive                                         |
# | anywhere else                   | not visible            | unknown: scheduler and heartbeat decide       |


@dataclass(frozen=True)
class Holder:
    """The content of a lock file."""

    run: str  # the run's id, or ""
    command: str  # the step or command that holds the lock
    user: str
    host: str
    boot: str
    namespace: str  # the PID namespace: containers on a host may not see each other's processes
    pid: Annotated[int, typed_json.between(1, 1 << 31)]
    start: str  # the process's start time in kernel ticks, which differs if the number is reused
    job: str  # the job's number; "" if the process is not proven to be in one (`JobEnvironment.proven`)
    restart: str  # number of the job's restarts, in decimal
    nonce: str  # random digits that distinguish two locks of one process
    since: str  # time since which the lock is held: UTC, ISO 8601
    cluster: str  # the job's cluster: several clusters on one file system may use the same job numbers

    def to_json(self) -> bytes:
        """Return the bytes of a lock file."""
        return json.dumps(asdict(self), sort_keys=True).encode() + b"\n"

    def describe(self) -> str:
        """Describe the holder in one line, escaped, since another account may have written it."""
        on = f" of cluster {brief(self.cluster)}" if self.cluster else ""
        job = f", SLURM job {brief(self.job)}{on}" if self.job else ""
        run = f"run {brief(self.run)}, " if self.run else ""
        return (
            f"{brief(self.user)} runs `penstock {brief(run_steps.typed(self.command))}` on "
            f"{brief(self.host)}, process {brief(self.pid)}{job}, {run}since {brief(self.since)}"
        )


def this_process(run: str, command: str) -> Holder:
    """Describe this process as a holder with a new nonce."""
    job = kernel_facts.current_job()
    if not job.proven:
        job = kernel_facts.JobEnvironment()
    return Holder(
        run=run,
        command=command,
        user=account(os.geteuid()),
        host=socket.gethostname(),
        boot=boot_id(),
        namespace=pid_namespace(),
        pid=os.getpid(),
        start=start_time(os.getpid()) or "",
        job=job.job,
        cluster=job.cluster,
        restart=str(job.restarts),
        nonce=secrets.token_hex(16),
        since=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def parse(content: bytes) -> Holder | None:
    """Parse a lock file; None if it is not a lock, such as a half-written or foreign file."""
    try:
        return from_json(typed_json.bounded_loads(content))
    except ValueError:
        return None


def from_json(raw: Any) -> Holder | None:
    """Make a holder from parsed JSON, ignoring unknown fields; None if a field is missing or has a wrong
    type."""
    try:
        return typed_json.read(Holder, raw)
    except ValueError:
        return None


def lives(holder: Holder) -> bool | None:
    """Whether the holder's process is running, according to the table above; None: unknown."""
    if not is_here(holder):
        return None
    started = start_time(holder.pid)
    if started is None:
        # /proc may hide the processes of other users (hidepid).
        try:
            os.kill(holder.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        started = start_time(holder.pid)
        return None if started is None else started == holder.start
    return started == holder.start


def is_here(holder: Holder) -> bool:
    """Whether the holder's process number is valid here: same host, boot and PID namespace."""
    here = (socket.gethostname(), boot_id(), pid_namespace())
    return (holder.host, holder.boot, holder.namespace) == here and all(here)


def boot_id() -> str:
    """Return the kernel's random id of this boot; "" if it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def pid_namespace() -> str:
    """Return this process's PID namespace, `pid:[<inode>]`; "" if it cannot be read."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def start_time(pid: int) -> str | None:
    """Return a process's start time in kernel ticks; "dead" for a zombie; None if it cannot be read."""
    process = process_stat(pid)
    return process and ("dead" if process.ended else process.start)


class PinOwner(NamedTuple):
    """The reader who owns a pin: a job or a process."""

    holder: Holder  # the reader's process; the pin lasts until it ends
    program: str  # the name of that process's program

    @property
    def key(self) -> str:
        """The key common to all pins of this start of the job, or of this process."""
        holder = self.holder
        if holder.job:
            return f"{os.geteuid()}-{holder.cluster or 'cluster'}-{holder.job}-{holder.restart}"
        return f"{os.geteuid()}-{holder.host}-{holder.pid}-{holder.start}"


def this_owner() -> PinOwner:
    """Return the reader for whom this process runs. Fields that /proc hides are empty."""
    holder = this_process("", "path")
    pid = _reader(os.getpid())
    process = process_stat(pid)
    return PinOwner(
        replace(holder, pid=pid, start=start_time(pid) or ""),
        process.name if process is not None else "",
    )


def _reader(pid: int) -> int:
    """Return the process that most likely runs as long as the data are read.

    | this process is called                         | its process group is led by | reader             |
    |------------------------------------------------|-----------------------------|--------------------|
    | by a script, in `$(...)` of it, by its children| the script                  | the script         |
    | at a shell's prompt                            | this process itself         | the shell above it |
    | at a prompt, in a pipeline                     | no process above this one   | the shell above it |
    | with nothing above it that can be seen         | any                         | the parent         |
    """
    group, above = os.getpgrp(), _above(pid)
    if group != pid and group in above:
        return group
    for ancestor in above:
        try:
            if os.getpgid(ancestor) != group:
                return ancestor
        except OSError:
            break
    return above[0] if above else pid


def _above(pid: int) -> list[int]:
    """Return the processes above `pid`, its parent first."""
    ancestors: list[int] = []
    while (process := process_stat(pid)) is not None and process.parent > 0:
        pid = process.parent
        ancestors.append(pid)
    return ancestors
