"""What a node says of its cores in its answer to preflight's probe: the machine's shape, the cores that
WEKA's containers hold, and what its own configuration files say of cpusets. Pure; `doctor.preflight` fills it
on the node, and the choice of cores for SLURM jobs reads it.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.core.documents import typed_json


class Nic(NamedTuple):
    """A network device that is a device of the machine."""

    name: str
    node: int | None = None
    """The NUMA node that it hangs on; None where the kernel does not say."""


class Machine(NamedTuple):
    """The shape of a machine, in the kernel's numbers of CPUs. A CPU is what the kernel schedules on: a
    thread of a core. Only CPUs that are online are there. () and {} are not known."""

    cores: Sequence[Sequence[int]] = ()
    """The CPUs of each core, which are each other's siblings."""
    sockets: Sequence[Sequence[int]] = ()
    caches: Sequence[Sequence[int]] = ()
    """The CPUs below each cache of level 3."""
    nodes: Mapping[int, Sequence[int]] = typed_json.NOTHING
    """The CPUs of each NUMA node that has some, by its number."""
    nics: Sequence[Nic] = ()


class HeldCores(NamedTuple):
    """The cores that one container of WEKA's client, or all of them together, holds."""

    container: str
    """"" where it is not known which."""
    cpus: Sequence[int]
    """In the kernel's numbers."""
    by: str
    """What says so, for people: `weka local resources`."""
    net: Sequence[str] = ()
    """Its network devices, as far as they are known by name."""
    sure: bool = True
    """False: these are the CPUs that its processes may use, and it may hold fewer."""


class FileValue(NamedTuple):
    """One setting in one file."""

    path: str
    value: str | None = None
    """None: the file does not set it, or cannot be read."""
    error: str = ""
    """Why the file cannot be read; "" where it can."""


class NodeCores(NamedTuple):
    """All that a node says of its cores."""

    machine: Machine = Machine()
    weka: bool = False
    """Whether WEKA is there at all: a mount, a process or its configuration."""
    held: Sequence[HeldCores] = ()
    """() where nothing is known of them."""
    udp: bool = False
    """Whether a mount's options give WEKA's client no core of its own (`num_cores=0` with `net=udp`)."""
    isolate_cpusets: Sequence[FileValue] = ()
    constrain_cores: FileValue | None = None
    """ConstrainCores of the cgroup.conf that this node has."""
