"""Writing into a release's staging: durable files, giants' parts, links, and the barrier.

Guarantees. A file has its final name only with all its bytes, its final mode, group and time; under
`durability="fsync"` its bytes are on the servers' disks before that name exists, under `"syncfs"` once
`Barrier.wait` has returned. An attempt that was given up and writes on can only replace bytes by the
same bytes, and stops as soon as it looks (`alive`). No path leaves `data`, no link is followed.
"""

from __future__ import annotations

import os
import re
import time

from penstock.filesystem.errno_map import storage_error
from penstock.filesystem.safe_open import EXHAUSTED, raise_limit
from penstock.storage.barrier import Barrier
from penstock.storage.links import Links
from penstock.storage.pending_file import Pending
from penstock.storage.shared_files import Parts
from penstock.storage.staging_folder import LOOK_EVERY, PREALLOCATE, split

__all__ = ["PREALLOCATE", "TEMPORARY", "Barrier", "Pending", "Writer", "prepare_process"]

TEMPORARY = re.compile(r"\.p\.[0-9a-f]{16}")
"""What the last component of a temporary name looks like; no dataset may use such a name."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def prepare_process() -> None:
    """Once in each process that writes: modes are given exactly, so no umask may take bits away; and as
    many files may be open as the system allows at all."""
    os.umask(0)
    raise_limit()


class _ShortError(Exception):
    """A write took only some of the bytes."""


class Writer(Parts, Links):
    """Writes files below `data`; for one thread. `attempt` names this attempt in messages."""

    def begin(self, path: str, size: int, *, holes: bool = False) -> Pending:
        """A new temporary file in the folder of `path`, with its final mode and group. Where it will
        have holes, no blocks are reserved."""
        if time.monotonic() - self._looked > LOOK_EVERY:
            self._look()
        parent, name = split(path)
        try:
            folder = self._parent_fd if parent == self._parent else self._enter(parent, make=True)
            self._count += 1
            temporary = f"{self._prefix}{self._count:08x}"
            try:
                fd = os.open(temporary, _NEW, self._file_mode, dir_fd=folder)
            except FileExistsError:
                self._new_prefix()
                return self.begin(path, size, holes=holes)
        except OSError as error:
            if self._relieved(error):
                return self.begin(path, size, holes=holes)
            raise storage_error(error, "cannot create", path) from None
        pending = Pending(fd, path, parent, name, temporary, size, False, 0)
        reserve = 0 if holes else size
        if self._chown or (reserve >= PREALLOCATE and self._preallocate):
            try:
                self._dress(fd, reserve)
            except BaseException as error:
                self.discard(pending)
                if isinstance(error, OSError):
                    raise storage_error(error, "cannot create", path) from None
                raise
        return pending

    def finish(self, pending: Pending, mtime_ns: int) -> None:
        """Time, durability, close, final name. On an error the temporary file is gone and the final name
        is as before; the file is to be written anew, never synced again."""
        fd = pending.fd
        try:
            if pending.holes:
                os.ftruncate(fd, pending.size)
            if self._keep_mtime:
                os.utime(fd, ns=(mtime_ns, mtime_ns))
            if self._fsync:
                os.fsync(fd)
                self._touched.add(pending.parent)
            pending.fd = -1
            os.close(fd)
            folder = (
                self._parent_fd if pending.parent == self._parent else self._enter(pending.parent, make=False)
            )
            os.rename(pending.temporary, pending.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException as error:
            self.discard(pending)
            if isinstance(error, OSError):
                raise storage_error(error, "cannot complete", pending.path) from None
            raise

    def put(self, path: str, data: memoryview, mtime_ns: int) -> None:
        """`begin`, `write_all` and `finish` of a file whose bytes are all at hand: the hot path of
        small files, without what only a large one needs."""
        if self._chown or len(data) >= PREALLOCATE or time.monotonic() - self._looked > LOOK_EVERY:
            self._put_slowly(path, data, mtime_ns)
            return
        parent, _, name = path.rpartition("/")
        if parent != self._parent or not name or path[0] == "/":
            self._put_slowly(path, data, mtime_ns)
            return
        folder = self._parent_fd
        self._count += 1
        temporary = f"{self._prefix}{self._count:08x}"
        try:
            fd = os.open(temporary, _NEW, self._file_mode, dir_fd=folder)
        except OSError as error:
            if not isinstance(error, FileExistsError) and error.errno not in EXHAUSTED:
                raise storage_error(error, "cannot create", path) from None
            self._put_slowly(path, data, mtime_ns)
            return
        try:
            if os.write(fd, data) != len(data):
                raise _ShortError
            if self._keep_mtime:
                os.utime(fd, ns=(mtime_ns, mtime_ns))
            if self._fsync:
                os.fsync(fd)
                self._touched.add(parent)
            closing, fd = fd, -1
            os.close(closing)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException as error:
            self.discard(Pending(fd, path, parent, name, temporary, len(data), False, 0))
            if isinstance(error, _ShortError):
                # A disk that is nearly full: the plain way says how it ends.
                self._put_slowly(path, data, mtime_ns)
                return
            if isinstance(error, OSError):
                raise storage_error(error, "cannot complete", path) from None
            raise

    def remove(self, path: str) -> None:
        """Nothing has this name on return: its object left the source. Durable as a file is by `finish`."""
        parent, name = split(path)
        try:
            folder = self._enter(parent, make=False)
            os.unlink(name, dir_fd=folder)
            if self._fsync:
                self._touched.add(parent)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise storage_error(error, "cannot remove", path) from None

    def _put_slowly(self, path: str, data: memoryview, mtime_ns: int) -> None:
        pending = self.begin(path, len(data))
        try:
            pending.write_all(data)
        except BaseException:
            self.discard(pending)
            raise
        self.finish(pending, mtime_ns)
