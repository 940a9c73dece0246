"""The current facts about a folder's file system: its kind and abilities (`kinds`), space, mount.

A call of a function waits if the file system does not respond (`watched_facts` handles that case).
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.fs import libc
from penstock.fs.kinds import MountProof, kind_of, named_kind
from penstock.host.kernel_facts import (
    PROC,
    mount_of,
    mount_of_device,
    nearest,
)

if TYPE_CHECKING:
    from penstock.fs.kinds import Kind
    from penstock.host.kernel_facts import Mount


@dataclass(frozen=True)
class StorageFacts:
    """The facts about the file system of a folder, as `facts` reads them for this user."""

    traits: Kind  # the file system's abilities: its row in the table of kinds
    free_bytes: int  # bytes that this user may fill (without the blocks reserved for root)
    total_bytes: int
    free_inodes: int | None  # number of free inodes; None if unknown (BeeGFS and btrfs always report 0 of 0)
    # the call with which an element (a process that copies) makes files durable here: `fsync` or `syncfs`
    durability: str
    read_only: bool
    mount_point: str
    mount_options: str
    device: str
    proof: MountProof  # the proof that this mount's options leave for reads and fsync

    @property
    def kind(self) -> str:
        """The name of the file system's kind."""
        return self.traits.name

    @property
    def direct(self) -> bool:
        """Whether O_DIRECT reads are known to bypass this machine's caches."""
        return self.traits.direct

    @property
    def passable(self) -> bool:
        """Whether a read can provably bypass all caches of this machine. It can if the page cache, which can
        be emptied, is the only cache."""
        return self.traits.one_cache


def facts(path: Path, proc: str | os.PathLike[str] = PROC) -> StorageFacts:
    """Read the facts of the nearest existing folder at or above `path`. Raises OSError."""
    real = nearest(Path(os.path.realpath(path)))
    space = os.statvfs(real)
    mount = mount_of(str(real), proc)
    kind = kind_of(libc.statfs_type(str(real)), mount.type)
    return StorageFacts(
        traits=kind,
        free_bytes=space.f_bavail * space.f_frsize,
        total_bytes=space.f_blocks * space.f_frsize,
        free_inodes=None if space.f_files == 0 and space.f_ffree == 0 else space.f_favail,
        durability=durability_of(kind, platform.release()),
        read_only=bool(space.f_flag & os.ST_RDONLY),
        mount_point=mount.point,
        mount_options=mount.options,
        device=mount.device,
        proof=_proof(kind, mount, proc),
    )


def _proof(kind: Kind, mount: Mount, proc: str | os.PathLike[str]) -> MountProof:
    """Return the mount's proof. `mount_checks` is imported only here, since most workers do not need it."""
    if not kind.product:
        return MountProof()
    from penstock.fs.mount_checks import proof_of

    return proof_of(kind, mount, proc)


# The files that a reader opens with O_DIRECT. Other files are read after their pages were dropped.
# `unlinked`: files with a single name.
DirectReads = Literal["all", "unlinked", "none"]


def direct_reads(facts: StorageFacts, key: str, *, published: bool) -> DirectReads:
    """Choose the files to read with O_DIRECT, according to the option `verify.direct` (`key`).

    `published` says whether the tree is a release, or another tree that jobs may read. If not, it is a
    staging; a file with a second name in a staging also belongs to a release.

    | O_DIRECT is honoured | O_DIRECT harms others      | `verify.direct` | published | result           |
    |----------------------|----------------------------|-----------------|-----------|------------------|
    | no                   | any                        | any             | any       | none             |
    | yes                  | no                         | any             | any       | all              |
    | yes                  | yes                        | `always`        | any       | all              |
    | yes                  | yes                        | `unshared`      | no        | unlinked         |
    | yes                  | yes                        | `unshared`      | yes       | none             |
    """
    if not facts.direct:
        return "none"
    if key == "always" or not facts.proof.direct_harms:
        return "all"
    return "none" if published else "unlinked"


def traits_of_mount(path: str, proc: str | os.PathLike[str] = PROC) -> Kind:
    """Return the abilities of a real path's file system, judging only by the mount table."""
    return kind_of(-1, mount_of(path, proc).type)


def traits_of_device(number: int, proc: str | os.PathLike[str] = PROC) -> Kind:
    """Return the abilities of this device's file system (`st_dev`), judging only by the mount table."""
    return kind_of(-1, mount_of_device(number, proc).type)


def passable(name: str) -> bool:
    """Return `StorageFacts.passable` for a kind's name."""
    return named_kind(name).one_cache


def durability_of(kind: Kind, release: str) -> str:
    """Return `syncfs` or `fsync`, according to the table. `release` is the kernel's release (`uname -r`)."""
    version = re.match(r"(\d+)\.(\d+)", release)
    kernel = (int(version[1]), int(version[2])) if version else (0, 0)
    return "syncfs" if kind.syncfs_reaches(kernel) else "fsync"
