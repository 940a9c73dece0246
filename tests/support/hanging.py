"""A mount on which every call waits, as on one whose server is away."""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MNT_DETACH = 2


@contextlib.contextmanager
def hanging_mount(point: Path) -> Iterator[Path]:
    """A FUSE mount: nobody reads the requests of the kernel."""
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("only root mounts, and with /dev/fuse")
    point.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"silent", os.fsencode(point), b"fuse.silent", 0, options.encode()) != 0:
        os.close(fd)
        pytest.skip(f"no FUSE mount here: {os.strerror(ctypes.get_errno())}")
    try:
        yield point
    finally:
        # The connection ends, and with it every call that waits.
        os.close(fd)
        libc.umount2(os.fsencode(point), MNT_DETACH)
