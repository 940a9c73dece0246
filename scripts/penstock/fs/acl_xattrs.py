"""The POSIX ACLs of files and folders, by the kernel's xattrs (linux/xattr.h); `core.posix_acl` has the type.

A list is read and set as a whole. An access ACL that says no more than the nine mode bits is never stored: it
reads as None. A default ACL is stored as it was set.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from penstock.core.events import CheckResult
from penstock.core.human import printable
from penstock.core.posix_acl import decode, effective, encode

if TYPE_CHECKING:
    from penstock.core.posix_acl import Acl

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
NFS4 = "system.nfs4_acl"
# errors of a file system without POSIX ACLs, or mounted without them
NONE_KEPT = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})

# a descriptor or a path; for an O_PATH descriptor its path in /proc/self/fd
PathOrFd = int | str | os.PathLike[str]


def read(place: PathOrFd, name: str = ACCESS, *, follow: bool = True) -> Acl | None:
    """Read the access ACL (or by `name` the default) of a file or folder; None: it has none. Raises OSError:
    of `NONE_KEPT` where ACLs are impossible, EINVAL for a list of another version."""
    try:
        raw = os.getxattr(place, name, follow_symlinks=follow)
    except OSError as error:
        if error.errno == errno.ENODATA:
            return None
        raise
    try:
        return decode(raw)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)) from None


def write(place: PathOrFd, acl: Acl, name: str = ACCESS) -> None:
    """Set an ACL. An access ACL also sets the nine permission bits of the mode."""
    os.setxattr(place, name, encode(acl))


def allows(acl: Acl | None, wanted: Acl | None) -> bool:
    """Return whether the ACL that was read allows groups and named users the same as the wanted one."""
    if acl is None or wanted is None:
        return acl is wanted
    return effective(acl) == effective(wanted)


def judge(folder: str, entries: str, refused: str, mend: str) -> CheckResult:
    """Judge whether a release's ACLs (`entries`, as people write them) can be set on the target.

    `refused`: the answer of `refusal` for `folder`. `mend`: how such a file system gets ACLs, for people
    (`kinds.Kind.acls`); "": unknown.

    | refused | verdict |
    |---------|---------|
    | ""      | ok      |
    | a text  | stop    |
    """
    if not refused:
        return CheckResult("ACL", printable(entries))
    return CheckResult(
        "ACL",
        f"{printable(folder)}: {refused}",
        "stop",
        f"POSIX ACLs, for {printable(entries)}",
        f"{mend or 'mount it with POSIX ACLs'}; or take `permissions.acl` out, and give one group by "
        "`permissions.group`",
    )


def refusal(folder: PathOrFd) -> str:
    """Explain why POSIX ACLs cannot be set below this folder; "" where reads succeed. On FUSE the kernel
    answers even for a daemon without ACLs. Raises OSError for other errors."""
    try:
        read(folder)
        os.listxattr(folder)
    except OSError as error:
        if error.errno not in NONE_KEPT:
            raise
    else:
        return ""
    try:
        os.getxattr(folder, NFS4)
    except OSError as error:
        if error.errno != errno.ENODATA:
            return "it keeps no POSIX ACLs, or is mounted without them"
    return "it keeps NFSv4 ACLs, which penstock does not set, and no POSIX ACLs"
