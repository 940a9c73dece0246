"""A node's answer to preflight's probe, as one JSON document: the host, the target's mount and the sources.

The probe's job writes it into the target's folder. Preflight reads and removes it, and keeps it in its result
(`nodes`).
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.core.documents.node_cores import NodeCores
from penstock.core.documents.typed_json import Document


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
    # results of checks of the node's own mounts: `core.checks.CheckResult`s
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
