"""What a file system is and what it can do: kind, space, durability, direct reads.

| kind                         | durability auto       | direct reads honoured | no other cache          |
|------------------------------|-----------------------|-----------------------|-------------------------|
| ext4 xfs btrfs wekafs        | syncfs (Linux >= 5.8) | yes                   | yes                     |
| lustre beegfs nfs            | fsync                 | yes                   | yes                     |
| ceph cifs f2fs               | fsync                 | no                    | yes                     |
| tmpfs                        | syncfs                | no (succeeds, cached) | no: all is in memory    |
| fuse overlay 9p zfs gpfs and | fsync                 | no                    | no: a daemon, a pool or |
| whatever else                |                       |                       | the layer below         |

syncfs reports write-back errors since Linux 5.8. BeeGFS's and Lustre's clients have no sync_fs at all
(Lustre: `lustre_super_operations` in llite/super25.c; its writepages only starts what an fsync makes durable
by an OST_SYNC), so data is durable there by fsync of each file; nobody has measured Lustre with penstock.
"No other cache": a file's bytes are in no cache of this machine but the page cache, which can be emptied of
them. Elsewhere no read is called `cold`.
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from penstock.filesystem import libc

_KINDS = {
    0xEF53: "ext4",
    0x58465342: "xfs",
    0x9123683E: "btrfs",
    0x01021994: "tmpfs",
    0x858458F6: "ramfs",
    0x19830326: "beegfs",
    0x0BD00BD0: "lustre",
    0x6969: "nfs",
    0x65735546: "fuse",
    0x794C7630: "overlay",
    0x47504653: "gpfs",
    0x00C36400: "ceph",
    0xFF534D42: "cifs",
    0x2FC12FC1: "zfs",
    0x01021997: "9p",
    0xF2F52010: "f2fs",
}
_ALIASES = {"nfs4": "nfs", "ext2": "ext4", "ext3": "ext4"}
_SYNCFS = frozenset({"ext4", "xfs", "btrfs", "tmpfs", "wekafs"})
_DIRECT = frozenset({"ext4", "xfs", "btrfs", "beegfs", "wekafs", "lustre", "nfs"})
_ONE_CACHE = _DIRECT | {"ceph", "cifs", "f2fs"}


@dataclass(frozen=True)
class StorageFacts:
    """Of the file system that holds one folder, as seen now by this user."""

    kind: str
    free_bytes: int
    """That this user may fill (without the blocks reserved for root)."""
    total_bytes: int
    free_inodes: int | None
    """None: unknown (BeeGFS and btrfs always report 0 of 0)."""
    durability: str
    """`fsync` or `syncfs`: what `engine.durability: auto` means here."""
    direct: bool
    """Whether O_DIRECT reads are known to pass this machine's caches."""
    read_only: bool
    mount_options: str
    device: str

    @property
    def passable(self) -> bool:
        """Whether a read can be shown to pass all caches of this machine: a file's bytes are nowhere on it
        but in the page cache, which can be emptied of them."""
        return passable(self.kind)


def passable(kind: str) -> bool:
    """The same by the kind alone."""
    return kind in _ONE_CACHE


def facts(path: Path) -> StorageFacts:
    """Facts of the nearest folder that exists at or above `path`. Raises OSError."""
    real = Path(os.path.realpath(path))
    while not real.exists() and real != real.parent:
        real = real.parent
    space = os.statvfs(real)
    fstype, options, device = mount_of(str(real), mount_table())
    kind = kind_of(libc.statfs_type(str(real)), fstype)
    return StorageFacts(
        kind=kind,
        free_bytes=space.f_bavail * space.f_frsize,
        total_bytes=space.f_blocks * space.f_frsize,
        free_inodes=None if space.f_files == 0 and space.f_ffree == 0 else space.f_favail,
        durability=durability_of(kind, platform.release()),
        direct=kind in _DIRECT,
        read_only=bool(space.f_flag & os.ST_RDONLY),
        mount_options=options,
        device=device,
    )


def kind_of(magic: int, fstype: str) -> str:
    """The kind, by statfs's number and the mount table's name; the table knows WEKA by name only."""
    name = _ALIASES.get(fstype, fstype)
    if name == "fuse" or name.startswith("fuse."):
        return "fuse"
    return _KINDS.get(magic) or name or f"unknown-{magic:x}"


def durability_of(kind: str, release: str) -> str:
    """`syncfs` or `fsync`, by the table above; `release` is the kernel's (`uname -r`)."""
    version = re.match(r"(\d+)\.(\d+)", release)
    reports = version is not None and (int(version[1]), int(version[2])) >= (5, 8)
    return "syncfs" if kind == "tmpfs" or (kind in _SYNCFS and reports) else "fsync"


def mount_table() -> str:
    """This process's mounts as the kernel lists them; "" when they cannot be read."""
    try:
        return Path("/proc/self/mountinfo").read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def mount_of(path: str, mountinfo: str) -> tuple[str, str, str]:
    """(type, options, device) of the mount that holds the real path; ("", "", "") when none does."""
    best, found = -1, ("", "", "")
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, tail = left.split(" "), right.split(" ")
        if len(fields) < 6 or len(tail) < 3:
            continue
        point = _unescape(fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two mounts on one point the later one is seen.
        if inside and len(point) >= best:
            best = len(point)
            found = (tail[0], f"{fields[5]},{tail[2]}", _unescape(tail[1]))
    return found


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)
