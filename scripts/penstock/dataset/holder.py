"""Who holds a lock: what the lock file says, and whether that process still lives.

For the dataset's lock, claims of runs, pins of readers and shares of a network link: all name their maker by
a `Holder`. Reads /proc and the environment of this process; sends signal 0 at most.

| the holder is on                | its process            | verdict                                       |
|---------------------------------|------------------------|-----------------------------------------------|
| this host, this boot, this      | dead, a zombie, or its | dead: taken over at once                      |
| PID namespace                   | number is another's    |                                               |
| the same                        | there                  | alive                                         |
| anywhere else                   | cannot be seen         | unknown: the scheduler and the heartbeat say  |
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
import json
import os
import secrets
import socket
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from penstock.core import step_table
from penstock.core.documents import bounded_json, typed_json
from penstock.core.text import brief
from penstock.fs.owners import account
from penstock.host import job_environment
from penstock.host.proc import process_stat


@dataclass(frozen=True)
class Holder:
    """The content of a lock file."""

    run: str
    """The run's id, or "" where there is none."""
    command: str
    """The step or command that holds it."""
    user: str
    host: str
    boot: str
    namespace: str
    """Of the process numbers: containers of one host can hide processes from each other."""
    pid: Annotated[int, typed_json.between(1, 1 << 31)]
    start: str
    """The process's start time in the kernel's own ticks: a number used again has another."""
    job: str
    """The number of the job, or "" where the process is not proven to be in one (`JobEnvironment.proven`)."""
    restart: str
    """How many times the job was started again, decimal."""
    nonce: str
    """Random, new for each holder: it tells two locks of one process apart."""
    since: str
    """UTC, ISO 8601."""
    cluster: str
    """The name of the job's cluster: two clusters over one file system count their jobs alike."""

    def to_json(self) -> bytes:
        """The bytes of a lock file; `parse` reads them."""
        return json.dumps(asdict(self), sort_keys=True).encode() + b"\n"

    def describe(self) -> str:
        """One line, escaped: other accounts hold shares of a network link."""
        on = f" of cluster {brief(self.cluster)}" if self.cluster else ""
        job = f", SLURM job {brief(self.job)}{on}" if self.job else ""
        run = f"run {brief(self.run)}, " if self.run else ""
        return (
            f"{brief(self.user)} runs `penstock {brief(step_table.typed(self.command))}` on "
            f"{brief(self.host)}, process {brief(self.pid)}{job}, {run}since {brief(self.since)}"
        )


def this_process(run: str, command: str) -> Holder:
    """A holder with a new nonce."""
    job = job_environment.current()
    if not job.proven:
        job = job_environment.JobEnvironment()
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
    """None for anything but a whole lock file (one that is just being written, a foreign one)."""
    try:
        return from_json(bounded_json.loads(content))
    except ValueError:
        return None


def from_json(raw: Any) -> Holder | None:
    """A holder from parsed JSON. Fields that this version does not know are ignored; None where one is
    missing or of another type, and for anything else."""
    try:
        return typed_json.read(Holder, raw)
    except ValueError:
        return None


def lives(holder: Holder) -> bool | None:
    """By the table above: True alive, False dead for certain, None unknown."""
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
    """Whether the holder's process number can be looked up here: same host, same boot, same PID namespace."""
    here = (socket.gethostname(), boot_id(), pid_namespace())
    return (holder.host, holder.boot, holder.namespace) == here and all(here)


def boot_id() -> str:
    """The kernel's random id of this boot; "" where it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def pid_namespace() -> str:
    """The PID namespace of this process, `pid:[<inode>]`; "" where it cannot be read."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def start_time(pid: int) -> str | None:
    """In the kernel's ticks; "dead" for a zombie; None when it cannot be read."""
    seen = process_stat(pid)
    return seen and ("dead" if seen.ended else seen.start)
