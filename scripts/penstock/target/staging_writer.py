"""Writes files into a release's staging: whole files here, parts with `part_files`, and links with `links`.

A file gets its final name only with all its bytes and its final mode, group, ACL and time. A large file
written in parts gets mode and ACL right after its name, and a giant when all its parts exist. With
`durability="fsync"`, a file's bytes are on the servers' disks before its final name exists. With `"syncfs"`,
they are there when `Barrier.wait` returns. A fenced attempt can only replace bytes with the same bytes, and
stops at its next check (`alive`). No path leads out of `data`, and links are never followed. Times are
nanoseconds since the epoch, sizes are bytes, and paths are relative to `data`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NotRequired, Self, TypedDict

from penstock.fs.errno_map import storage_error
from penstock.fs.safe_open import EXHAUSTED, raise_limit
from penstock.host.pacing import unlimited
from penstock.target.links import Linker
from penstock.target.part_files import Parts
from penstock.target.staging_folder import Pending, StagingFolder, split

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Unpack

    from penstock.config.access_rules import AccessRules

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

    Raises errors according to `errno_map.storage_error`, and FailedError if this attempt is fenced.
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
