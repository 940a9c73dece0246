"""The durability barrier for file systems whose disks syncfs reaches: ext4, XFS, btrfs, WEKA.

One syncfs replaces an fsync for each file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from penstock.core.errors import FailedError
from penstock.fs import libc
from penstock.fs.errno_map import NO_SPACE, storage_error

if TYPE_CHECKING:
    from pathlib import Path


class Barrier:
    """A durability barrier for all files written below `data` after this object was made.

    The constructor opens a descriptor, since the kernel reports a failed write-back only to descriptors that
    are open at that time. If syncfs does not reach the servers (BeeGFS, NFS, Lustre), the writer must use
    `fsync` instead. The constructor raises OSError.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._fd = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def wait(self) -> None:
        """Make all bytes that were written before this call durable, with one syncfs.

        Raises NoSpaceError if the target is full, FailedError for any other error. After an error, all bytes
        since the last successful call must be written again. A further sync is not enough: the kernel may
        have dropped the bytes.
        """
        try:
            libc.syncfs(self._fd)
        except OSError as error:
            if error.errno in NO_SPACE:
                raise storage_error(
                    error, "the written data did not reach the disk", str(self._data)
                ) from None
            raise FailedError(
                "the written data did not reach the disk",
                where=str(self._data),
                why=error.strerror or str(error),
                hint="the same command writes it anew",
            ) from None

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
