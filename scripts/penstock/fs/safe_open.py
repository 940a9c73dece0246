"""Opens paths below a folder by descriptors: nothing below the configured root is trusted. Also turns the
errno of a failed system call on the target into an error of the run.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import resource
import stat
from collections import OrderedDict
from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.errors import MAKE_ROOM, FailedError, NoSpaceError, ObjectError, TransientError
from penstock.fs import libc

if TYPE_CHECKING:
    from penstock.core.errors import PenstockError


# Maps the errno of a failed system call on the target to an error of the run.
#
# | errno                                            | error          | then                              |
# |--------------------------------------------------|----------------|-----------------------------------|
# | ENOSPC EDQUOT                                    | NoSpaceError   | stop; resume when there is space  |
# | EIO ESTALE ETIMEDOUT EREMOTEIO EAGAIN EBUSY ...  | TransientError | write the file anew               |
# | EMFILE ENFILE                                    | TransientError | retry: other threads close files  |
# | ENAMETOOLONG EILSEQ EFBIG                        | ObjectError    | this file cannot be stored        |
# | anything else (EROFS EACCES EPERM ELOOP ...)     | FailedError    | stop                              |

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
PASSING = frozenset(
    {
        errno.EIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.EREMOTEIO,
        errno.EAGAIN,
        errno.EBUSY,
        errno.EINTR,
        errno.ECOMM,
        errno.ENOTCONN,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EMFILE,
        errno.ENFILE,
    }
)
# Errors if a link, FIFO, socket, device or folder has taken a file's place, or a file has taken a folder's
# place. For files that penstock keeps, this is damage.
MISPLACED = frozenset({errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO})
printable = human.printable
_UNSTORABLE = frozenset({errno.ENAMETOOLONG, errno.EILSEQ, errno.EFBIG})


def storage_error(error: OSError, what: str, path: str) -> PenstockError:
    """Return the error for a system call that failed on `path`, according to the table above."""
    number = error.errno or 0
    why = os.strerror(number) if number else str(error)
    where = printable(path)
    if number in NO_SPACE:
        cause = "the quota is used up" if number == errno.EDQUOT else "no space or no inodes left"
        return NoSpaceError(
            what, where=where, why=cause, hint=f"{MAKE_ROOM}; the same command goes on where this one stopped"
        )
    if number in PASSING:
        return TransientError(what, where=where, why=why)
    if number in _UNSTORABLE:
        large = "the limit is `ulimit -f`, or the file system's own" if number == errno.EFBIG else ""
        return ObjectError(what, where=where, why=why, hint=large)
    return FailedError(
        what,
        where=where,
        why=why,
        hint="look at the modes, the owner and the mount of that path; then the same command goes on",
    )


# Opens paths below a folder by descriptors, since nothing below the configured root is trusted.
#
# No function follows a symbolic link below the given descriptor, or leaves its folder by `..`, even if
# folders are renamed meanwhile. A single openat2 (Linux 5.6) does this if the kernel and the sandbox allow
# it. Otherwise, and for paths that are too long for the kernel, each component needs an open with O_NOFOLLOW.

PATH_MAX = 4096
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
HOLD = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
HOLD_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# errno if this process, or this machine, has too many files open
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE})
MOST_KEPT = 256  # number of folder descriptors that a `Folders` keeps, at most
_STREAMS = 64  # number of a process's threads that keep descriptors, at most
_SPARE = 200  # number of descriptors that a process reserves for other uses than folders
_openat2_works = True


def raise_limit() -> None:
    """Raise this process's limit of open files to its hard limit, since login shells pass on a low limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def folders_kept() -> int:
    """Return how many folder descriptors a stream may keep in each of its trees: source, target, and the
    release from which it links. Many sites limit a process to 1,024 open files."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(4, min(MOST_KEPT, (limit - _SPARE) // _STREAMS // 3))


def open_beneath(root_fd: int, path: str, flags: int, mode: int = 0) -> int:
    """Open `path` (relative, normalised) below `root_fd`. Raises OSError: ELOOP or ENOTDIR for a link
    anywhere, EINVAL for an empty, `.` or `..` component."""
    global _openat2_works
    names = _names(path)
    if _openat2_works and len(os.fsencode(path)) < PATH_MAX:
        while True:
            try:
                return libc.openat2(root_fd, path, flags | os.O_NOFOLLOW, mode)
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.EINTR):
                    continue
                if error.errno not in (errno.ENOSYS, errno.EPERM):
                    raise
                if error.errno == errno.ENOSYS:
                    _openat2_works = False
                # EPERM may come from a sandbox or from the file itself; opening component by component shows
                # which.
                break
    return _walk(root_fd, names, flags, mode)


def open_dir(root_fd: int, path: str) -> int:
    """Open the folder `path` below `root_fd`; "" is the root itself. The caller closes it. Raises the errors
    of `open_beneath`."""
    if not path:
        return os.open(".", OPEN_FOLDER, dir_fd=root_fd)
    return open_beneath(root_fd, path, OPEN_FOLDER)


def make_dir(root_fd: int, path: str, mode: int, gid: int | None) -> int:
    """Make the folder `path` and its missing parents, and return its descriptor. New folders have exactly
    `mode`, whatever the umask, plus an inherited setgid bit, and the group `gid` unless None. Existing
    folders are unchanged. Two processes may do this at the same time."""
    fd = os.open(".", OPEN_FOLDER, dir_fd=root_fd)
    try:
        for name in _names(path) if path else ():
            made = False
            try:
                lower = os.open(name, OPEN_FOLDER, dir_fd=fd)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, mode & 0o777, dir_fd=fd)
                    made = True
                lower = os.open(name, OPEN_FOLDER, dir_fd=fd)
            os.close(fd)
            fd = lower
            if made:
                set_owner_mode(fd, mode | (os.fstat(fd).st_mode & stat.S_ISGID), gid)
    except BaseException:
        os.close(fd)
        raise
    return fd


def set_owner_mode(fd: int, mode: int, gid: int | None) -> bool:
    """Give an open file or folder its group, then its mode, each only if it differs. Return whether anything
    was changed. The group is set first, since a chown can clear mode bits."""
    status = os.fstat(fd)
    changed = False
    if gid is not None and status.st_gid != gid:
        os.fchown(fd, -1, gid)
        changed = True
    if changed or stat.S_IMODE(status.st_mode) != mode:
        os.fchmod(fd, mode)
        changed = True
    return changed


def _names(path: str) -> list[str]:
    names = path.split("/")
    for name in names:
        if name in ("", ".", ".."):
            raise OSError(errno.EINVAL, "not a normalised relative path", path)
    return names


def _walk(root_fd: int, names: list[str], flags: int, mode: int) -> int:
    held = root_fd
    try:
        for name in names[:-1]:
            lower = os.open(name, HOLD_FOLDER, dir_fd=held)
            if held != root_fd:
                os.close(held)
            held = lower
        return os.open(names[-1], flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=held)
    finally:
        if held != root_fd:
            os.close(held)


class Folders:
    """Descriptors of recently used folders below a root, for a single thread. A descriptor is valid until the
    next call. At most `cap` are open, or only the requested descriptor if the process may open no more."""

    def __init__(self, root_fd: int, cap: int = MOST_KEPT) -> None:
        self.root_fd = root_fd
        self._cap = cap
        self._open: OrderedDict[str, int] = OrderedDict()

    def get(self, path: str) -> int:
        """Return the folder's descriptor. Raises OSError (FileNotFoundError if the folder is missing)."""
        fd = self._open.get(path)
        if fd is not None:
            self._open.move_to_end(path)
            return fd
        return self._keep(path, self._opened(path))

    def _opened(self, path: str) -> int:
        try:
            return open_dir(self.root_fd, path)
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
            self.close()
            return open_dir(self.root_fd, path)

    def make(self, path: str, mode: int, gid: int | None) -> int:
        """Do the same as `get`, but first make the folder (`make_dir`) if it is missing."""
        try:
            return self.get(path)
        except FileNotFoundError:
            return self._keep(path, make_dir(self.root_fd, path, mode, gid))

    def _keep(self, path: str, fd: int) -> int:
        self._open[path] = fd
        if len(self._open) > self._cap:
            os.close(self._open.popitem(last=False)[1])
        return fd

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])


def read_at(fd: int, buffer: memoryview, offset: int) -> int:
    """Read by preadv(2). If that fails with EREMOTEIO, read again in whole blocks. BeeGFS' servers refuse an
    unaligned read in this way while a process on this node has the file open with O_DIRECT."""
    try:
        return os.preadv(fd, (buffer,), offset)
    except OSError as error:
        if error.errno != errno.EREMOTEIO:
            raise
    from penstock.fs.libc import blocks  # imported here, since most copies never need it

    first, length = blocks(offset, len(buffer))
    with mmap.mmap(-1, length) as aligned:
        count = min(max(os.preadv(fd, (aligned,), first) - (offset - first), 0), len(buffer))
        buffer[:count] = aligned[offset - first : offset - first + count]
    return count
