"""A file system of its own in a file, mounted by loop: its bytes can be changed, or taken away, behind the
kernel's back."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLOCK = 4096
_FIBMAP = 1


@contextlib.contextmanager
def mounted(folder: Path, *options: str) -> Iterator[tuple[Path, Path]]:
    """(image, mount point) of an ext4 without a journal, of blocks of 4 KiB; `options` of mkfs.ext4. Skips
    who is not root."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    image, point = folder / "image", folder / "target"
    point.mkdir()
    with image.open("wb") as stream:
        stream.truncate(64 << 20)
    made = subprocess.run(
        ["mkfs.ext4", "-q", "-b", str(BLOCK), "-O", "^has_journal", *options, image],
        capture_output=True,
        check=False,
    )
    done = subprocess.run(["mount", "-o", "loop", image, point], capture_output=True, check=False)
    if made.returncode or done.returncode:
        pytest.skip(f"no loop mount here: {(made.stderr or done.stderr).decode(errors='replace').strip()}")
    try:
        yield image, point
    finally:
        subprocess.run(["umount", "--lazy", point], check=True)


MKFS = {
    "ext4": ("mkfs.ext4", "-q", "-b", str(BLOCK)),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}


@contextlib.contextmanager
def file_system(folder: Path, kind: str, *options: str, size: int = 320 << 20) -> Iterator[Path]:
    """The mount point of a new file system of `kind`, in a sparse image of `size` bytes (mkfs.xfs wants 300
    MiB); `options` of mount. Skips who is not root, and where there is no such mkfs."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    image, point = folder / f"image.{kind}", folder / f"mount.{kind}"
    point.mkdir()
    if kind == "tmpfs":
        mount = ["mount", "-t", "tmpfs", "-o", ",".join([f"size={size}", *options]), "tmpfs", point]
    else:
        make = MKFS[kind]
        if shutil.which(make[0]) is None:
            pytest.skip(f"{make[0]} is not installed")
        with image.open("wb") as stream:
            stream.truncate(size)
        subprocess.run([*make, image], check=True, capture_output=True)
        mount = ["mount", "-o", ",".join(["loop", *options]), image, point]
    done = subprocess.run(mount, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no mount here: {done.stderr.decode(errors='replace').strip()}")
    try:
        yield point
    finally:
        subprocess.run(["umount", "--lazy", point], check=True)


def blocks(path: Path) -> list[int]:
    """Where on its device each block of a file lies."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
        count = -(-path.stat().st_size // BLOCK)
        told = (fcntl.ioctl(stream, _FIBMAP, struct.pack("i", number)) for number in range(count))
        return [struct.unpack("i", one)[0] for one in told]
