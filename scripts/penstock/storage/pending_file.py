"""A file that is being written in order, under a temporary or its final name."""

from __future__ import annotations

import os

from penstock.filesystem.errno_map import storage_error
from penstock.filesystem.holes import clear


class Pending:
    """A file, or one part of a giant, that is being written: `fd` takes the bytes, from `position`."""

    __slots__ = ("fd", "holes", "name", "parent", "part", "path", "position", "size", "temporary")

    def __init__(
        self, fd: int, path: str, parent: str, name: str, temporary: str, size: int, part: bool, position: int
    ) -> None:
        self.fd = fd
        self.path = path
        self.parent = parent
        self.name = name
        self.temporary = temporary
        self.size = size
        self.part = part
        self.position = position
        self.holes = False

    def write_all(self, view: memoryview) -> None:
        """Write a block after the one before (the first at the part's offset), short writes included.
        Raises by `errno_map.storage_error`."""
        try:
            while view:
                done = os.pwrite(self.fd, view, self.position)
                self.position += done
                view = view[done:]
        except OSError as error:
            raise storage_error(error, "cannot write", self.path) from None

    def skip(self, count: int) -> None:
        """In place of `count` zeros: a hole where the file system can have one. In a giant's file, where
        other bytes may lie, they are zeros afterwards. Raises by `errno_map.storage_error`."""
        self.holes = True
        if self.part:
            try:
                clear(self.fd, self.position, count)
            except OSError as error:
                raise storage_error(error, "cannot write", self.path) from None
        self.position += count
