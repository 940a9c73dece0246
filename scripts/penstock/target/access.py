"""Compares group, mode and ACL of a file or folder with the wanted ones, and sets those that differ. Also
decides which accounts a configuration trusts, by name or number.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.config import command_options
from penstock.core import posix_acl
from penstock.fs import owners
from penstock.fs.owners import user_name, user_number

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.config.access_rules import Access
    from penstock.core.posix_acl import Acl
    from penstock.fs.owners import PathOrFd


def is_listed(uid: int, names: Sequence[str]) -> bool:
    """Return whether one of these names or numbers is account `uid`. Unknown names match no account.

    | a listed name or number               | matches if                                    |
    |---------------------------------------|-----------------------------------------------|
    | a name that this machine knows        | its number is `uid`, or `uid` has this name   |
    | a number                              | it is `uid`                                   |
    """
    return any(user_number(name) == uid or (name and user_name(uid) == name) for name in names)


def owners_told(root: Path, names: Sequence[str]) -> Sequence[str]:
    """Return the accounts whose releases count below a root.

    They are `names` (`target.owners`) or, if it is empty, the root's owner and this account. Raises OSError.
    """
    return names or tuple(dict.fromkeys((str(root.stat().st_uid), str(os.geteuid()))))


def naming(uid: int) -> str:
    """Return a hint on how to make `penstock gate` and `penstock path` accept this account's releases."""
    entry = f"`target: {{owners: [{user_name(uid) or uid}]}}`"
    return (
        f"write {entry} into the configurations of those who read it, or have the administrator write it "
        f"into {command_options.SITE}, for everybody on this machine"
    )


def in_words(names: Sequence[str]) -> str:
    return ", ".join(_in_words(name) for name in names)


def _in_words(name: str) -> str:
    user = user_name(int(name)) if name.isascii() and name.isdecimal() else ""
    return f"{user} (uid {name})" if user else name if user or not name.isdecimal() else f"uid {name}"


# `Access` (`config.access_rules`) is the wanted state. An ACL of None is not configured, and is not read. On
# BeeGFS a chown and an ACL cost a round trip each, so as few calls as possible are made, in this order:
#
# | what differs                    | call                                                                  |
# |---------------------------------|-----------------------------------------------------------------------|
# | the group                       | chown, which can clear mode bits                                      |
# | what the ACL allows             | setxattr, which sets the nine bits of the mode, and can clear setgid  |
# | the mode, after these calls     | chmod; its group bits are the ACL's mask, so the ACL allows the same  |
# | the default ACL of a folder     | setxattr                                                              |
#
# Any state before these calls leads to the same result. ACLs are compared by what they allow: an inherited
# ACL with wider entries and a narrower mask is right, and costs no call.


class ActualAccess(NamedTuple):
    """The access that a file or folder has, as `look` reads it."""

    mode: int  # the permission bits, with setuid, setgid and sticky
    gid: int
    links: int  # number of the inode's names (hard links)
    kind: int  # the file type, from stat.S_IFMT
    acl: Acl | None  # None if there is no ACL, or if it was not read since none is wanted; `default` likewise
    default: Acl | None  # the ACL that new entries of the folder inherit

    def in_words(self, wanted: Access) -> str:
        """Return, for a message, the mode, the group, and the ACLs that are wanted."""
        text = f"mode {self.mode:04o} and group {self.gid}"
        if wanted.acl is not None:
            text += f", ACL {posix_acl.in_words(self.acl)}"
        if wanted.default is not None:
            text += f", default ACL {posix_acl.in_words(self.default)}"
        return text


def look(place: PathOrFd, wanted: Access, *, follow: bool = True) -> ActualAccess:
    """Read the access with one stat, and a getxattr for each wanted ACL."""
    status = os.stat(place) if isinstance(place, int) else os.stat(place, follow_symlinks=follow)
    acl = None if wanted.acl is None else owners.read_acl(place, follow=follow)
    default = None if wanted.default is None else owners.read_acl(place, owners.DEFAULT, follow=follow)
    mode = status.st_mode
    return ActualAccess(stat.S_IMODE(mode), status.st_gid, status.st_nlink, stat.S_IFMT(mode), acl, default)


def right(actual: ActualAccess, wanted: Access, gid: int | None) -> bool:
    """Return whether mode, group and ACLs are as wanted. A `gid` of None allows any group."""
    return (
        actual.mode == wanted.mode
        and (gid is None or actual.gid == gid)
        and owners.acl_allows(actual.acl, wanted.acl)
        and owners.acl_allows(actual.default, wanted.default)
    )


def give(place: PathOrFd, actual: ActualAccess, wanted: Access, gid: int | None) -> None:
    """Set those parts of `wanted` and `gid` that differ from `actual`, without reading them back."""
    mode, changed = actual.mode, False
    if gid is not None and actual.gid != gid:
        os.chown(place, -1, gid)
        changed = True
    if wanted.acl is not None and not owners.acl_allows(actual.acl, wanted.acl):
        owners.write_acl(place, wanted.acl)
        changed = True
    if changed:
        mode = stat.S_IMODE(os.stat(place).st_mode)
    if mode != wanted.mode:
        os.chmod(place, wanted.mode)
    if wanted.default is not None and not owners.acl_allows(actual.default, wanted.default):
        owners.write_acl(place, wanted.default, owners.DEFAULT)


def put_right(place: PathOrFd, wanted: Access, gid: int | None) -> bool:
    """Call `look`, and `give` if the access differs. Returns whether the access differed."""
    actual = look(place, wanted)
    if right(actual, wanted, gid):
        return False
    give(place, actual, wanted, gid)
    return True
