"""Writes files into a release's staging: whole files, and parts of a file that several streams, attempts and
nodes write together; links come from `links`.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NotRequired, Self, TypedDict

from penstock.core.errors import FailedError
from penstock.fs.safe_open import EXHAUSTED, open_dir, printable, raise_limit, storage_error
from penstock.host.pacing import unlimited
from penstock.target.links import Linker
from penstock.target.staging_folder import OPEN_FOLDER_OR_LINK, Pending, StagingFolder, split

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Unpack

    from penstock.config.access_rules import AccessRules


# Writes parts of a file that several streams, attempts and nodes write together.
#
# A giant is an object split into parts over several shards. Its parts are written into one file under its
# final name. Parts of any other large file are written into a temporary file, which is renamed only when it
# has all its bytes. The journal records the temporary name, so that the next attempt can resume the file.
# Parts do not overlap, so their order does not matter, and a fenced attempt can only replace bytes with the
# same bytes. Sizes and offsets are bytes, times are nanoseconds since the epoch.

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_RANGE = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_PART = _RANGE | os.O_CREAT


class Parts:
    """Writes parts of giants, and of other large files. For one thread.

    Raises errors according to `safe_open.storage_error`, and FailedError if this attempt is fenced.
    """

    def __init__(self, staging: StagingFolder) -> None:
        self._staging = staging

    def begin_part(self, path: str, size: int, offset: int, length: int) -> Pending:
        """Open a giant's file under its final name, `size` long, to be written from `offset`.

        The owner keeps its write bit until all parts are copied (`modes.finish_giants`). A longer file is cut
        to `size`, since all parts are written or read back anyway. Raises FailedError if the path is no
        regular file, or the file is shared with a release.
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
            # Mode and ACL are set when all parts are copied. The group is set now, as quotas count by group.
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
        """Make the part durable (with `fsync`), set the file's time, and close it.

        Every part sets the same time after its last write, so that the file has it after the last part.
        """
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
        """Make the temporary file of a large file, `size` long, in the folder of `path`. An error removes it.

        If the file system can, blocks are reserved, unless the file will have `holes`. The owner has the
        write bit until `finish_multipart`.
        """
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
        """Open the temporary file of `begin_multipart` to write from `offset`. `finish_part` closes it.

        If another attempt renamed the file, returns None. With `named`, it instead opens the complete file
        for reading, under its final name.
        """
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
        """With `fsync`, make the bytes written so far durable."""
        if self._staging.fsync:
            try:
                os.fsync(pending.fd)
            except OSError as error:
                raise storage_error(error, "cannot write", pending.path) from None

    def finish_multipart(self, path: str, temporary: str, size: int, mtime_ns: int) -> bool:
        """Set a complete temporary file's time, make it durable, rename it, and set mode, group and ACL.

        Returns True also if another attempt did all this: the temporary file is gone, and the final name has
        a file of this size. Returns False if neither file exists. The mode is set after the rename, so that a
        dying attempt never leaves a temporary file that the next attempt cannot write.
        """
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
        """Return whether another attempt renamed the file. If it did, make the file durable and set its mode
        again, since that attempt may have died before doing so."""
        parent, name = split(path)
        if not _stands(folder, name, size):
            return False
        self._staging.put_named_right(folder, name, path)
        if self._staging.fsync:
            self._staging.touched.add(parent)
        return True

    def drop_multipart(self, path: str, temporary: str) -> None:
        """Remove a temporary file that this attempt no longer writes."""
        self._staging.before(path, 1)
        parent, name = split(path)
        self._staging.discard(Pending(-1, path, parent, name, temporary, 0, False, 0))


def multipart_stands(data: Path, path: str, temporary: str, size: int) -> bool:
    """Return whether an earlier attempt's temporary file (`Parts.begin_multipart`) exists with this size."""
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
    """Return whether an unshared file of this size has this name. A later read proves its bytes."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size == size


# Writes files into a release's staging: whole files here, parts by `Parts`, and links by `target.links`.
#
# A file gets its final name only with all its bytes and its final mode, group, ACL and time. A large file
# written in parts gets mode and ACL right after its name, and a giant when all its parts exist. With
# `durability="fsync"`, a file's bytes are on the servers' disks before its final name exists. With
# `"syncfs"`, they are there when `Barrier.wait` returns. A fenced attempt can only replace bytes with the
# same bytes, and stops at its next check (`alive`). No path leads out of `data`, and links are never
# followed. Times are nanoseconds since the epoch, sizes are bytes, and paths are relative to `data`.

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class WriterOptions(TypedDict):
    """The access of a release's files, and how an attempt writes them."""

    file_mode: int
    dir_mode: int
    gid: int | None  # group of the files; None: the folder's group
    # `fsync`: each file is synced before it has its name; `syncfs`: the caller's `Barrier` syncs all at once
    durability: str
    attempt: str  # the attempt's name in messages
    keep_mtime: bool  # whether files get the source's time
    rules: NotRequired[AccessRules]  # other modes for some paths, and the ACL
    # Whether blocks are reserved. False if the probe showed that they cannot be; if not, the table of file
    # systems decides.
    preallocate: NotRequired[bool]


def prepare_process() -> None:
    """Clear the umask, so that new files get exact modes, and raise the limit of open files. Call it once in
    a process."""
    os.umask(0)
    raise_limit()


class _ShortError(Exception):
    """A write took only some of the bytes."""


class StagingWriter:
    """Writes into a staging's `data`, for one thread. It also has the methods of `Parts` and `Linker`.

    Raises errors according to `safe_open.storage_error`, and FailedError if this attempt is fenced.
    """

    def __init__(
        self, data: Path, spend: Callable[[int], None] = unlimited, **options: Unpack[WriterOptions]
    ) -> None:
        staging = self._staging = StagingFolder(data, spend=spend, **options)
        self.discard, self.alive, self.settle = staging.discard, staging.alive, staging.settle
        parts, links = Parts(staging), Linker(staging)
        self.begin_part, self.finish_part, self.sync = parts.begin_part, parts.finish_part, parts.sync
        self.begin_multipart, self.begin_range = parts.begin_multipart, parts.begin_range
        self.finish_multipart, self.drop_multipart = parts.finish_multipart, parts.drop_multipart
        self.link, self.link_many, self.held = links.link, links.link_many, links.held
        self.take_over = links.take_over
        self.move, self.holds = links.move, links.holds

    def close(self) -> None:
        """Close all descriptors. Finish or discard all pending files before."""
        self._staging.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, path: str, size: int, *, holes: bool = False) -> Pending:
        """Make a temporary file with its final access in the folder of `path`. With `holes`, no blocks are
        reserved."""
        self._staging.before(path, 1)
        return self._begin(path, size, holes=holes)

    def _begin(self, path: str, size: int, *, holes: bool = False) -> Pending:
        if self._staging.is_due:
            self._staging.look()
        parent, name = split(path)
        try:
            folder = self._staging.at(parent, make=True)
            temporary = self._staging.temporary()
            try:
                fd = os.open(temporary, _NEW, self._staging.file_mode(path), dir_fd=folder)
            except FileExistsError:
                self._staging.new_prefix()
                return self._begin(path, size, holes=holes)
        except OSError as error:
            if self._staging.relieved(error):
                return self._begin(path, size, holes=holes)
            raise storage_error(error, "cannot create", path) from None
        pending = Pending(fd, path, parent, name, temporary, size, False, 0)
        try:
            self._staging.dress(fd, path)
            self._staging.reserve(fd, 0 if holes else size)
        except BaseException as error:
            self._staging.discard(pending)
            if isinstance(error, OSError):
                raise storage_error(error, "cannot create", path) from None
            raise
        return pending

    def finish(self, pending: Pending, mtime_ns: int) -> None:
        """Set the file's time, make it durable (with `fsync`), close it and rename it.

        On an error, the temporary file is gone and the final name unchanged. The file must then be written
        again, as syncing it again proves nothing.
        """
        self._staging.before(pending.path, self._staging.naming)
        self._finish(pending, mtime_ns)

    def _finish(self, pending: Pending, mtime_ns: int) -> None:
        fd = pending.fd
        try:
            if pending.holes:
                os.ftruncate(fd, pending.size)
            if self._staging.keep_mtime:
                os.utime(fd, ns=(mtime_ns, mtime_ns))
            if self._staging.fsync:
                os.fsync(fd)
                self._staging.touched.add(pending.parent)
            pending.fd = -1
            os.close(fd)
            folder = self._staging.at(pending.parent, make=False)
            os.rename(pending.temporary, pending.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException as error:
            self._staging.discard(pending)
            if isinstance(error, OSError):
                raise storage_error(error, "cannot complete", pending.path) from None
            raise

    def put(self, path: str, data: memoryview, mtime_ns: int) -> None:
        """Write a file whose bytes are in memory, in the way that costs the fewest calls for small files."""
        staging = self._staging
        staging.before(path, 1 + staging.naming)
        parent, _, name = path.rpartition("/")
        mode = staging.file_mode(path)
        temporary = staging.at_once(parent, len(data), mode)
        if not temporary or not name or path[0] == "/":
            self._put_slowly(path, data, mtime_ns)
            return
        folder = staging.parent_fd
        try:
            fd = os.open(temporary, _NEW, mode, dir_fd=folder)
        except OSError as error:
            if not isinstance(error, FileExistsError) and error.errno not in EXHAUSTED:
                raise storage_error(error, "cannot create", path) from None
            self._put_slowly(path, data, mtime_ns)
            return
        try:
            if os.write(fd, data) != len(data):
                raise _ShortError
            if staging.keep_mtime:
                os.utime(fd, ns=(mtime_ns, mtime_ns))
            if staging.fsync:
                os.fsync(fd)
                staging.touched.add(parent)
            closing, fd = fd, -1
            os.close(closing)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException as error:
            staging.discard(Pending(fd, path, parent, name, temporary, len(data), False, 0))
            if isinstance(error, _ShortError):
                # The disk may be nearly full. The usual way of writing writes the rest, or raises the right
                # error.
                self._put_slowly(path, data, mtime_ns)
                return
            if isinstance(error, OSError):
                raise storage_error(error, "cannot complete", path) from None
            raise

    def remove(self, path: str) -> None:
        """Remove a file whose object left the source. The removal is as durable as `finish`."""
        self._staging.before(path, 1)
        parent, name = split(path)
        try:
            folder = self._staging.enter(parent, make=False)
            os.unlink(name, dir_fd=folder)
            if self._staging.fsync:
                self._staging.touched.add(parent)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise storage_error(error, "cannot remove", path) from None

    def _put_slowly(self, path: str, data: memoryview, mtime_ns: int) -> None:
        pending = self._begin(path, len(data))
        try:
            pending.write_all(data)
        except BaseException:
            self._staging.discard(pending)
            raise
        self._finish(pending, mtime_ns)
