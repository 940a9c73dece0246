"""What a selftest may cost a file system that others use: operations a second, bytes, files, time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PER_SECOND = 200  # operations on files and folders; a site's metadata servers serve hundreds of users
MOST_BYTES = 1 << 30  # bytes that a selftest may write
MOST_FILES = 5000  # files that a selftest may make
WITHIN = 600.0  # seconds for everything


class Budget:
    """Counts what a selftest does, and slows it down. `wait` sleeps for seconds, and raises where the command
    is to stop."""

    def __init__(self, wait: Callable[[float], None], *, within: float = WITHIN) -> None:
        self._wait = wait
        self._began = time.monotonic()
        self._ends = self._began + within
        self._due = self._began
        self.operations = 0
        self.bytes = 0
        self.files = 0

    def spend(self, operations: int, *, size: int = 0, files: int = 0) -> None:
        """Wait before so many operations, which write `size` bytes into `files` new files: at most PER_SECOND
        a second. Raises ValueError beyond MOST_BYTES or MOST_FILES, and as `check`."""
        self.operations += operations
        self.bytes += size
        self.files += files
        if self.bytes > MOST_BYTES or self.files > MOST_FILES:
            raise ValueError(f"the selftest would write {self.bytes:,} bytes in {self.files:,} files")
        now = time.monotonic()
        ahead = self._due - now
        self._due = max(self._due, now) + operations / PER_SECOND
        if ahead > 0:
            self._wait(ahead)

    def check(self) -> None:
        """Raise where the command is to stop."""
        self._wait(0)

    @property
    def room(self) -> int:
        """Bytes that may still be written."""
        return max(0, MOST_BYTES - self.bytes)

    @property
    def left(self) -> float:
        """Seconds until the time is over, at least 0."""
        return max(0.0, self._ends - time.monotonic())

    @property
    def seconds(self) -> float:
        """Seconds since the budget was made."""
        return time.monotonic() - self._began
