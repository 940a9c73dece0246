"""The MD5s of a release's files, read where a new object may be such a file under another name."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import TYPE_CHECKING

from penstock.fs.safe_open import OPEN_FOLDER, open_beneath

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MOST = 16 << 30  # bytes read by this one process, at most; many processes fetch the rest
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class HeldFiles:
    """Files below a release's `data`; reads MOST bytes in all."""

    def __init__(self, data: Path, check: Callable[[], None]) -> None:
        """`check` is called before each file, and may raise."""
        self._data, self._check, self._left = data, check, MOST

    def md5(self, path: bytes, size: int) -> str:
        """Return the MD5 in hex; "" for a file not read.

        A file is not read if it is unreadable, has another size or no data here (a stub), or after MOST
        bytes.
        """
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
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode) or status.st_size != size or status.st_blocks == 0:
                    return ""
                return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        except OSError:
            return ""
