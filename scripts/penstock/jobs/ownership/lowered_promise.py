"""A promise of space that is lowered while elements write what was promised.

The promise is a file below the root by which other runs know how much this one will still write. Copy and
repair call `LoweredPromise` whenever they count what their elements have done; it rewrites that file.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.jobs.forecast import FILE_SYSTEM_BLOCK
from penstock.jobs.ownership import promises

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout

EVERY = 60.0
"""Seconds, at least, between two times that a promise is lowered: the calls come more often."""


class LoweredPromise:
    """The promise of `run` (or of a repair, `documents.promise.of_repair`) to write `files` files and folders
    and `size` bytes in all. To be called with the files and bytes that its elements have done so far."""

    def __init__(self, layout: DatasetLayout, run: str, files: int, size: int) -> None:
        self._layout, self._run = layout, run
        self._files, self._bytes = files, size
        self._at = time.monotonic()

    def left(self, files: int, size: int) -> tuple[int, int]:
        """(bytes, files) that may still be written, when `files` and `size` bytes are done; bytes with a
        block of the file system for each file. Rather too many, since files that are linked or taken over
        count as if they were copied."""
        left = max(0, self._files - files)
        return max(0, self._bytes - size) + left * FILE_SYSTEM_BLOCK, left

    def __call__(self, files: int, size: int) -> None:
        """Lower the promise, if EVERY seconds have passed. Never raises PenstockError or OSError."""
        if time.monotonic() - self._at >= EVERY:
            self._at = time.monotonic()
            promises.lower(self._layout, self._run, *self.left(files, size))
