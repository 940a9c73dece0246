"""Owner and group of files, by number and by name; and what says that numbers are mapped here.

For audits and the gate, which compare owners, and for messages. Reads this machine's databases of users and
groups, and /proc; changes nothing.

A file's owner is a number, and one file may be seen with different numbers: through an id-mapped mount
(BeeGFS, ext4, XFS and others: doc.beegfs.io, "ID-Mapped Mounts"), by clients of a Lustre nodemap, over NFSv4
where idmapd translates, and in a container with a user namespace. The name is what they have in common.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
from functools import cache
from typing import TYPE_CHECKING

from penstock.core.documents.node_answer import OwnerSeen
from penstock.host.mounts import mount_of
from penstock.host.proc import PROC

if TYPE_CHECKING:
    from penstock.host.mounts import Mount

IDENTITY = ["0", "0", "4294967295"]
"""The only line of uid_map and gid_map outside of user namespaces (user_namespaces(7))."""


def owner(uid: int, gid: int) -> OwnerSeen:
    """These numbers, with the names that this machine has for them."""
    return OwnerSeen(uid, gid, user_name(uid), group_name(gid))


@cache
def user_name(uid: int) -> str:
    """The user's name; "" where this machine has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return ""


def account(uid: int) -> str:
    """The account's name for messages; `uid 1234` where this machine has none."""
    return user_name(uid) or f"uid {uid}"


@cache
def group_name(gid: int) -> str:
    """The group's name; "" where this machine has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except (KeyError, OverflowError):
        return ""


def others_in(gid: int, uid: int) -> bool | None:
    """Whether a group has another account than this one.

    | among its members | as another's own group | this account is listed | answer                      |
    |-------------------|------------------------|------------------------|-----------------------------|
    | yes               | any                    | any                    | yes                         |
    | no                | yes                    | any                    | yes                         |
    | no                | no                     | yes                    | no                          |
    | no                | no                     | no                     | None: not all are listed    |
    """
    with contextlib.suppress(KeyError, OverflowError):
        if set(grp.getgrgid(gid).gr_mem) - {user_name(uid)}:
            return True
    accounts = {(entry.pw_uid, entry.pw_gid) for entry in pwd.getpwall()}
    if any(number != uid and own == gid for number, own in accounts):
        return True
    return False if any(number == uid for number, _ in accounts) else None


def user_number(who: str) -> int | None:
    """The number of a user by its name, else the number that `who` is; None for one that this machine does
    not know."""
    try:
        return pwd.getpwnam(who).pw_uid
    except KeyError:
        return _digits(who)


def group_number(who: str) -> int | None:
    """The same of a group."""
    try:
        return grp.getgrnam(who).gr_gid
    except KeyError:
        return _digits(who)


def _digits(who: str) -> int | None:
    return int(who) if who.isascii() and who.isdecimal() else None


def is_another(number: int, name: str, wanted: int, wanted_name: str, *, mapped: bool) -> bool:
    """Whether an owner or a group is another than the wanted one. `mapped`: whether numbers are mapped on
    this machine (`mapping`). A name is "" where it is not known.

    | the number    | the name                         | mapped | is another |
    |---------------|----------------------------------|--------|------------|
    | the wanted    | any                              | no     | no         |
    | the wanted    | the wanted, or one is not known  | yes    | no         |
    | the wanted    | another                          | yes    | yes        |
    | another       | the wanted                       | any    | no         |
    | another       | another, or one is not known     | any    | yes        |
    """
    known = bool(name and wanted_name)
    if number == wanted:
        return mapped and known and name != wanted_name
    return not (known and name == wanted_name)


def mapping(mount: Mount, proc: str | os.PathLike[str] = PROC) -> str:
    """Why numbers on this mount are not those of the file system, in words; "" where nothing says so.
    Lustre's nodemap and NFS's idmapd leave no sign on a client.

    | what is seen                                           | says                          |
    |--------------------------------------------------------|-------------------------------|
    | `idmapped` among the mount's options (Linux 5.12)      | an id-mapped mount            |
    | another line in uid_map or gid_map than outside of     | a container with a user       |
    | user namespaces                                        | namespace                     |
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
    """Whether this machine says that numbers are mapped on the mount of a folder."""
    return bool(mapping(mount_of(os.path.realpath(folder), proc), proc))


def numbers_here(
    uid: int | None, user: str, gid: int | None, group: str, *, mapped: bool
) -> tuple[int | None, int | None]:
    """The numbers that this machine has for an owner and a group of these numbers and names elsewhere.

    | mapped here, or this account has the owner's name and another number | the numbers are         |
    |----------------------------------------------------------------------|-------------------------|
    | no                                                                   | as they are             |
    | yes                                                                  | by name where it is     |
    |                                                                      | known, else as they are |
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
