"""A disk whose power can be cut: an ext4 or XFS in a file, by loop, and the ioctl that ends it at once.

The ioctl (EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN: one number) without a flush of the log is what the kernel's
own crash tests use: nothing that lies in memory is written any more, every later write is an error. What the
next mount finds is what had been made durable, and whatever the kernel had written back by itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
from tests.support.commands import until

if TYPE_CHECKING:
    from collections.abc import Collection

_GOING_DOWN = 0x8004587D
"""_IOR('X', 125, __u32)."""
_NO_LOG_FLUSH = 2
SIZE = 320 << 20
"""Bytes of the image, which is sparse: mkfs.xfs makes nothing below 300 MiB."""


def _elsewhere() -> Collection[str]:
    """A process of each other mount namespace."""
    spaces = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            spaces[os.readlink(process / "ns/mnt")] = process.name
    spaces.pop(os.readlink("/proc/self/ns/mnt"), None)
    return spaces.values()


class Disk:
    """Mounted while it is a context. Skips who is not root, or has not the programs or the file system."""

    def __init__(self, kind: str, folder: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root mounts")
        if shutil.which(f"mkfs.{kind}") is None:
            pytest.skip(f"mkfs.{kind} is not installed")
        self.kind, self.image, self.point = kind, folder / "image", folder / "disk"
        self.point.mkdir()
        with self.image.open("wb") as stream:
            stream.truncate(SIZE)
        quick = ["-E", "lazy_itable_init=1,lazy_journal_init=1"] if kind == "ext4" else []
        subprocess.run([f"mkfs.{kind}", "-q", *quick, self.image], check=True, capture_output=True)

    def __enter__(self) -> Self:
        # ext4 writes its journal every five seconds, in which a slow run would be durable by chance.
        options = "loop,commit=300" if self.kind == "ext4" else "loop"
        done = subprocess.run(
            ["mount", "-t", self.kind, "-o", options, self.image, self.point],
            capture_output=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"no loop mount of {self.kind} here: {done.stderr.decode(errors='replace').strip()}")
        return self

    def __exit__(self, *_: object) -> None:
        try:
            until(self._unmounted, f"{self.point} to be closed by everybody")
        except AssertionError:
            # Left mounted, it would fail the clean-up of every later session, too.
            subprocess.run(["umount", "--lazy", self.point], check=True)
            raise
        # Mounted again while anybody has it, it would still be the one that went down.
        until(self._given_back, "the loop device to be given back")

    def _unmounted(self) -> bool:
        return not subprocess.run(["umount", self.point], capture_output=True, check=False).returncode

    def _given_back(self) -> bool:
        attached = subprocess.run(["losetup", "-j", self.image], check=True, capture_output=True).stdout
        if attached:
            # Mount namespaces that were made meanwhile, as those of a test cluster's nodes, have copies.
            for pid in _elsewhere():
                words = ["nsenter", "--target", pid, "--mount", "umount", "--lazy", self.point]
                subprocess.run(words, capture_output=True, check=False)
        return not attached

    def cut(self) -> None:
        """The power is gone, for whoever writes now."""
        fd = os.open(self.point, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _GOING_DOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def again(self) -> None:
        """The power is back. Nobody may have anything open there any more."""
        self.__exit__()
        self.__enter__()
