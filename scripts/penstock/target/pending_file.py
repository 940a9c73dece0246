"""A file that is being written in order, under a temporary or its final name."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from penstock.core.errors import FailedError
from penstock.fs import libc
from penstock.fs.errno_map import storage_error
from penstock.fs.libc import clear_range
from penstock.fs.safe_open import read_at

if TYPE_CHECKING:
    from collections.abc import Callable

_NO_REFLINK = frozenset(
    {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS, errno.EPERM}
)


class Pending:
    """A file, or one part of a large file, that is being written: `fd` takes the bytes, from `position`.

    `path` is relative to `data`; `parent` and `name` are its folder and last name. `temporary` is its present
    name, "" for a giant, which has its final name. `size` is the whole file's. `part`: other attempts write
    the same file. `holes`: zeros were skipped.
    """

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
        """Write a block at `position`, also by short writes."""
        try:
            while view:
                done = os.pwrite(self.fd, view, self.position)
                self.position += done
                view = view[done:]
        except OSError as error:
            raise storage_error(error, "cannot write", self.path) from None

    def reflink(self, fd: int) -> bool:
        """Share all blocks of another file of this size; return False where the file system cannot."""
        try:
            libc.reflink(self.fd, fd)
        except OSError as error:
            if error.errno in _NO_REFLINK:
                return False
            raise storage_error(error, "cannot share blocks", self.path) from None
        return True

    def copy(self, fd: int, view: memoryview, alive: Callable[[], None]) -> None:
        """Copy another file of this size through `view`, calling `alive` between blocks. Raises FailedError
        for a short file."""
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
        """Leave a hole for `count` zeros where possible. In a giant's file, older bytes there are zeroed."""
        self.holes = True
        if self.part:
            try:
                clear_range(self.fd, self.position, count)
            except OSError as error:
                raise storage_error(error, "cannot write", self.path) from None
        self.position += count
