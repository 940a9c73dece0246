"""System calls that Python does not offer: openat2, renameat2, syncfs, fallocate, FICLONE, statfs, quotactl,
cachestat, mincore, memcmp. Also makes holes in files (ranges that read as zeros and take no space).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import threading

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
