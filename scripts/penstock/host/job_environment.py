"""The job environment of this process: job, element, restarts, node, CPUs and memory that the cluster gave
it.

A process sets it once, at its start (`cli.main`), to what the cluster port reads
(`cluster.registry.read_job_environment`). Layers below the port (locks, the engine's sizing) read it here and
know no scheduler's names. Unset: in no job.
"""

from __future__ import annotations

import os
from typing import NamedTuple

# Environment variable: CPUs that an element may use, if no scheduler says so. The local cluster sets it, and
# a site may.
GIVEN_CPUS = "PENSTOCK_CPUS"


class JobEnvironment(NamedTuple):
    """The job that this process is in, by the cluster. A field is empty if the cluster does not state it. A
    NamedTuple, since every command loads it: a frozen dataclass takes 1.5 ms longer to import (`python -X
    importtime`)."""

    job: str = ""  # its number; of an array's element the element's own
    # Whether the kernel, too, says that this process is in that job. Processes begun inside a job inherit its
    # number and may outlive it. The number suffices to name an attempt; a lock, for whose holder the
    # scheduler is queried, needs the proof.
    proven: bool = False
    cluster: str = ""  # its name: a job's number means nothing without it
    array: str = ""  # the array's decimal number, if the job is an element
    array_name: str = ""  # submitted name of the job or array (`ArraySpec.name`)
    element: int | None = None  # the element's index in its array
    restarts: int = 0  # how often the scheduler restarted it
    node: str = ""  # the node's name in the cluster
    cpus: int | None = None  # that this process may use, at least 1
    cpus_from: str = ""  # environment variable behind `cpus`, for messages
    memory: int | None = None  # bytes granted on this node, at least 1
    # Name of the job's own control group: a part of the paths in /proc/self/cgroup that all processes of the
    # job have, and no others. "": none.
    cgroup: str = ""
    # when an element is to stop, before its time ends, in seconds since the epoch; 0: not known
    stop_at: float = 0.0


_entered = [JobEnvironment()]


def current() -> JobEnvironment:
    """Return the environment that was entered last; before that an empty one."""
    return _entered[0]


def enter(environment: JobEnvironment) -> None:
    """Set what `current` returns, for all threads of this process."""
    _entered[0] = environment


def host_name() -> str:
    """Return the node's name in the cluster, else this machine's."""
    return current().node or os.uname().nodename
