"""Finds owner and group of files, by number and by name, and signs that this machine maps the numbers. Reads
and sets POSIX ACLs through the kernel's xattrs (linux/xattr.h).
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
from functools import cache
from typing import TYPE_CHECKING

from penstock.core.human import printable
from penstock.core.node_answer import OwnerSeen
from penstock.core.posix_acl import decode, effective, encode
from penstock.core.run_steps import CheckResult
from penstock.host.kernel_facts import PROC, mount_of

if TYPE_CHECKING:
    from penstock.core.posix_acl import Acl
    from penstock.host.kernel_facts import Mount


# Owner and group of files; and the signs that numbers are mapped on this machine.
#
# A file's owner is a number. A file may appear with different numbers on different machines, but with an
# unchanged owner's name. Causes:
#
# - an id-mapped mount (BeeGFS, ext4, XFS and others: doc.beegfs.io, "ID-Mapped Mounts")
# - a Lustre nodemap
# - NFSv4 with idmapd, which translates numbers
# - a container with a user namespace

# numbers in the only line that uid_map and gid_map have outside of user namespaces (user_namespaces(7))
IDENTITY = ["0", "0", "4294967295"]


def owner(uid: int, gid: int) -> OwnerSeen:
    """Return these numbers with their names on this machine."""
    return OwnerSeen(uid, gid, user_name(uid), group_name(gid))


@cache
def user_name(uid: int) -> str:
    """Return the user's name, or "" if this machine has no name for the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return ""


def account(uid: int) -> str:
    """Return the account's name for messages, or `uid 1234` if this machine has no name for the number."""
    return user_name(uid) or f"uid {uid}"


@cache
def group_name(gid: int) -> str:
    """Return the group's name, or "" if this machine has no name for the number."""
    try:
        return grp.getgrgid(gid).gr_name
    except (KeyError, OverflowError):
        return ""


def others_in(gid: int, uid: int) -> bool | None:
    """Return whether a group has any account except this one.

    | another member | another account's own group | this account is listed | answer                       |
    |----------------|-----------------------------|------------------------|------------------------------|
    | yes            | any                         | any                    | yes                          |
    | no             | yes                         | any                    | yes                          |
    | no             | no                          | yes                    | no                           |
    | no             | no                          | no                     | None: some are not listed    |
    """
    with contextlib.suppress(KeyError, OverflowError):
        if set(grp.getgrgid(gid).gr_mem) - {user_name(uid)}:
            return True
    accounts = {(entry.pw_uid, entry.pw_gid) for entry in pwd.getpwall()}
    if any(number != uid and own == gid for number, own in accounts):
        return True
    return False if any(number == uid for number, _ in accounts) else None


def user_number(who: str) -> int | None:
    """Return the number of the user named `who`, or `who` if it is a number; None for another name."""
    try:
        return pwd.getpwnam(who).pw_uid
    except KeyError:
        return _digits(who)


def group_number(who: str) -> int | None:
    """Return the number of a group, as `user_number` does for a user."""
    try:
        return grp.getgrnam(who).gr_gid
    except KeyError:
        return _digits(who)


def _digits(who: str) -> int | None:
    return int(who) if who.isascii() and who.isdecimal() else None


def is_another(number: int, name: str, wanted: int, wanted_name: str, *, mapped: bool) -> bool:
    """Return whether an owner or a group differs from the wanted one. `mapped` means that numbers are mapped
    on this machine (see `mapping`). An unknown name is "".

    | the number    | the name                         | mapped | is another |
    |---------------|----------------------------------|--------|------------|
    | the wanted    | any                              | no     | no         |
    | the wanted    | the wanted, or a name is unknown | yes    | no         |
    | the wanted    | another                          | yes    | yes        |
    | another       | the wanted                       | any    | no         |
    | another       | another, or a name is unknown    | any    | yes        |
    """
    both_named = bool(name and wanted_name)
    if number == wanted:
        return mapped and both_named and name != wanted_name
    return not (both_named and name == wanted_name)


def mapping(mount: Mount, proc: str | os.PathLike[str] = PROC) -> str:
    """Explain why numbers on this mount are not those of the file system, or return "" if nothing shows this.

    Lustre's nodemap and NFS's idmapd leave no sign on a client.

    | sign                                                   | explanation                   |
    |--------------------------------------------------------|-------------------------------|
    | `idmapped` among the mount's options (Linux 5.12)      | an id-mapped mount            |
    | uid_map or gid_map has another content than outside    | a container with a user       |
    | of user namespaces                                     | namespace                     |
    """
    if "idmapped" in mount.values:
        return "an id-mapped mount (its option `idmapped`)"
    for name in ("uid_map", "gid_map"):
        try:
            with open(f"{proc}/self/{name}", encoding="ascii", errors="replace") as stream:
                lines = [line.split() for line in stream]
        except OSError:
            continue
        if lines != [IDENTITY]:
            return f"a user namespace, as of a container (/proc/self/{name})"
    return ""


def is_mapped(folder: str | os.PathLike[str], proc: str | os.PathLike[str] = PROC) -> bool:
    """Return whether numbers are mapped on the mount of a folder, as far as this machine shows it."""
    return bool(mapping(mount_of(os.path.realpath(folder), proc), proc))


def numbers_here(
    uid: int | None, user: str, gid: int | None, group: str, *, mapped: bool
) -> tuple[int | None, int | None]:
    """Return this machine's numbers for an owner and a group with these numbers and names elsewhere.

    | mapped here, or this account has the owner's name and another number | the numbers are         |
    |----------------------------------------------------------------------|-------------------------|
    | no                                                                   | unchanged               |
    | yes                                                                  | those of the names, or  |
    |                                                                      | unchanged if unknown    |
    """
    mine = bool(user) and os.geteuid() != uid and user_name(os.geteuid()) == user
    if not (mapped or mine):
        return uid, gid
    if mine:
        uid = os.geteuid()
    elif user and uid is not None:
        with contextlib.suppress(KeyError):
            uid = pwd.getpwnam(user).pw_uid
    if group and gid is not None:
        with contextlib.suppress(KeyError):
            gid = grp.getgrnam(group).gr_gid
    return uid, gid


# The POSIX ACLs of files and folders. `core.posix_acl` has their type.
#
# A list is read and set as a whole. An access ACL that has no more information than the nine mode bits is
# never stored, and reads as None. A default ACL is stored as it was set.

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
NFS4 = "system.nfs4_acl"
# errors of a file system that has no POSIX ACLs, or is mounted without ACLs
NONE_KEPT = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})

# A descriptor or a path. An O_PATH descriptor is passed as its path in /proc/self/fd.
PathOrFd = int | str | os.PathLike[str]


def read_acl(place: PathOrFd, name: str = ACCESS, *, follow: bool = True) -> Acl | None:
    """Read the access ACL of a file or folder, or the default ACL if `name` says so. None if it has no such
    ACL. Raises OSError: one of `NONE_KEPT` if ACLs are impossible, or EINVAL for another version."""
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


def write_acl(place: PathOrFd, acl: Acl, name: str = ACCESS) -> None:
    """Set an ACL. An access ACL also sets the nine permission bits of the mode."""
    os.setxattr(place, name, encode(acl))


def acl_allows(acl: Acl | None, wanted: Acl | None) -> bool:
    """Return whether `acl`, read from a file, gives groups and named users the rights of the ACL `wanted`."""
    if acl is None or wanted is None:
        return acl is wanted
    return effective(acl) == effective(wanted)


def judge_acl(folder: str, entries: str, refused: str, mend: str) -> CheckResult:
    """Judge whether a release's ACLs (`entries`, as people write them) can be set on the target.

    `refused` is the result of `acl_refusal` for `folder`. `mend` is the setting that gives such a file system
    ACLs (`kinds.Kind.acls`), or "" if unknown.

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


def acl_refusal(folder: PathOrFd) -> str:
    """Explain why POSIX ACLs cannot be set below this folder, or return "" if an ACL can be read. On FUSE,
    the kernel answers such a read even if the daemon has no ACLs. Raises OSError for other errors."""
    try:
        read_acl(folder)
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
