"""Group, mode and ACL of one file or folder: compared, and set where they differ.

`Access` (`config.access_rules`) is the wanted state; an ACL of None is not configured, and not read. On
BeeGFS a chown and an ACL cost a round trip each, so calls are few:

| what differs                    | calls that change it, in this order                                   |
|---------------------------------|-----------------------------------------------------------------------|
| the group                       | chown (which can clear mode bits)                                     |
| what the ACL allows             | setxattr (which sets the nine bits of the mode, and can clear setgid) |
| the mode, after these           | chmod (its group bits are the ACL's mask: the ACL allows what it did) |
| the default ACL of a folder     | setxattr                                                              |

The order of earlier changes does not matter. ACLs are compared by what they allow: an inherited ACL with
wider entries and a narrower mask is right, and costs no call.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import posix_acl
from penstock.fs import owners

if TYPE_CHECKING:
    from penstock.config.access_rules import Access
    from penstock.core.posix_acl import Acl
    from penstock.fs.owners import PathOrFd


class ActualAccess(NamedTuple):
    """What a file or folder has, by `look`."""

    mode: int  # the permission bits, with setuid, setgid and sticky
    gid: int
    links: int  # names (hard links) of the inode
    kind: int  # by stat.S_IFMT
    acl: Acl | None  # None: no ACL, or not read since none is wanted; `default` likewise
    default: Acl | None  # inherited by what is made in the folder

    def in_words(self, wanted: Access) -> str:
        """Name mode, group and wanted ACLs, for a message."""
        text = f"mode {self.mode:04o} and group {self.gid}"
        if wanted.acl is not None:
            text += f", ACL {posix_acl.in_words(self.acl)}"
        if wanted.default is not None:
            text += f", default ACL {posix_acl.in_words(self.default)}"
        return text


def look(place: PathOrFd, wanted: Access, *, follow: bool = True) -> ActualAccess:
    """Read by one stat, and a getxattr for each wanted ACL."""
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
    """Set what differs from `actual`, without reading it back."""
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
    """`look`, then `give` what differs; return whether something did."""
    actual = look(place, wanted)
    if right(actual, wanted, gid):
        return False
    give(place, actual, wanted, gid)
    return True
