"""Parts of one file, written by several streams, attempts and nodes.

For copy (`engine.transfer`), by `staging_writer.StagingWriter`, which has the methods of `Parts` as its own.
Writes below a staging's `data` alone. A giant is an object that is split into parts over several shards.
Sizes and offsets are in bytes, times in nanoseconds since the epoch.

A giant's parts go into one file under its final name. Those of any other large file go into one temporary
file, which is named in the journal, so that the next attempt goes on with it; it gets the final name only
with all its bytes.

Guarantees. Parts lie at disjoint offsets, so their order does not matter, and an attempt that was
given up and writes on can only replace bytes by the same bytes.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from penstock.core.errors import FailedError
from penstock.fs.errno_map import printable, storage_error
from penstock.fs.safe_open import open_dir
from penstock.target.pending_file import Pending
from penstock.target.staging_folder import OPEN_FOLDER_OR_LINK, split

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.target.staging_folder import StagingFolder

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_RANGE = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_PART = _RANGE | os.O_CREAT


class Parts:
    """Writes parts of giants, and of other large files. For one thread. Errors of the file system are raised
    by `errno_map.storage_error`, FailedError where this attempt was overtaken."""

    def __init__(self, staging: StagingFolder) -> None:
        self._staging = staging

    def begin_part(self, path: str, size: int, offset: int, length: int) -> Pending:
        """A giant's file under its final name, `size` long, to be written from `offset`.

        It can be written by its owner until all parts are copied (`modes.finish_giants`); other parts may be
        written at the same time, on other nodes. What lies there longer than planned is cut: each part's
        bytes are written or read back anyway. Raises FailedError for what is no file, or another release's
        too.
        """
        if offset < 0 or length < 0 or offset + length > size:
            raise ValueError(f"part [{offset}, {offset + length}) of {size} bytes")
        self._staging.before(path, 1)
        self._staging.look()
        parent, name = split(path)
        fd = -1
        try:
            folder = self._staging.enter(parent, make=True)
            fd = os.open(name, _PART, self._staging.file_mode(path) | 0o600, dir_fd=folder)
            pending = Pending(fd, path, parent, name, "", size, True, offset)
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                raise FailedError(
                    "a giant's place is taken by something else",
                    where=printable(path),
                    why=f"{status.st_nlink} links" if stat.S_ISREG(status.st_mode) else "it is no file",
                    hint=f"remove {printable(str(self._staging.data / path))}: the same command goes on",
                )
            self._staging.alive(pending)
            if status.st_size != size:
                os.ftruncate(fd, size)
            # Mode and ACL come when all parts are copied. The group is given here, for quotas count by it.
            if self._staging.gid not in (None, status.st_gid):
                os.chown(fd, -1, self._staging.gid)
        except BaseException as error:
            if fd >= 0:
                os.close(fd)
            if isinstance(error, PermissionError):
                raise self._staging.fenced(path, "the file cannot be written any more") from None
            if isinstance(error, OSError):
                self._staging.relieved(error)
                raise storage_error(error, "cannot create", path) from None
            raise
        return pending

    def finish_part(self, pending: Pending, mtime_ns: int | None = None) -> None:
        """Durability (by mode), then the time, close. Every part sets the same time after its own last
        write, so that the last of them leaves it, whichever it is."""
        self._staging.before(pending.path, 1)
        fd = pending.fd
        try:
            if self._staging.fsync:
                os.fsync(fd)
                if not pending.temporary:
                    self._staging.touched.add(pending.parent)
            if mtime_ns is not None and self._staging.keep_mtime:
                os.utime(fd, ns=(mtime_ns, mtime_ns))
            pending.fd = -1
            os.close(fd)
        except BaseException as error:
            self._staging.discard(pending)
            if isinstance(error, OSError):
                raise storage_error(error, "cannot complete", pending.path) from None
            raise

    def begin_multipart(self, path: str, temporary: str, size: int, *, holes: bool = False) -> None:
        """Make the temporary file of a large one, in the folder of `path`, `size` long and with blocks
        reserved where the file system can, unless it will have `holes`; its owner may write it until
        `finish_multipart`. On an error it is gone."""
        self._staging.before(path, 1)
        self._staging.look()
        parent, name = split(path)
        fd = -1
        try:
            folder = self._staging.enter(parent, make=True)
            fd = os.open(temporary, _PART, self._staging.file_mode(path) | 0o600, dir_fd=folder)
            self._staging.touched.add(parent)
            self._staging.put_right(fd, path, also=0o600)
            self._staging.reserve(fd, 0 if holes else size)
            os.ftruncate(fd, size)
            os.close(fd)
        except BaseException as error:
            self._staging.discard(Pending(fd, path, parent, name, temporary, size, False, 0))
            if isinstance(error, OSError):
                self._staging.relieved(error)
                raise storage_error(error, "cannot create", path) from None
            raise

    def begin_range(
        self, path: str, temporary: str, size: int, offset: int, *, named: bool = False
    ) -> Pending | None:
        """The temporary file of `begin_multipart`, to be written from `offset`; None when it is not there:
        another attempt has given it its name. Where it is `named` and no byte is left to be written, the file
        is opened by that name, to be read. To be ended by `finish_part`."""
        self._staging.before(path, 1)
        parent, name = split(path)
        try:
            folder = self._staging.enter(parent, make=False)
            try:
                fd = os.open(temporary, _RANGE, dir_fd=folder)
            except FileNotFoundError:
                if not named or offset < size or not _stands(folder, name, size):
                    return None
                fd = os.open(name, _READ, dir_fd=folder)
        except FileNotFoundError:
            return None
        except PermissionError:
            raise self._staging.fenced(path, "the file cannot be written any more") from None
        except OSError as error:
            self._staging.relieved(error)
            raise storage_error(error, "cannot write", path) from None
        pending = Pending(fd, path, parent, name, temporary, size, True, offset)
        try:
            if offset < size:
                self._staging.alive(pending)
        except BaseException:
            self._staging.discard(pending)
            raise
        return pending

    def sync(self, pending: Pending) -> None:
        """With `fsync`: make the bytes durable that were written so far."""
        if self._staging.fsync:
            try:
                os.fsync(pending.fd)
            except OSError as error:
                raise storage_error(error, "cannot write", pending.path) from None

    def finish_multipart(self, path: str, temporary: str, size: int, mtime_ns: int) -> bool:
        """Give a temporary file that has all its bytes its time, durability and final name, then its final
        mode, group and ACL. True as well where another attempt did the same: the temporary file is gone, and
        a file of this size has the name. False: neither is there.

        The mode comes after the name: an attempt that dies between the two leaves no temporary file that the
        next one may not write."""
        self._staging.before(path, 1 + self._staging.naming)
        parent, name = split(path)
        fd = -1
        try:
            folder = self._staging.enter(parent, make=False)
            try:
                fd = os.open(temporary, _READ, dir_fd=folder)
                if os.fstat(fd).st_size != size:
                    return False
                if self._staging.keep_mtime:
                    os.utime(fd, ns=(mtime_ns, mtime_ns))
                if self._staging.fsync:
                    os.fsync(fd)
                    self._staging.touched.add(parent)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except FileNotFoundError:
                return self._named(folder, path, size)
            except PermissionError:
                raise self._staging.fenced(path, "the file cannot be written any more") from None
            if self._staging.put_right(fd, path) and self._staging.fsync:
                os.fsync(fd)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise storage_error(error, "cannot complete", path) from None
        finally:
            if fd >= 0:
                os.close(fd)
        return True

    def _named(self, folder: int, path: str, size: int) -> bool:
        """Whether another attempt gave the file its name; it may have died before that was durable, or before
        the file had its mode."""
        parent, name = split(path)
        if not _stands(folder, name, size):
            return False
        self._staging.put_named_right(folder, name, path)
        if self._staging.fsync:
            self._staging.touched.add(parent)
        return True

    def drop_multipart(self, path: str, temporary: str) -> None:
        """Remove a temporary file, of which this attempt writes nothing any more."""
        self._staging.before(path, 1)
        parent, name = split(path)
        self._staging.discard(Pending(-1, path, parent, name, temporary, 0, False, 0))


def multipart_stands(data: Path, path: str, temporary: str, size: int) -> bool:
    """Whether the temporary file that an earlier attempt made by `Parts.begin_multipart` is there, with this
    size in bytes. Changes nothing."""
    root = os.open(data, OPEN_FOLDER_OR_LINK)
    try:
        folder = open_dir(root, path.rpartition("/")[0])
    except OSError:
        return False
    finally:
        os.close(root)
    try:
        return _stands(folder, temporary, size)
    finally:
        os.close(folder)


def _stands(folder: int, name: str, size: int) -> bool:
    """Whether a file of one name and this size has this name. Its bytes are proven when it is read back."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size == size
