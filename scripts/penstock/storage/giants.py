"""Parts of giants, written by several attempts and nodes into one file under its final name.

Guarantees. Parts lie at disjoint offsets, so their order does not matter, and an attempt that was
given up and writes on can only replace bytes by the same bytes.
"""

from __future__ import annotations

import os
import stat

from penstock.errors import FailedError
from penstock.storage.failures import printable, storage_error
from penstock.storage.pending import Pending
from penstock.storage.place import Place, split

_PART = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Parts(Place):
    """Writes parts of giants."""

    def begin_part(self, path: str, size: int, offset: int, length: int) -> Pending:
        """A giant's file under its final name, `size` long, to be written from `offset`.

        It can be written by its owner until the permissions step ran; other parts may be written at the
        same time, on other nodes. What lies there longer than planned is cut: each part's bytes are written
        or read back anyway. Raises FailedError for what is no file, or another release's too.
        """
        if offset < 0 or length < 0 or offset + length > size:
            raise ValueError(f"part [{offset}, {offset + length}) of {size} bytes")
        self._look()
        parent, name = split(path)
        fd = -1
        try:
            folder = self._enter(parent, make=True)
            fd = os.open(name, _PART, self._file_mode | 0o600, dir_fd=folder)
            pending = Pending(fd, path, parent, name, "", size, True, offset)
            seen = os.fstat(fd)
            if not stat.S_ISREG(seen.st_mode) or seen.st_nlink > 1:
                raise FailedError(
                    "a giant's place is taken by something else",
                    where=printable(path),
                    why=f"{seen.st_nlink} links" if stat.S_ISREG(seen.st_mode) else "it is no file",
                    hint=f"remove {printable(str(self._data / path))}: the same command goes on",
                )
            self.alive(pending)
            if seen.st_size != size:
                os.ftruncate(fd, size)
            if self._chown:
                self._dress(fd, 0)
        except BaseException as error:
            if fd >= 0:
                os.close(fd)
            if isinstance(error, PermissionError):
                raise self._fenced(path, "the file cannot be written any more") from None
            if isinstance(error, OSError):
                raise storage_error(error, "cannot create", path) from None
            raise
        return pending

    def finish_part(self, pending: Pending, mtime_ns: int | None = None) -> None:
        """Durability (by mode), then the time, close. Every part sets the same time after its own last
        write, so that the last of them leaves it, whichever it is."""
        fd = pending.fd
        try:
            if self._fsync:
                os.fsync(fd)
                self._touched.add(pending.parent)
            if mtime_ns is not None and self._keep_mtime:
                os.utime(fd, ns=(mtime_ns, mtime_ns))
            pending.fd = -1
            os.close(fd)
        except BaseException as error:
            self.discard(pending)
            if isinstance(error, OSError):
                raise storage_error(error, "cannot complete", pending.path) from None
            raise
