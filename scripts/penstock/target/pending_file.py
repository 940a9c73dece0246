"""A file that is being written in order, under a temporary or its final name.

`staging_writer` and `part_files` begin one and end it; copy's workers (`engine.transfer`) write the bytes.
Changes that file alone. Sizes and positions are in bytes.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from penstock.core.errors import FailedError
from penstock.fs import libc
from penstock.fs.errno_map import storage_error
from penstock.fs.holes import clear
from penstock.fs.safe_open import read_at

if TYPE_CHECKING:
    from collections.abc import Callable

_NO_REFLINK = frozenset(
    {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS, errno.EPERM}
)


class Pending:
    """A file, or one part of a large one, that is being written: `fd` takes the bytes, from `position`.

    `path` is relative to `data`, `parent` and `name` are its folder and last name; `temporary` is the name
    that the file has meanwhile, "" for a giant, which has its final one. `size` is the whole file's. `part`:
    other attempts write the same file. `holes`: zeros were skipped."""

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

    def reflink(self, fd: int) -> bool:
        """Take all blocks of another file of this size, in place of writing; False where the file system does
        not share them. Raises by `errno_map.storage_error`."""
        try:
            libc.reflink(self.fd, fd)
        except OSError as error:
            if error.errno in _NO_REFLINK:
                return False
            raise storage_error(error, "cannot share blocks", self.path) from None
        return True

    def copy(self, fd: int, view: memoryview, alive: Callable[[], None]) -> None:
        """Write the bytes of another file of this size, by `view`; `alive` is called between blocks. Raises
        FailedError where it ends early, and by `errno_map.storage_error`."""
        try:
            while self.position < self.size:
                read = read_at(fd, view[: self.size - self.position], self.position)
                if not read:
                    raise FailedError(
                        "a file of a release was cut while it was read",
                        where=self.path,
                        hint="see who writes into the release: what is published never changes",
                    )
                self.write_all(view[:read])
                alive()
        except OSError as error:
            raise storage_error(error, "cannot read a file of a release", self.path) from None

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
