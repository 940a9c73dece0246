"""The files of a release, read where they lie: their MD5s.

Plan asks for them where a new object may be a file that the release holds under another name. Reads only.
"""

from __future__ import annotations

import hashlib
import os
import stat
from typing import TYPE_CHECKING

from penstock.fs.safe_open import OPEN_FOLDER, open_beneath

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MOST = 16 << 30
"""Bytes that are read at most, by one process: what is beyond is fetched by many."""
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class HeldFiles:
    """Reads files below a release's `data`, MOST bytes in all."""

    def __init__(self, data: Path, check: Callable[[], None]) -> None:
        """`check` is called before each file, and may raise."""
        self._data, self._check, self._left = data, check, MOST

    def md5(self, path: bytes, size: int) -> str:
        """In hex; "" where the file cannot be read, has another size or no data here (a stub), or enough was
        read."""
        self._check()
        if size > self._left:
            return ""
        self._left -= size
        try:
            root = os.open(self._data, OPEN_FOLDER)
            try:
                fd = open_beneath(root, os.fsdecode(path), FLAGS)
            finally:
                os.close(root)
            with open(fd, "rb", buffering=0) as file:
                seen = os.fstat(fd)
                if not stat.S_ISREG(seen.st_mode) or seen.st_size != size or seen.st_blocks == 0:
                    return ""
                return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        except OSError:
            return ""
