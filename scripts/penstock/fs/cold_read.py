"""Reads stored bytes back past this machine's caches, and reports how far that succeeded.

| method  | what was done                                             | what it proves                       |
|---------|-----------------------------------------------------------|--------------------------------------|
| disk    | as for `direct`, and the client passes O_DIRECT on to the | the bytes came from the servers'     |
|         | servers (`kinds.MountProof.direct_from_disks`)            | disks during this call               |
| direct  | O_DIRECT on a file system known to honour it, and no page | the bytes came from the device, or   |
|         | of the range was in this kernel's page cache afterwards   | from the servers' disks or memory,   |
|         |                                                           | during this call                     |
| dropped | the range was dropped from the page cache, and no page of | the same as for `direct`             |
|         | it was there when the read began, on a mount whose client |                                      |
|         | is known to keep nothing else (`kinds`)                   |                                      |
| cached  | a read without these proofs; always if bytes may be in    | nothing about the disk               |
|         | other caches (`kinds.Kind.one_cache`)                     |                                      |

A file system may accept O_DIRECT and still read through the page cache (measured with cachestat: btrfs of
Linux 6.18). The first read that leaves pages behind shows this. From then on, each range is read by the
method `dropped`.

Only `disk` bypasses the memory of a storage server, and only BeeGFS is known to support it. If direct reads
harm other readers, files with a second name can be spared (`capabilities.direct_reads`). Offsets and lengths
are multiples of `ALIGN`, also for plain reads and at a file's end. BeeGFS' servers would refuse unaligned
reads with EREMOTEIO; after an aligned read, this error means that the servers failed.

If an account neither owns a file nor may write it, the kernel reports every page as cached, so its reads
count as `cached`. The bytes must be durable before they are read (by barrier or fsync), since a page that is
not written back cannot be dropped.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.core.errors import DamagedError
from penstock.fs import libc
from penstock.fs.libc import (
    ALIGN,
    FLAGS,
    Together,
    drop,
    has_names,
)
from penstock.fs.safe_open import Folders, printable, storage_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from penstock.fs.capabilities import DirectReads, StorageFacts
    from penstock.fs.libc import Range

BLOCK = 1 << 20  # bytes that are read and consumed at a time
_WINDOW = 1 << 30
# number of folder descriptors that a reader keeps; it is small, since many readers share the process's limit
FOLDERS = 16
_cachestat_works = True


class RangeRead(NamedTuple):
    """How a range was read (a `method` in the table of the module's docstring), and the result of fstat
    before the read. If the file changes later, the walk at the end of a verification sees another ctime."""

    method: str
    stat: os.stat_result


class ColdReader:
    """Reads files below `data` by relative paths. For a single thread; must be closed. Offsets and lengths
    are in bytes. `facts` (`capabilities.facts`) describe the file system of `data`. `use` chooses the files
    to open with O_DIRECT, if the file system honours that. The constructor raises OSError."""

    def __init__(self, data: Path, facts: StorageFacts, use: DirectReads = "all") -> None:
        self._root = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._folders = Folders(self._root, FOLDERS)
        self._parent: str | None = None
        self._parent_fd = -1
        self._direct = facts.direct and use != "none"
        self._spares = use == "unlinked"
        self._by_direct = "disk" if facts.proof.direct_from_disks else "direct"
        self._passable = facts.passable
        self._drops_count = facts.proof.drops_count
        self._buffer = mmap.mmap(-1, BLOCK)
        self._view = memoryview(self._buffer)
        # whether direct reads leave pages in the cache; None before the first read
        self._leaves: bool | None = None
        self._together = Together(self._folder, _absent, spares=self._spares) if self._direct else None

    @property
    def passes(self) -> bool:
        """Whether direct reads work on this file system. If they work, a repeated read may bypass the caches
        even if the first read was `cached`."""
        return self._direct

    def expect(self, ranges: Iterable[Range]) -> None:
        """Announce the next ranges, in order, so that small files can be read together. The caller may still
        read other ranges, or none. Each call replaces the previous announcement."""
        if self._together is not None:
            self._together.expect(ranges)

    def announced(self, path: str, offset: int, length: int) -> tuple[RangeRead, memoryview] | None:
        """Return how an announced range was read, and its bytes (valid until the next call). Returns None if
        the range was not read together with others; the caller then calls `read`, which raises any error."""
        fetched = self._together and not self._leaves and self._together.take((path, offset, length))
        if not fetched:
            return None
        return RangeRead(self._by_direct if fetched.cold else "cached", fetched.stat), fetched.data

    def read(self, path: str, offset: int, length: int, consume: Callable[[memoryview], None]) -> RangeRead:
        """Pass exactly the bytes `[offset, offset + length)` to `consume`, in order, in blocks of at most 1
        MiB. A block is valid only during the call. Raises DamagedError if the file is missing, is no regular
        file or ends early. Other errors come from `safe_open.storage_error` (a failed read is transient)."""
        parent, _, name = path.rpartition("/")
        fd = -1
        try:
            prefetched = self.announced(path, offset, length)
            if prefetched is not None:
                if length:
                    consume(prefetched[1])
                return prefetched[0]
            self._folder(parent)
            fd, direct = self._open(name)
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise _broken("it is not a regular file", path)
            if status.st_size < offset + length:
                raise _broken(f"it has {status.st_size} bytes, not {offset + length}", path)
            return RangeRead(self._pull(fd, direct, path, offset, length, consume), status)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                raise _broken("it is not there, or a link stands in its place", path) from None
            raise storage_error(error, "cannot read back", path) from None
        finally:
            if fd >= 0:
                os.close(fd)

    def close(self) -> None:
        if self._together is not None:
            self._together.close()
            self._together = None
        self._folders.close()
        self._parent = None
        if self._root >= 0:
            fd, self._root = self._root, -1
            os.close(fd)
            self._view.release()
            self._buffer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _folder(self, parent: str) -> int:
        """Return the folder's descriptor, valid until the next call."""
        if parent != self._parent:
            self._parent_fd, self._parent = self._folders.get(parent), parent
        return self._parent_fd

    def _open(self, name: str) -> tuple[int, bool]:
        if self._direct and not (self._spares and has_names(name, self._parent_fd)):
            try:
                return os.open(name, FLAGS | os.O_DIRECT, dir_fd=self._parent_fd), True
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                fd = os.open(name, FLAGS, dir_fd=self._parent_fd)
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    self._direct = False
                return fd, False
        return os.open(name, FLAGS, dir_fd=self._parent_fd), False

    def _pull(
        self,
        fd: int,
        direct: bool,
        path: str,
        offset: int,
        length: int,
        consume: Callable[[memoryview], None],
    ) -> str:
        if not self._passable:
            self._read(fd, path, offset, length, consume)
            return "cached"
        if length == 0:
            return self._by_direct if direct else "dropped" if self._drops_count else "cached"
        drop(fd, offset, length)
        asked = self._drops_count and not (direct and self._leaves is False)
        absent = asked and _absent(fd, offset, length)
        if direct:
            try:
                self._read(fd, path, offset, length, consume)
            except _NotDirectError as refused:
                # The file system needs another alignment, so the rest is read through the cache, as `cached`.
                self._direct = False
                plain = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
                try:
                    done = refused.done
                    self._read(plain, path, offset + done, length - done, consume)
                finally:
                    os.close(plain)
                return "cached"
            if _absent(fd, offset, length):
                self._leaves = bool(self._leaves)
                return self._by_direct
            if self._leaves is None:
                self._leaves = absent
        else:
            self._read(fd, path, offset, length, consume)
        if length >= BLOCK:
            # These bytes will not be read again soon, and must not evict pages that a training job uses.
            drop(fd, offset, length)
        return "dropped" if absent else "cached"

    def _read(
        self, fd: int, path: str, offset: int, length: int, consume: Callable[[memoryview], None]
    ) -> None:
        view, position, end = self._view, offset, offset + length
        while position < end:
            start = position - position % ALIGN
            wanted = min(BLOCK, -(-(end - start) // ALIGN) * ALIGN)
            try:
                count = os.preadv(fd, [view[:wanted]], start)
            except OSError as error:
                if error.errno == errno.EINVAL and self._direct:
                    raise _NotDirectError(position - offset) from None
                raise
            upto = min(start + count, end)
            if upto <= position:
                raise _broken(f"it ended at byte {position} while it was read", path)
            consume(view[position - start : upto - start])
            position = upto


class _NotDirectError(Exception):
    """The file system refuses direct reads with this alignment, after `done` bytes."""

    def __init__(self, done: int) -> None:
        super().__init__(done)
        self.done = done


def _absent(fd: int, offset: int, length: int) -> bool:
    """Return whether no page of the range is in this kernel's page cache, as far as the kernel reports this
    to this user."""
    global _cachestat_works
    if _cachestat_works:
        try:
            return libc.cached_pages(fd, offset, length) == 0
        except OSError as error:
            if error.errno == errno.ENOSYS:
                _cachestat_works = False
            elif error.errno not in (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP):
                raise
    end = offset + length
    return all(
        libc.resident_pages(fd, start, min(_WINDOW, end - start)) == 0
        for start in range(offset, end, _WINDOW)
    )


def _broken(why: str, path: str) -> DamagedError:
    return DamagedError("a stored file is not as it was written", where=printable(path), why=why)
