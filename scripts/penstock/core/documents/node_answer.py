"""What a node answers to preflight's probe: one JSON document for the host, the target's mount and the
sources.

The probe's job writes it into the target's folder, and preflight removes it when it has read it; the result
of preflight keeps it (`nodes`). Here are its forms alone: pure.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.core.documents.node_cores import NodeCores
from penstock.core.documents.typed_json import Document


class HostSeen(NamedTuple):
    """The node itself, as this account's job sees it."""

    name: str
    kernel: str
    """Its release (`uname -r`)."""
    machine: str
    cpus: int
    """That the probe's job may use."""
    memory: int
    """Bytes, of the whole node."""
    uid: int
    gid: int
    groups: Sequence[int] = ()


class MountSeen(NamedTuple):
    """The file system that holds one folder, as one machine sees it (`fs.capabilities`)."""

    path: str
    kind: str = ""
    """Its name in the table of file systems; "" where nothing is known, and `error` says why."""
    options: str = ""
    device: str = ""
    free_bytes: int = 0
    total_bytes: int = 0
    free_inodes: int | None = None
    durability: str = ""
    read_only: bool = False
    passable: bool = False
    """Whether a read can be shown to pass all caches of that machine."""
    error: str = ""


class OwnerSeen(NamedTuple):
    """Owner and group of a file, as one machine sees them."""

    uid: int
    gid: int
    user: str = ""
    """The name of the number there; "" where that machine has none."""
    group: str = ""


class AclEntrySeen(NamedTuple):
    """A user or group that the dataset's ACL names, as one machine knows it."""

    entry: str
    """As `permissions.acl` has it."""
    number: int | None = None
    """Of that user or group there; None where the machine knows none of this name."""
    holder: str = ""
    """The name there of the number that it has on the submitting machine; "" where that number has none."""


class AclsSeen(NamedTuple):
    """What one machine says of the ACLs that the dataset is to have (`permissions.acl`)."""

    refused: str = ""
    """Why the target keeps no POSIX ACLs there, in words; "" where it answers a read of one."""
    error: str = ""
    """Why nothing is known of that."""
    mapped: bool = False
    """Whether the machine says that numbers of users and groups are mapped on the target's mount."""
    entries: Sequence[AclEntrySeen] = ()


class SourceSeen(NamedTuple):
    """One source of the dataset, opened on the node."""

    url: str
    error: str = ""
    """Why it cannot be opened there; "" where it can."""
    mount: MountSeen | None = None
    """Of a folder."""


class BandwidthFolderSeen(NamedTuple):
    """The folder of the cap that all runs keep to (`bandwidth.folder`), as one machine sees it."""

    path: str
    error: str = ""
    """Why elements cannot use it there; "" where they can."""
    wrong: str = ""
    """Why the cap file is not believed there; "" where it is, or there is none."""
    same: bool | None = None
    """Whether it is the folder that the submitting machine sees at that path; None: not known."""


class NodeAnswer(NamedTuple):
    """The whole answer."""

    host: HostSeen
    target: MountSeen
    sources: Sequence[SourceSeen]
    checks: Sequence[Mapping[str, str]] = ()
    """What checks of the node's own mounts saw: `core.checks.CheckResult`s."""
    penstock: str = ""
    """The version on the node."""
    written: OwnerSeen | None = None
    """Of the file that holds this answer, which the node made; None: not known."""
    acls: AclsSeen | None = None
    """None where the dataset is to have none."""
    cores: NodeCores | None = None
    """None: not known."""
    link: BandwidthFolderSeen | None = None
    """None where no cap is configured."""

    @property
    def errors(self) -> list[str]:
        """Why sources cannot be opened there."""
        return [one.error for one in self.sources if one.error]


NODE_ANSWER = Document(NodeAnswer, "a node's answer")
