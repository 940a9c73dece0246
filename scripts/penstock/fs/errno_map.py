"""Maps the errno of a failed system call on the target to an error of the run.

| errno                                            | error          | then                              |
|--------------------------------------------------|----------------|-----------------------------------|
| ENOSPC EDQUOT                                    | NoSpaceError   | stop; resume when there is space  |
| EIO ESTALE ETIMEDOUT EREMOTEIO EAGAIN EBUSY ...  | TransientError | write the file anew               |
| EMFILE ENFILE                                    | TransientError | retry: other threads close files  |
| ENAMETOOLONG EILSEQ EFBIG                        | ObjectError    | this file cannot be stored        |
| anything else (EROFS EACCES EPERM ELOOP ...)     | FailedError    | stop                              |
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.errors import MAKE_ROOM, FailedError, NoSpaceError, ObjectError, TransientError

if TYPE_CHECKING:
    from penstock.core.errors import PenstockError

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
