"""Reads small files together past the caches. It opens them one by one, and then reads all files with a
single submission and a single wait. Python does not offer this submission (io_submit of Linux AIO).
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import resource
import stat
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.fs.libc import syscall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


# Many reads with a single system call of Linux AIO.
#
# When `Reads.run` returns or raises, the kernel no longer writes to the buffer. Files are read concurrently
# only if they were opened with O_DIRECT and their driver has asynchronous reads. Other files are read one
# after the other within the call.

# numbers of the system calls io_setup, io_destroy, io_submit, io_getevents (not io_uring, which many sites
# switch off)
_CALLS = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4), "riscv64": (0, 1, 2, 4)}
_SETUP, _DESTROY, _SUBMIT, _GETEVENTS = _CALLS.get(platform.machine(), (-1, -1, -1, -1))
# the struct iocb: data, key, rw_flags, opcode, priority, fd, buffer, bytes, offset, reserved, flags, resfd
_IOCB = Struct("<QIIHhIQQqQII")
_EVENT = Struct("<QQqq")
_PREAD = 0


class Reads:
    """Makes up to `most` reads at once into a buffer, for a single thread. The constructor raises OSError if
    the kernel refuses AIO (ENOSYS, EPERM in a sandbox; EAGAIN beyond `fs.aio-max-nr`)."""

    def __init__(self, buffer: mmap.mmap, most: int) -> None:
        self._context = ctypes.c_ulong(0)
        if _SETUP < 0:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        syscall(_SETUP, most, ctypes.byref(self._context))
        self._held = ctypes.c_char.from_buffer(buffer)
        self._base = ctypes.addressof(self._held)
        self._blocks = ctypes.create_string_buffer(_IOCB.size * most)
        first = ctypes.addressof(self._blocks)
        self._pointers = (ctypes.c_void_p * most)(*(first + _IOCB.size * i for i in range(most)))
        self._events = ctypes.create_string_buffer(_EVENT.size * most)

    def run(self, wanted: Sequence[tuple[int, int, int, int]]) -> list[int]:
        """Make these reads, each (descriptor, place in the buffer, bytes, offset in the file), and wait for
        all of them. Returns, for each read in order, the bytes read or a negative errno if the read failed or
        the kernel did not accept it (EAGAIN)."""
        for i, (fd, place, count, offset) in enumerate(wanted):
            _IOCB.pack_into(
                self._blocks,
                i * _IOCB.size,
                i,
                0,
                0,
                _PREAD,
                0,
                fd,
                self._base + place,
                count,
                offset,
                0,
                0,
                0,
            )
        answers = [-errno.EAGAIN] * len(wanted)
        try:
            taken = syscall(_SUBMIT, self._context, len(wanted), self._pointers)
        except OSError as error:
            # The kernel refused the first of these reads, and so accepted none of them.
            return [-(error.errno or errno.EIO)] * len(wanted)
        left = taken
        while left:
            try:
                done = syscall(_GETEVENTS, self._context, left, left, self._events, None)
            except InterruptedError:
                continue
            for i in range(done):
                number, _, result, _ = _EVENT.unpack_from(self._events, i * _EVENT.size)
                answers[number] = result
            left -= done
        return answers

    def close(self) -> None:
        """Wait for reads under way. Afterwards the buffer can be closed."""
        if self._context.value:
            syscall(_DESTROY, self._context)
            self._context.value = 0
            del self._held

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Reads small files together.
#
# If small files are read one by one, a thread waits for the device for each file. Waking threads and starting
# the device then cost more CPU than the reading. If files are read together, the device merges reads of
# neighbouring blocks and starts once. The proof is the same as in `cold_read.ColdReader`. Each file was
# opened with O_DIRECT, and its pages were dropped. After the read, no page of the range was in this kernel's
# page cache.
#
# A file that is missing, is too short or cannot be read must be read alone. That read raises the error.

Range = tuple[str, int, int]  # path, offset, bytes
ROOM = 1 << 20  # bytes of the buffer into which a group of files is read
MOST = 64  # number of files in a group, at most
STREAMS = 128  # number of threads that may share the process's limit of descriptors
LARGE = 256 << 10  # bytes; a range of at least this size is read by a separate call
ALIGN = 4096  # bytes to which places, offsets and lengths of direct reads are aligned
_FOLIO = mmap.PAGESIZE << 11  # bytes of a folio in the kernel's page cache, at most
# Errors with which a kernel or file system refuses AIO or direct reads (EREMOTEIO refuses only unaligned
# reads).
_REFUSED = frozenset({-errno.EINVAL, -errno.ENOSYS, -errno.EOPNOTSUPP})
FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_DIRECT = FLAGS | os.O_DIRECT
_FORMAT = 0o170000


# an opened file: index in the group, descriptor, offset in the buffer, bytes, offset in the file, fstat
_Opened = tuple[int, int, int, int, int, os.stat_result]


def drop(fd: int, offset: int, length: int) -> None:
    """Drop the pages of a range (in bytes) from the page cache, as far as the kernel can. Pages around the
    range are dropped, too, since the kernel would keep a folio that is only partly in the range."""
    start = offset - offset % _FOLIO
    end = -(-(offset + length) // _FOLIO) * _FOLIO
    os.posix_fadvise(fd, start, end - start, os.POSIX_FADV_DONTNEED)


def has_names(name: str, folder: int) -> bool:
    """Return whether the file with this name in the open folder also has another name."""
    return os.stat(name, dir_fd=folder, follow_symlinks=False).st_nlink > 1


class Fetched(NamedTuple):
    """A range that was read. `data` is valid until the next `take`."""

    stat: os.stat_result  # result of fstat before the read
    cold: bool  # whether no page of the range was in the page cache after the direct read
    data: memoryview


class Together:
    """Reads announced ranges in groups, and returns them one by one. For a single thread; must be closed.
    `folder` returns the descriptor for a folder's path; it is valid until the next call of `folder`. `absent`
    returns whether no page of a range (descriptor, offset, bytes) is in memory. `spares` means that files
    with a second name are not read together."""

    def __init__(
        self,
        folder: Callable[[str], int],
        absent: Callable[[int, int, int], bool],
        *,
        spares: bool = False,
    ) -> None:
        self._folder, self._absent, self._spares = folder, absent, spares
        self._most = max(2, min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // STREAMS))
        self._buffer = mmap.mmap(-1, ROOM)
        self._view = memoryview(self._buffer)
        self._expected: deque[Range] = deque()
        self._ready: deque[tuple[Range, Fetched | None]] = deque()
        self._reads: Reads | None = None
        # whether files can be read together; False after the kernel or the file system refused it
        self.works = True

    def expect(self, ranges: Iterable[Range]) -> None:
        """Announce the next reads in order. This replaces earlier announcements."""
        self._ready.clear()
        self._expected = deque(ranges)

    def take(self, wanted: Range) -> Fetched | None:
        """Return the range `wanted` if it is the next announced range, or None if it must be read alone.
        Raises OSError only if the kernel does not complete reads that it accepted."""
        if not self._ready:
            if not self._expected or self._expected[0] != wanted:
                return None
            self._fetch()
        if self._ready[0][0] != wanted:
            # The range must be read again, alone.
            return None
        return self._ready.popleft()[1]

    def _fetch(self) -> None:
        group = self._next_group()
        fetched: list[Fetched | None] = [None] * len(group)
        reads = self._start() if len(group) > 1 else None
        if reads is not None:
            opened: list[_Opened] = []
            try:
                self._open(group, opened)
                self._read(reads, group, opened, fetched)
            finally:
                for file in opened:
                    os.close(file[1])
        self._ready.extend(zip(group, fetched, strict=True))

    def _next_group(self) -> list[Range]:
        """Take as many ranges as fit into the buffer, at least one."""
        expected = self._expected
        group = [expected.popleft()]
        if group[0][2] >= LARGE:
            return group
        room = ROOM - blocks(*group[0][1:])[1]
        while expected and len(group) < self._most and expected[0][2] < LARGE:
            room -= blocks(*expected[0][1:])[1]
            if room < 0:
                break
            group.append(expected.popleft())
        return group

    def _start(self) -> Reads | None:
        if self._reads is None and self.works:
            try:
                self._reads = Reads(self._buffer, self._most)
            except OSError:
                # If the kernel is old, the process is in a sandbox, or the node has too many AIO reads, files
                # are read one by one.
                self.works = False
        return self._reads if self.works else None

    def _open(self, group: list[Range], opened: list[_Opened]) -> None:
        """Open the group's plain files that are long enough, and add them to `opened`."""
        parent, folder, upto = None, -1, 0
        for number, (path, offset, length) in enumerate(group):
            above, _, name = path.rpartition("/")
            fd = -1
            try:
                if above != parent:
                    folder, parent = self._folder(above), above
                if self._spares and has_names(name, folder):
                    continue
                fd = os.open(name, _DIRECT, dir_fd=folder)
                status = os.fstat(fd)
                if status.st_mode & _FORMAT == stat.S_IFREG and status.st_size >= offset + length:
                    first, count = blocks(offset, length)
                    if count:
                        drop(fd, offset, length)
                    opened.append((number, fd, upto, count, first, status))
                    upto, fd = upto + count, -1
            except OSError:
                # The read of the file alone will report the error.
                continue
            finally:
                if fd >= 0:
                    os.close(fd)

    def _read(
        self, reads: Reads, group: list[Range], opened: list[_Opened], fetched: list[Fetched | None]
    ) -> None:
        if not opened:
            return
        answers = reads.run([file[1:5] for file in opened])
        if all(answer in _REFUSED for answer in answers):
            self.works = False
        absent, view = self._absent, self._view
        for (number, fd, place, _, first, known), got in zip(opened, answers, strict=True):
            _, offset, length = group[number]
            start = offset - first
            if got >= start + length:
                cold = not length or absent(fd, offset, length)
                fetched[number] = Fetched(known, cold, view[place + start : place + start + length])

    def close(self) -> None:
        self.expect(())
        if self._reads is not None:
            self._reads.close()
            self._reads = None
        self._view.release()
        self._buffer.close()


def blocks(offset: int, length: int) -> tuple[int, int]:
    """Return the range extended to whole blocks of `ALIGN`: (first byte, bytes)."""
    if not length:
        return offset, 0
    first = offset - offset % ALIGN
    return first, -(-(offset + length - first) // ALIGN) * ALIGN
