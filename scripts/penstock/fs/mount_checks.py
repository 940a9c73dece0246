"""Reads and judges the mount of a file system, using the module `fs.<product>_mount` of its product
(`kinds.Kind.product`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from penstock.core.human import printable
from penstock.core.run_steps import CheckResult
from penstock.fs import beegfs_mount as beegfs
from penstock.fs import libc
from penstock.fs import lustre_mount as lustre
from penstock.fs import nfs_mount as nfs
from penstock.fs import weka_mount as weka
from penstock.fs.kinds import AUTO, MountProof, kind_of, rules_of
from penstock.fs.owners import mapping
from penstock.host.kernel_facts import PROC, mount_of

if TYPE_CHECKING:
    from penstock.fs.kinds import Kind
    from penstock.host.kernel_facts import Mount


class MountModule(Protocol):
    """The functions of a product's module `fs.<product>_mount`."""

    def proof_of(self, mount: Mount, proc: str | os.PathLike[str], /) -> MountProof:
        """Return which reads come from the servers, and where an fsync ends. Never raises OSError."""
        ...

    def check(self, mount: Mount, proc: str | os.PathLike[str], /, *, source: bool) -> list[CheckResult]:
        """Judge the mount as a target, or as the source of a dataset. Never raises OSError."""
        ...


# {value of `kinds.Kind.product`: the product's module}
READERS: dict[str, MountModule] = {"beegfs": beegfs, "weka": weka, "lustre": lustre, "nfs": nfs}


def check_mount(
    path: str | os.PathLike[str],
    proc: str | os.PathLike[str] = PROC,
    *,
    source: bool = False,
) -> list[CheckResult]:
    """Judge this node's mount of the nearest folder at or above `path`, as a target or as a source. Returns
    [] for file systems without a product's module. Never raises; values that cannot be read give a result.
    The call waits if the folder's servers are away, since it makes a statfs(2)."""
    real = _nearest(path)
    mount = mount_of(real, proc)
    try:
        mounted = _row(real, mount)
    except OSError as error:
        about = f"mount {printable(mount.point or real)}"
        return [CheckResult(about, f"it does not answer: {error.strerror}", "warning")]
    results = _judge(mounted, mount, proc, source=source)
    if why := mapping(mount, proc):
        text = f"{why}: owners and groups have other numbers here than elsewhere; audits compare them by name"
        results.append(CheckResult(f"mount {printable(mount.point or real)}", text, "note"))
    return results


def check_chunk(
    path: str | os.PathLike[str],
    chunk: int,
    proc: str | os.PathLike[str] = PROC,
    *,
    named: str = AUTO,
) -> list[CheckResult]:
    """Judge whether chunks of this size, in bytes, suit the connections of this node's client. Returns [] if
    no client on this node uses RDMA, or the kind has no chunks. Raises OSError."""
    real = _nearest(path)
    mount = mount_of(real, proc)
    if rules_of(_row(real, mount), named).product != "beegfs":
        return []
    about = f"chunks on the mount {printable(mount.point or real)}"
    clients = beegfs.parse_mount(mount, beegfs.live_clients(proc)).clients
    return list(dict.fromkeys(beegfs.judge_chunk(about, client, chunk) for client in clients if client.rdma))


def directory_seconds(path: str | os.PathLike[str], proc: str | os.PathLike[str] = PROC) -> int:
    """Return the seconds for which this node may show a folder's old content, according to its mount options.
    Returns 0 if these state no time (all kinds except NFS)."""
    mount = mount_of(os.path.realpath(path), proc)
    return nfs.parse_mount(mount).directory_seconds if kind_of(-1, mount.type).product == "nfs" else 0


def _row(real: str, mount: Mount) -> Kind:
    return kind_of(libc.statfs_type(real), mount.type)


def proof_of(mounted: Kind, mount: Mount, proc: str | os.PathLike[str] = PROC) -> MountProof:
    """Return which reads come from the servers, and where an fsync ends, with this mount. `mounted` is the
    mount's own row."""
    reader = READERS.get(mounted.product)
    return MountProof() if reader is None else reader.proof_of(mount, proc)


def _judge(row: Kind, mount: Mount, proc: str | os.PathLike[str], *, source: bool) -> list[CheckResult]:
    reader = READERS.get(row.product)
    # The number from statfs may belong to a mount that the table does not show, since another mount hides it.
    # BeeGFS' clients in /proc count even then.
    hidden = mount.type not in (row.types or (row.name,))
    if reader is None or (hidden and row.product != "beegfs"):
        return []
    return reader.check(mount, proc, source=source)


def _nearest(path: str | os.PathLike[str]) -> str:
    real = os.path.realpath(path)
    while not os.path.lexists(real) and real != os.path.dirname(real):
        real = os.path.dirname(real)
    return real
