"""The disks of the guest: image files on this machine, block devices /dev/ubda, ubdb ... in the guest."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

MIB = 1 << 20
FOLDER = Path("/run/data")
"""Below it each disk is mounted in the guest, under its name."""


class Disk(NamedTuple):
    """A disk, and what it holds: the metadata (and management), or one storage target."""

    name: str
    size: int  # bytes; the image is sparse
    make: tuple[str, ...]  # the command that makes the file system, without the image
    mount: tuple[str, ...]  # words of mount(8)
    node: int = 0  # the storage server; 0: metadata
    target: int = 0  # the target's number

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def store(self) -> Path:
        """The folder that the server gets."""
        return self.folder / "store"

    @property
    def device(self) -> Path:
        return Path(f"/dev/ubd{chr(ord('a') + DISKS.index(self))}")


EXT4 = ("mkfs.ext4", "-q", "-O", "quota")
EXT4_MOUNT = ("-t", "ext4", "-o", "usrquota,grpquota")
XFS = ("mkfs.xfs", "-q", "-f")
XFS_MOUNT = ("-t", "xfs", "-o", "uquota,gquota")
# A metadata server makes 65,536 folders when it first starts: it wants more inodes than mkfs gives 1 GiB.
METADATA = ("mkfs.ext4", "-q", "-I", "512", "-i", "3072", "-J", "size=16")
DISKS = (
    Disk("meta", 1024 * MIB, METADATA, ("-t", "ext4", "-o", "user_xattr")),
    Disk("st1", 1024 * MIB, EXT4, EXT4_MOUNT, 1, 101),
    Disk("st2", 1024 * MIB, EXT4, EXT4_MOUNT, 1, 102),
    Disk("st3", 1024 * MIB, XFS, XFS_MOUNT, 2, 201),
    Disk("st4", 1024 * MIB, XFS, XFS_MOUNT, 2, 202),
    Disk("st5", 400 * MIB, EXT4, EXT4_MOUNT, 2, 203),
)
STORAGE = DISKS[1:]


def make_images(folder: Path) -> list[Path]:
    """Make the image of each disk, with an empty file system; in the order of the disks."""
    images = [folder / f"{disk.name}.img" for disk in DISKS]
    for disk, image in zip(DISKS, images, strict=True):
        image.touch()
        os.truncate(image, disk.size)
        subprocess.run([*disk.make, image], check=True)
    return images


def mount_all() -> None:
    """Mount the disks; in the guest, as root."""
    for disk in DISKS:
        disk.folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", *disk.mount, disk.device, disk.folder], check=True)
