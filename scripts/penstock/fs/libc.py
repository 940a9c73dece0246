"""System calls that Python does not offer; and reads of many small files together past the caches, by one of
these: a single submission of Linux AIO, and a single wait.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import resource
import stat
import threading
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


# System calls that Python does not offer: openat2, renameat2, syncfs, fallocate, FICLONE, statfs, quotactl,
# cachestat, mincore, memcmp. Also makes holes in files (ranges that read as zeros and take no space).

# The system calls.
#
# Each function raises OSError with the call's errno, as `os` does, and does not repeat the call. Sizes and
# offsets are in bytes.

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_longlong,
]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_LIBC.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong]

# The numbers of calls that are newer than Linux 5.1 are equal on all architectures.
_OPENAT2 = 437
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276, "riscv64": 276}.get(platform.machine(), -1)
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
_AT_FDCWD = -100
_CACHESTAT = 451
_QUOTACTL_FD = 443
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_MAP_FAILED = ctypes.c_void_p(-1).value
_PROT_READ, _MAP_SHARED = 1, 1
_FICLONE = 0x40049409
_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02
PAGE = os.sysconf("SC_PAGESIZE")


def syscall(number: int, *arguments: object) -> int:
    """Make the system call with this number. Other threads can run during the call."""
    answer: int = _LIBC.syscall(number, *arguments)
    if answer < 0:
        raise _failed()
    return answer


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class _Asked(threading.local):
    """A thread's buffers for cachestat, which is called for every file that is read back. `span` has offset
    and length, `answer` has the numbers of pages cached, dirty, being written back, evicted, recently
    evicted."""

    def __init__(self) -> None:
        self.span = (ctypes.c_uint64 * 2)()
        self.answer = (ctypes.c_uint64 * 5)()


_asked = _Asked()


def _failed(path: str | None = None) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), path)


def openat2(dir_fd: int, path: str, flags: int, mode: int = 0) -> int:
    """Open a path below `dir_fd`. No component may leave that folder or be a symbolic link of any kind."""
    how = _OpenHow(
        flags | os.O_CLOEXEC, mode, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
    )
    fd: int = _LIBC.syscall(
        _OPENAT2, dir_fd, os.fsencode(path), ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how))
    )
    if fd < 0:
        raise _failed(path)
    return fd


def renameat2(old: str | os.PathLike[str], new: str | os.PathLike[str], flags: int) -> None:
    """Call rename(2) with `RENAME_NOREPLACE` or `RENAME_EXCHANGE`. EINVAL means that the file system lacks
    that flag."""
    if _RENAMEAT2 < 0:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    syscall(_RENAMEAT2, _AT_FDCWD, os.fsencode(old), _AT_FDCWD, os.fsencode(new), flags)


def syncfs(fd: int) -> None:
    """Write back all data of the file system of `fd`. Raises errors of write-backs since `fd` was opened."""
    if _LIBC.syncfs(fd) != 0:
        raise _failed()


def fallocate(fd: int, size: int) -> None:
    """Reserve blocks for `[0, size)`, but never by writing zeros, as glibc's posix_fallocate does."""
    if _LIBC.fallocate(fd, 0, 0, size) != 0:
        raise _failed()


def reflink(new: int, old: int) -> None:
    """Give the empty file `new` the blocks of the file `old` (FICLONE), which both share until either file
    changes. Fails with EOPNOTSUPP, ENOTTY or EINVAL if the file system cannot do this, and with EXDEV between
    file systems."""
    fcntl.ioctl(new, _FICLONE, old)


def punch_hole(fd: int, offset: int, length: int) -> None:
    """Free a range's blocks, so that it reads as zeros afterwards. EOPNOTSUPP if holes are impossible."""
    if _LIBC.fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, offset, length) != 0:
        raise _failed()


def all_zeros(view: memoryview) -> bool:
    """Return whether a writable buffer has only zeros. This is as fast as reading memory."""
    if len(view) == 0 or view[0]:
        return len(view) == 0
    start = ctypes.addressof(ctypes.c_char.from_buffer(view))
    return bool(_LIBC.memcmp(start, start + 1, len(view) - 1) == 0)


def statfs_type(path: str) -> int:
    """Return `f_type` of the file system that contains `path`."""
    buffer = ctypes.create_string_buffer(256)
    if _LIBC.statfs(os.fsencode(path), buffer) != 0:
        raise _failed(path)
    return ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF


def quotactl(fd: int, device: str, command: int, number: int) -> bytes:
    """Query a quota (`QCMD` of command and type) of the user, group or project `number` on the file system of
    `fd`. `device` is the device of its mount, for kernels before 5.14, which lack quotactl_fd. ENOSYS and
    ESRCH mean that no quotas are counted, and EPERM that they are hidden from this account."""
    answer = ctypes.create_string_buffer(256)
    asked = ctypes.c_uint(command), ctypes.c_uint(number), answer
    try:
        syscall(_QUOTACTL_FD, fd, *asked)
    except OSError as error:
        if error.errno != errno.ENOSYS or not device.startswith("/"):
            raise
        if _LIBC.quotactl(asked[0], os.fsencode(device), *asked[1:]) != 0:
            raise _failed() from None
    return answer.raw


def cached_pages(fd: int, offset: int, length: int) -> int:
    """Count the range's pages in the page cache, by cachestat (Linux 6.5). After ENOSYS or EPERM, use
    mincore."""
    span, answer = _asked.span, _asked.answer
    span[0], span[1] = offset, length
    if _LIBC.syscall(_CACHESTAT, fd, span, answer, 0) != 0:
        raise _failed()
    return int(answer[0])


def resident_pages(fd: int, offset: int, length: int) -> int:
    """Count the range's pages in memory, by mincore. The range is extended to whole pages. If the caller
    neither owns a file nor may write it, the kernel reports all its pages as resident."""
    start = offset - offset % PAGE
    span = offset + length - start
    address = _LIBC.mmap(None, span, _PROT_READ, _MAP_SHARED, fd, start)
    if address == _MAP_FAILED:
        raise _failed()
    try:
        pages = ctypes.create_string_buffer((span + PAGE - 1) // PAGE)
        if _LIBC.mincore(address, span, pages) != 0:
            raise _failed()
        return sum(byte & 1 for byte in pages.raw) if any(pages.raw) else 0
    finally:
        _LIBC.munmap(address, span)


COMPARED_AT_ONCE = 1 << 20  # bytes that are read and compared with zeros at a time
# Errors of punching a hole after which the range is overwritten instead. EINTR is one of these errors, since
# the result reads back the same.
_UNABLE = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EINTR})


def clear_range(fd: int, offset: int, length: int) -> None:
    """Make a range within the file read as zeros. It becomes a hole if the file system can do this, or else
    is overwritten. `fd` is open for reading and writing. Raises OSError."""
    try:
        punch_hole(fd, offset, length)
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
        _overwrite(fd, offset, length)


def _overwrite(fd: int, offset: int, length: int) -> None:
    """Overwrite only bytes that are not zero already, so that an existing hole stays a hole."""
    zeros = memoryview(bytes(min(COMPARED_AT_ONCE, length)))
    block = memoryview(bytearray(len(zeros)))
    end = offset + length
    while offset < end:
        count = os.preadv(fd, [block[: end - offset]], offset)
        if not count or not all_zeros(block[:count]):
            count = os.pwrite(fd, zeros[: count or end - offset], offset)
        offset += count


# Reads small files together past the caches. It opens them one by one, and then reads all files with a
# single submission and a single wait. Python does not offer this submission (io_submit of Linux AIO).

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
