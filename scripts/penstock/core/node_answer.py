"""A node's answer to preflight's probe, as a JSON document: the host, its cores, the target's mount and the
sources. Pure. The node fills the document, and preflight judges it.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.core import typed_json
from penstock.core.typed_json import Document


class Nic(NamedTuple):
    """A physical network device."""

    name: str
    node: int | None = None  # NUMA node of the device; None if not known


class Machine(NamedTuple):
    """The shape of a machine, in numbers of online CPUs (threads of cores). () and {}: not known."""

    cores: Sequence[Sequence[int]] = ()  # the CPUs of each core (siblings)
    sockets: Sequence[Sequence[int]] = ()
    caches: Sequence[Sequence[int]] = ()  # the CPUs below each cache of level 3
    # the CPUs of each NUMA node that has any, by number
    nodes: Mapping[int, Sequence[int]] = typed_json.NOTHING
    nics: Sequence[Nic] = ()


class HeldCores(NamedTuple):
    """The cores that a container of WEKA's client reserves, or that all its containers reserve together."""

    container: str  # the container's name; "" if not known
    cpus: Sequence[int]  # CPUs, as the kernel numbers them
    by: str  # readable origin of this knowledge: `weka local resources`
    net: Sequence[str] = ()  # names of its network devices, as far as known
    sure: bool = True  # False if the container uses these CPUs, but may reserve fewer of them


class FileValue(NamedTuple):
    """A setting in a file."""

    path: str
    value: str | None = None  # the setting's value; None if the file does not set it or cannot be read
    error: str = ""  # why the file cannot be read, or ""


class NodeCores(NamedTuple):
    machine: Machine = Machine()
    weka: bool = False  # whether WEKA has a mount, a process or a configuration here
    held: Sequence[HeldCores] = ()  # () if none are known
    # whether a mount's options give WEKA's client no core of its own (`num_cores=0` with `net=udp`)
    udp: bool = False
    isolate_cpusets: Sequence[FileValue] = ()
    constrain_cores: FileValue | None = None  # ConstrainCores of this node's cgroup.conf


# The probe's job writes the answer into the target's folder. Preflight reads and removes the file, and keeps
# the answer in its result (`nodes`).


class HostSeen(NamedTuple):
    """The node as this account's job sees it."""

    name: str
    kernel: str  # the kernel's release (`uname -r`)
    machine: str
    cpus: int  # number of CPUs that the probe's job may use
    memory: int  # memory of the whole node in bytes
    uid: int
    gid: int
    groups: Sequence[int] = ()


class MountSeen(NamedTuple):
    """The file system of a folder, as a machine sees it (`fs.capabilities`)."""

    path: str
    kind: str = ""  # name in penstock's table of file systems; "" if not known, for the reason in `error`
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
    user: str = ""  # name of the user number on that machine, or ""
    group: str = ""


class AclEntrySeen(NamedTuple):
    """A user or group of the dataset's ACL, as a machine knows it."""

    entry: str  # as in `permissions.acl`
    number: int | None = None  # number of that user or group there; None if the machine lacks the name
    holder: str = ""  # name on this machine of the number that `entry` has on the submitting machine; or ""


class AclsSeen(NamedTuple):
    """The dataset's ACLs (`permissions.acl`) as a machine sees them."""

    refused: str = ""  # why the target keeps no POSIX ACLs there; "" if an ACL could be read
    error: str = ""  # why it is not known whether the target keeps ACLs
    mapped: bool = False  # whether the target's mount there maps user and group numbers
    entries: Sequence[AclEntrySeen] = ()


class SourceSeen(NamedTuple):
    """A source of the dataset, opened on the node."""

    url: str
    error: str = ""  # why the source cannot be opened there, or ""
    mount: MountSeen | None = None  # the mount, if the source is a folder


class BandwidthFolderSeen(NamedTuple):
    """The folder of the cap that all runs share (`bandwidth.folder`), as a machine sees it."""

    path: str
    error: str = ""  # why elements cannot use the folder there, or ""
    wrong: str = ""  # why the cap file is not trusted there; "" if it is trusted or does not exist
    # whether the submitting machine sees the same folder at that path; None: not known
    same: bool | None = None


class NodeAnswer(NamedTuple):
    host: HostSeen
    target: MountSeen
    sources: Sequence[SourceSeen]
    # results of checks of the node's own mounts: `core.run_steps.CheckResult`s
    checks: Sequence[Mapping[str, str]] = ()
    penstock: str = ""  # the version of penstock on the node
    written: OwnerSeen | None = None  # owner of this answer's file, which the node made; None: not known
    acls: AclsSeen | None = None  # None if no ACLs are configured
    cores: NodeCores | None = None  # None if not known
    link: BandwidthFolderSeen | None = None  # None if no cap is configured

    @property
    def errors(self) -> list[str]:
        """Why sources cannot be opened there."""
        return [source.error for source in self.sources if source.error]


NODE_ANSWER = Document(NodeAnswer, "a node's answer")
