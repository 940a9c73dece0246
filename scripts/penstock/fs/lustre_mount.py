"""Lustre: the mount options of its client (mount.lustre(8)), parsed and judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.core.human import printable
from penstock.core.run_steps import CheckResult
from penstock.fs.kinds import IN_WORDS, MountProof

if TYPE_CHECKING:
    from penstock.host.kernel_facts import Mount


class LustreMount(NamedTuple):
    point: str
    servers: str  # the management servers, as the mount's device names them
    filesystem: str
    locks: str  # range of flock(2): `nodes`, `machine`, or `nobody` if flock(2) fails
    user_xattr: bool
    read_only: bool


def parse_mount(mount: Mount) -> LustreMount:
    """Parse a line of the mount table.

    | options        | locks     |
    |----------------|-----------|
    | `flock`        | `nodes`   |
    | `localflock`   | `machine` |
    | neither        | `nobody`  |
    """
    values = mount.values
    servers, _, filesystem = mount.device.rpartition(":/")
    return LustreMount(
        point=mount.point,
        servers=servers,
        filesystem=filesystem,
        locks="nodes" if "flock" in values else "machine" if "localflock" in values else "nobody",
        user_xattr="user_xattr" in values,
        read_only="ro" in values,
    )


def proof(_: LustreMount) -> MountProof:
    """Return the mount's proof. The client keeps data only in the page cache, and writes it back later."""
    return MountProof("synced")


def proof_of(mount: Mount, _: object) -> MountProof:
    """Return the mount's proof, as `mount_checks.MountModule` requires."""
    return proof(parse_mount(mount))


def check(mount: Mount, _: object, *, source: bool) -> list[CheckResult]:
    """Judge the mount, as `mount_checks.MountModule` requires. A source is judged like a target."""
    del source
    return judge(parse_mount(mount))


def judge(mount: LustreMount) -> list[CheckResult]:
    """Judge the mount.

    | finding                                     | verdict                                               |
    |---------------------------------------------|-------------------------------------------------------|
    | any mount: its cache                        | ok                                                    |
    | flock                                       | ok                                                    |
    | localflock, or neither                      | note: penstock needs no flock, other programs may     |
    | user_xattr; without                         | ok; note                                              |
    """
    about = f"Lustre mount {printable(mount.point)}"
    locks = {
        "nodes": CheckResult(about, "flock: locks are seen by all nodes"),
        "machine": CheckResult(
            about,
            "localflock: a lock is seen on its own node alone; no lock of penstock rests on flock",
            "note",
        ),
        "nobody": CheckResult(
            about,
            "mounted without flock: programs that lock files fail; no lock of penstock rests on it",
            "note",
        ),
    }[mount.locks]
    xattrs = (
        CheckResult(about, "user_xattr: files can have extended attributes")
        if mount.user_xattr
        else CheckResult(about, "mounted without user_xattr: users' extended attributes are refused", "note")
    )
    return [CheckResult(about, f"page cache: {IN_WORDS['synced']}"), locks, xattrs]
