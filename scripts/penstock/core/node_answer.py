"""What a node answers to preflight's probe, as one JSON document: its host, its cores, the target's mount and
the sources. Pure; filled on the node, judged by preflight.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.core import typed_json
from penstock.core.typed_json import Document


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


# A node's answer to preflight's probe, as one JSON document: the host, the target's mount and the sources.
#
# The probe's job writes it into the target's folder. Preflight reads and removes it, and keeps it in its
# result (`nodes`).


class HostSeen(NamedTuple):
    """The node as this account's job sees it."""

    name: str
    kernel: str  # its release (`uname -r`)
    machine: str
    cpus: int  # that the probe's job may use
    memory: int  # bytes of the whole node
    uid: int
    gid: int
    groups: Sequence[int] = ()


class MountSeen(NamedTuple):
    """The file system of a folder, as a machine sees it (`fs.capabilities`)."""

    path: str
    kind: str = ""  # its name in the table of file systems; "": not known, for the reason in `error`
    options: str = ""
    device: str = ""
    free_bytes: int = 0
    total_bytes: int = 0
    free_inodes: int | None = None
    durability: str = ""
    read_only: bool = False
    passable: bool = False  # whether a read provably bypasses all caches of that machine
    error: str = ""


class OwnerSeen(NamedTuple):
    """Owner and group of a file, as a machine sees them."""

    uid: int
    gid: int
    user: str = ""  # the number's name there, or ""
    group: str = ""


class AclEntrySeen(NamedTuple):
    """A user or group of the dataset's ACL, as a machine knows it."""

    entry: str  # as in `permissions.acl`
    number: int | None = None  # of that user or group there; None: the machine does not know the name
    holder: str = ""  # name there of the number on the submitting machine; "": that number has no name


class AclsSeen(NamedTuple):
    """What a machine says of the dataset's ACLs (`permissions.acl`)."""

    refused: str = ""  # why the target keeps no POSIX ACLs there; "": it answers a read of one
    error: str = ""  # why that is not known
    mapped: bool = False  # the machine says that user and group numbers are mapped on the target's mount
    entries: Sequence[AclEntrySeen] = ()


class SourceSeen(NamedTuple):
    """A source of the dataset, opened on the node."""

    url: str
    error: str = ""  # why it cannot be opened there, or ""
    mount: MountSeen | None = None  # if the source is a folder


class BandwidthFolderSeen(NamedTuple):
    """The folder of the cap that all runs share (`bandwidth.folder`), as a machine sees it."""

    path: str
    error: str = ""  # why elements cannot use it there, or ""
    wrong: str = ""  # why the cap file is not trusted there; "": it is, or does not exist
    # whether the submitting machine sees the same folder at that path; None: not known
    same: bool | None = None


class NodeAnswer(NamedTuple):
    host: HostSeen
    target: MountSeen
    sources: Sequence[SourceSeen]
    # results of checks of the node's own mounts: `core.events.CheckResult`s
    checks: Sequence[Mapping[str, str]] = ()
    penstock: str = ""  # the version on the node
    written: OwnerSeen | None = None  # owner of this answer's file, which the node made; None: not known
    acls: AclsSeen | None = None  # None: no ACLs are configured
    cores: NodeCores | None = None  # None: not known
    link: BandwidthFolderSeen | None = None  # None: no cap is configured

    @property
    def errors(self) -> list[str]:
        """Why sources cannot be opened there."""
        return [source.error for source in self.sources if source.error]


NODE_ANSWER = Document(NodeAnswer, "a node's answer")
