"""Whole-file checksums of served objects, each computed once for one state of the file."""

from __future__ import annotations

import base64
import hashlib
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK = 1 << 20


class Sums:
    """A cache of `compute` by the file's inode, size and modification time."""

    def __init__(self, compute: Callable[[int], str]) -> None:
        self._compute = compute
        self._lock = threading.Lock()
        self._known: dict[tuple[int, int, int], str] = {}

    def of(self, fd: int, stat: os.stat_result) -> str:
        identity = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        value = self._known.get(identity)
        if value is None:
            value = self._compute(fd)
            with self._lock:
                self._known[identity] = value
        return value


def md5_hex(fd: int) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    offset = 0
    while block := os.pread(fd, BLOCK, offset):
        digest.update(block)
        offset += len(block)
    return digest.hexdigest()


def crc64nvme_base64(fd: int) -> str:
    """As S3 writes it: base64 of the eight bytes, big-endian. Needs awscrt."""
    from awscrt.checksums import crc64nvme

    value = offset = 0
    while block := os.pread(fd, BLOCK, offset):
        value = crc64nvme(block, value)
        offset += len(block)
    return base64.b64encode(value.to_bytes(8, "big")).decode()
