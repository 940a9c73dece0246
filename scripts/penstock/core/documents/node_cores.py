"""A node's cores, in its answer to preflight's probe, for the choice of cores for SLURM jobs."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.core.documents import typed_json


class Nic(NamedTuple):
    """A physical network device."""

    name: str
    node: int | None = None  # its NUMA node; None: not known


class Machine(NamedTuple):
    """The shape of a machine, in numbers of online CPUs (threads of cores). () and {}: not known."""

    cores: Sequence[Sequence[int]] = ()  # the CPUs of each core, which are siblings
    sockets: Sequence[Sequence[int]] = ()
    caches: Sequence[Sequence[int]] = ()  # the CPUs below each cache of level 3
    # the CPUs of each NUMA node that has any, by number
    nodes: Mapping[int, Sequence[int]] = typed_json.NOTHING
    nics: Sequence[Nic] = ()


class HeldCores(NamedTuple):
    """The cores held by a container of WEKA's client, or by all together."""

    container: str  # "": not known which
    cpus: Sequence[int]  # in the kernel's numbers
    by: str  # origin, for people: `weka local resources`
    net: Sequence[str] = ()  # its network devices, as far as known by name
    sure: bool = True  # False: its processes may use these CPUs, but it may hold fewer


class FileValue(NamedTuple):
    """A setting in a file."""

    path: str
    value: str | None = None  # None: the file does not set it, or cannot be read
    error: str = ""  # why the file cannot be read, or ""


class NodeCores(NamedTuple):
    machine: Machine = Machine()
    weka: bool = False  # WEKA is present at all: a mount, a process or its configuration
    held: Sequence[HeldCores] = ()  # (): none known
    # a mount's options give WEKA's client no core of its own (`num_cores=0` with `net=udp`)
    udp: bool = False
    isolate_cpusets: Sequence[FileValue] = ()
    constrain_cores: FileValue | None = None  # ConstrainCores of this node's cgroup.conf
