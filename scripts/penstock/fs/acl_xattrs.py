"""The POSIX ACLs of files and folders, by the kernel's xattrs (linux/xattr.h).

For what gives, compares and audits permissions (`target`, `keep.audit`), and for preflight and the probe,
which ask whether a target takes them. `write` alone changes anything. `core.posix_acl` has the type.

A list is read and set as a whole. An access ACL that says no more than the nine bits of the mode is
never stored: it reads as None. A default ACL is stored as it was set.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from penstock.core.checks import CheckResult
from penstock.core.posix_acl import decode, effective, encode
from penstock.core.text import printable

if TYPE_CHECKING:
    from penstock.core.posix_acl import Acl

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
NFS4 = "system.nfs4_acl"
NONE_KEPT = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of a file system that keeps no POSIX ACLs, or was mounted without them."""

PathOrFd = int | str | os.PathLike[str]
"""A descriptor, or a path; not a descriptor that was opened by O_PATH, but its path in /proc/self/fd."""


def read(place: PathOrFd, name: str = ACCESS, *, follow: bool = True) -> Acl | None:
    """The access ACL, or by `name` the default one, of a file or folder; None where it has none. Raises
    OSError: of `NONE_KEPT` where there can be none, EINVAL for a list of another version."""
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
    """Set an ACL. An access ACL sets the nine permission bits of the mode, too. Raises OSError."""
    os.setxattr(place, name, encode(acl))


def allows(acl: Acl | None, wanted: Acl | None) -> bool:
    """Whether an ACL that was read allows groups and named users the same as the wanted one. Pure."""
    if acl is None or wanted is None:
        return acl is wanted
    return effective(acl) == effective(wanted)


def judge(folder: str, entries: str, refused: str, mend: str) -> CheckResult:
    """Whether the ACLs that a release is to have (`entries`, as people write them) can be set on the target.
    `refused`: what `refusal` returned for `folder`; `mend`: what gives such a file system ACLs, for people
    (`kinds.Kind.acls`), "" where that is not known. Pure.

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
    """Why POSIX ACLs cannot be set below this folder, in words; "" where they can as far as reads tell: on
    FUSE the kernel answers for a daemon that knows none. Changes nothing. Raises OSError for anything else
    than a refusal."""
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
