"""Quotas that the kernel counts: of users, groups and projects on ext4, XFS and others that answer
quotactl(2).

quotactl_fd (Linux 5.14) queries an open folder's file system; before, quotactl does so by the mount's device.
XFS answers `Q_GETQUOTA`, too (`fs/quota/quota.c`: `quota_getquota`): limits in KiB, use in bytes, a grace
time as the second of its end. An account may see its own quotas and those of its groups, root all
(`check_quotactl_permission`). A project's quota is hidden from others. Their statvfs shows the project's room
where the folder passes the project on (`xfs_qm_statvfs`, `ext4_statfs_project`). Id 0 is not queried: its
limits are not in force, and on XFS are the defaults of others.

Quotas of an NFS server are not queried (its rquota service): they show as EDQUOT on writes. Figures are in
bytes and files, grace times in seconds left.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.events import CheckResult
from penstock.fs import libc
from penstock.fs.quotas import Quota, beside, judge, owner_of_new
from penstock.host.proc import PROC, mount_of, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.core.dataset_documents import StillToWrite
    from penstock.fs.quotas import Scope

# In the order of the kernel's types (USRQUOTA, GRPQUOTA, PRJQUOTA), with the flag of limits in force
# (`FS_QUOTA_UDQ_ENFD` and its like, linux/dqblk_xfs.h).
TYPES: tuple[tuple[Scope, int], ...] = (("user", 0x02), ("group", 0x08), ("project", 0x20))
_GET_STATE = 0x5805  # Q_XGETQSTAT: whose limits are in force; each account may query it
_GET_QUOTA = 0x800007
_LIMIT_UNIT = 1024  # bytes; of `dqb_bhardlimit` and `dqb_bsoftlimit` (QIF_DQBLKSIZE)
_DQBLK = struct.Struct("=8Q")
_FS_GET_XATTR = 0x801C581F  # FS_IOC_FSGETXATTR: flags, extent size and number, project id
_HANDS_ON = 0x200  # FS_XFLAG_PROJINHERIT: new files of the folder get its project


class KernelQuotas(NamedTuple):
    """What the kernel counts for the owner of a folder's new files."""

    enforced: frozenset[Scope] = frozenset()  # whose limits are in force
    quotas: tuple[Quota, ...] = ()
    unknown: tuple[Quota, ...] = ()  # in force, but hidden from this account


def ask(folder: str, uid: int, gid: int, device: str = "") -> KernelQuotas:
    """Query the quotas of new files of an existing `folder` with this owner; `device` is its mount's. Empty
    where the kernel or the file system counts none, or the folder cannot be opened. Never raises."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return KernelQuotas()
    try:
        return _ask(fd, (uid, gid, project_of(fd)), device)
    finally:
        os.close(fd)


def _ask(fd: int, owner: tuple[int, int, int], device: str) -> KernelQuotas:
    try:
        state = libc.quotactl(fd, device, _GET_STATE << 8, 0)
    except OSError:
        return KernelQuotas()
    (flags,) = struct.unpack_from("=H", state, 2)
    enforced, quotas, unknown = set(), [], []
    for kind, (scope, flag) in enumerate(TYPES):
        if not flags & flag:
            continue
        enforced.add(scope)
        number = owner[kind]
        if not number:
            continue
        try:
            answer = libc.quotactl(fd, device, _GET_QUOTA << 8 | kind, number)
        except OSError as error:
            # Other errors: nothing is counted for it yet (ENOENT), or no longer (ESRCH).
            if error.errno in (errno.EPERM, errno.EACCES):
                unknown.append(Quota(scope, number))
            continue
        quotas.append(read(scope, number, answer, time.time()))
    return KernelQuotas(frozenset(enforced), tuple(quotas), tuple(unknown))


def read(scope: Scope, number: int, answer: bytes, now: float) -> Quota:
    """Parse the quota in a `struct if_dqblk`; `now` in seconds since the epoch."""
    hard, soft, used, file_limit, soft_file_limit, files, ends, files_end = _DQBLK.unpack_from(answer)
    return Quota(
        scope,
        number,
        used=used,
        limit=hard * _LIMIT_UNIT or None,
        used_files=files,
        file_limit=file_limit or None,
        soft_limit=soft * _LIMIT_UNIT or None,
        soft_file_limit=soft_file_limit or None,
        grace=ends - now if ends else None,
        file_grace=files_end - now if files_end else None,
    )


def project_of(fd: int) -> int:
    """Return the project of new files in an open folder; 0 for none, and where it cannot be read."""
    return project_known(fd) or 0


def project_known(fd: int) -> int | None:
    """Return the project of new files in an open folder, 0 for none; None where the file system does not
    say."""
    try:
        answer = fcntl.ioctl(fd, _FS_GET_XATTR, bytes(28))
    except OSError:
        return None
    flags, _, _, project = struct.unpack_from("=4I", answer)
    return int(project) if flags & _HANDS_ON else 0


def of_new_files(
    path: Path, uid: int | None, gid: int | None, proc: str | os.PathLike[str] = PROC
) -> KernelQuotas:
    """Query the quotas of new files in the nearest folder at or above `path`; user and group as in
    `quotas.owner_of_new`. Raises OSError of the path itself."""
    folder = nearest(path)
    real = os.path.realpath(folder)
    return ask(real, *owner_of_new(folder, uid, gid), mount_of(real, proc).device)


def check(
    limits: KernelQuotas, need: int = 0, files: int = 0, others: Sequence[StillToWrite] = ()
) -> list[CheckResult]:
    """Judge whether these quotas take `need` bytes in whole blocks and `files` files and folders. `others`
    (the runs below the root) will still write beside that. With 0 of both: whether a quota is used up, or its
    grace runs. Unknown quotas are notes."""
    results = [
        result
        for quota in limits.quotas
        for result in judge(f"quota of {quota.name}", beside(quota, others), need, files)
    ]
    text = "not known: only root may ask for it; its limits are in force"
    return results + [CheckResult(f"quota of {quota.name}", text, "note") for quota in limits.unknown]
