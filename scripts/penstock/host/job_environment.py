"""The job environment of this process: job, element, restarts, node, CPUs and memory that the cluster gave
it.

A process sets it once, at its start (`cli.main`), to what the cluster port reads
(`cluster.registry.read_job_environment`). What stands below the port (locks, the engine's sizing) takes it
from here and knows no scheduler's names. A process that sets nothing is in no job. No file is read
or changed.
"""

from __future__ import annotations

import os
from typing import NamedTuple

GIVEN_CPUS = "PENSTOCK_CPUS"
"""In an element's environment: the CPUs that it may use where no scheduler says so. The local cluster sets
it, and a site may."""


class JobEnvironment(NamedTuple):
    """The job that this process is in, by the cluster's own word. A field is empty where the cluster does not
    give it.

    A NamedTuple, since every command loads it: as a frozen dataclass it takes 1.5 ms longer to import
    (`python -X importtime`).
    """

    job: str = ""
    """Its number: of an element of an array the element's own, not the array's."""
    proven: bool = False
    """Whether the kernel too says that this process is in that job. Whatever was begun inside a job inherits
    its number and may outlive it: the number alone is enough to name an attempt, but a lock, whose holder the
    scheduler is asked about, needs the proof."""
    cluster: str = ""
    """The cluster's name: a job's number means nothing without it."""
    array: str = ""
    """The array's number, decimal, where the job is an element of an array."""
    array_name: str = ""
    """The name that the job or array was submitted under (`ArraySpec.name`)."""
    element: int | None = None
    """The element's index in its array."""
    restarts: int = 0
    """How many times the scheduler started it again."""
    node: str = ""
    """The node's name, as the cluster knows it."""
    cpus: int | None = None
    """The CPUs that this process may use, at least 1."""
    cpus_from: str = ""
    """The environment variable that `cpus` was read from, for messages."""
    memory: int | None = None
    """Bytes granted on this node, at least 1."""
    cgroup: str = ""
    """The name of the job's own control group: a part of the paths in /proc/self/cgroup that all processes of
    the job have, and no others. "" where the job has none."""
    stop_at: float = 0.0
    """When an element is to stop, before its time ends, in seconds since the epoch; 0: not known."""


_entered = [JobEnvironment()]


def current() -> JobEnvironment:
    """What was set last; an empty one before."""
    return _entered[0]


def enter(environment: JobEnvironment) -> None:
    """Set what `current` returns, for all threads of this process."""
    _entered[0] = environment


def host_name() -> str:
    """The node as the cluster calls it, or this machine."""
    return current().node or os.uname().nodename
