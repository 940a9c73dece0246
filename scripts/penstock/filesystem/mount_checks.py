"""Which client reads a mount, by the table of file systems (`kinds.Kind.client`); and what the mount says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.core.checks import CheckResult
from penstock.core.text import printable
from penstock.filesystem import libc
from penstock.filesystem.beegfs import mount as beegfs
from penstock.filesystem.kinds import AUTO, kind_of, rules_of
from penstock.filesystem.lustre import mount as lustre
from penstock.filesystem.mount_proof import MountProof
from penstock.filesystem.nfs import mount as nfs
from penstock.filesystem.owners import mapping
from penstock.filesystem.weka import mount as weka
from penstock.filesystem.weka.processes import cores_of_containers
from penstock.runtime.mounts import mount_of, mounts
from penstock.runtime.proc import PROC

if TYPE_CHECKING:
    from penstock.filesystem.kinds import Kind
    from penstock.runtime.mounts import Mount


def check_mount(
    path: str | os.PathLike[str],
    proc: str | os.PathLike[str] = PROC,
    *,
    source: bool = False,
) -> list[CheckResult]:
    """What this node's mount of the nearest folder at or above `path` says, judged as a target, or as the
    source of a dataset. [] for file systems that no client reads. Never
    raises: what cannot be read is a result. Looks at /proc, and calls statfs(2) on the folder, which waits
    where its servers are away."""
    real = _nearest(path)
    mount = mount_of(real, proc)
    try:
        mounted = _row(real, mount)
    except OSError as error:
        about = f"mount {printable(mount.point or real)}"
        return [CheckResult(about, f"it does not answer: {error.strerror}", "warning")]
    found = _judge(mounted, mount, proc, source=source)
    if why := mapping(mount, proc):
        text = f"{why}: owners and groups have other numbers here than elsewhere; audits compare them by name"
        found.append(CheckResult(f"mount {printable(mount.point or real)}", text, "note"))
    return found


def check_chunk(
    path: str | os.PathLike[str],
    chunk: int,
    proc: str | os.PathLike[str] = PROC,
    *,
    named: str = AUTO,
) -> list[CheckResult]:
    """Whether chunks of this size, bytes, suit the connections of this node's client. [] where no client of
    this node uses RDMA, and for kinds whose files have no chunks. Raises OSError."""
    real = _nearest(path)
    mount = mount_of(real, proc)
    if rules_of(_row(real, mount), named).client != "beegfs":
        return []
    about = f"chunks on the mount {printable(mount.point or real)}"
    clients = beegfs.parse_mount(mount, beegfs_clients(proc)).clients
    return list(dict.fromkeys(beegfs.judge_chunk(about, one, chunk) for one in clients if one.rdma))


def directory_seconds(path: str | os.PathLike[str], proc: str | os.PathLike[str] = PROC) -> int:
    """For how long this node may show a folder at `path` as it was, as the options of its mount say; 0 where
    they say nothing of it (all kinds but NFS)."""
    mount = mount_of(os.path.realpath(path), proc)
    return nfs.parse_mount(mount).directory_seconds if kind_of(-1, mount.type).client == "nfs" else 0


def _row(real: str, mount: Mount) -> Kind:
    return kind_of(libc.statfs_type(real), mount.type)


def proof_of(mounted: Kind, mount: Mount, proc: str | os.PathLike[str] = PROC) -> MountProof:
    """Which reads come from the servers, and where an fsync ends, as this mount says. `mounted` is the
    mount's own row."""
    if mounted.client == "beegfs":
        return beegfs.proof(beegfs.parse_mount(mount, beegfs_clients(proc)))
    if mounted.client == "weka":
        return weka.proof(weka.parse_mount(mount))
    if mounted.client == "lustre":
        return lustre.proof(lustre.parse_mount(mount))
    if mounted.client == "nfs":
        return nfs.proof(nfs.parse_mount(mount))
    return MountProof()


def beegfs_clients(proc: str | os.PathLike[str] = PROC) -> list[beegfs.Client]:
    """Of all BeeGFS mounts of this node, by the clients' ids; those that cannot be read are left out. What
    their live configuration does not print comes from the configuration file that it names, where that can be
    read."""
    folder = f"{proc}/{beegfs.CONFIGS}"
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    clients = []
    for name in names:
        live = _text(f"{folder}/{name}/config")
        if live is not None:
            client = beegfs.parse_config(live, name)
            written = _text(client.config_file) if client.config_file.startswith("/") else None
            clients.append(client if written is None else beegfs.with_file(client, written))
    return clients


def _text(path: str) -> str | None:
    """None where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read()
    except OSError:
        return None


def _judge(row: Kind, mount: Mount, proc: str | os.PathLike[str], *, source: bool) -> list[CheckResult]:
    if row.client == "beegfs":
        seen = beegfs.parse_mount(mount, beegfs_clients(proc))
        return beegfs.judge(seen, source=source)
    # The number of statfs may be that of a mount which another one hides in the table.
    if mount.type not in (row.types or (row.name,)):
        return []
    if row.client == "weka":
        own = weka.parse_mount(mount)
        # A bind mount is the same mount by another path: it has the same device number.
        further = {one.number: one for one in mounts(proc) if one.type == mount.type}
        further.pop(mount.number, None)
        others = [weka.parse_mount(one) for one in further.values()]
        return weka.judge(own, others, source=source, cores=cores_of_containers(proc))
    if row.client == "lustre":
        return lustre.judge(lustre.parse_mount(mount))
    if row.client == "nfs":
        groups, root = len(os.getgroups()), os.geteuid() == 0
        return nfs.judge(nfs.parse_mount(mount), source=source, groups=groups, root=root)
    return []


def _nearest(path: str | os.PathLike[str]) -> str:
    real = os.path.realpath(path)
    while not os.path.lexists(real) and real != os.path.dirname(real):
        real = os.path.dirname(real)
    return real
