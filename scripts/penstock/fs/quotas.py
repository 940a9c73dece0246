"""Quotas: how much a user, group or project uses and may use, and whether a run's files fit. Also queries the
quotas that the kernel counts (ext4, XFS, and other file systems with quotactl(2)).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import time
from typing import TYPE_CHECKING, Literal, NamedTuple

from penstock.core.errors import MAKE_ROOM
from penstock.core.human import size as _size
from penstock.core.run_steps import ADMINISTRATOR, CheckResult
from penstock.fs import libc
from penstock.host.kernel_facts import PROC, mount_of, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.core.dataset_documents import StillToWrite


# The type of a quota, the owner whose quotas a run's files count against, and whether those quotas suffice.
#
# This module queries the kernel. `store_checks` queries the commands of file systems that count quotas
# themselves.

Scope = Literal["user", "group", "project", "folder"]


class Quota(NamedTuple):
    """How much a user, group, project or folder uses and may use. None means no limit, or an unknown
    figure."""

    scope: Scope
    id: int
    pool: str = ""  # the storage pool to which the quota applies; "" if it applies to all pools
    used: int | None = None  # bytes, like `limit` and `soft_limit`
    limit: int | None = None
    # number of files; on BeeGFS of chunk files, so that a file on four targets counts four times
    used_files: int | None = None
    file_limit: int | None = None
    soft_limit: int | None = None
    soft_file_limit: int | None = None
    # seconds until writes are refused, since the soft limit of bytes is exceeded; None if no grace time is
    # running
    grace: float | None = None
    file_grace: float | None = None  # like `grace`, for the soft limit of files
    path: str = ""  # the folder, if the quota belongs to a folder; "" for any other quota

    @property
    def name(self) -> str:
        """A readable name of the quota's owner: `user 1000 in pool 2`."""
        return f"{self.scope} {self.path or self.id}" + (f" in pool {self.pool}" if self.pool else "")


def owner_of_new(folder: Path, uid: int | None, gid: int | None) -> tuple[int, int]:
    """Return the user and group that new files in `folder` finally have. A `uid` of None means this process's
    user. A `gid` of None means a setgid folder's group, or else this process's. Raises OSError."""
    if gid is None:
        status = folder.stat()
        gid = status.st_gid if status.st_mode & stat.S_ISGID else os.getegid()
    return (os.geteuid() if uid is None else uid), gid


def beside(quota: Quota, others: Sequence[StillToWrite], copies: int = 1) -> Quota:
    """Return the quota after other runs have written the rest of their plans, each byte `copies` times. Runs
    state no project or folder, so for a project's or folder's quota all runs below the root count."""
    theirs = [
        run
        for run in others
        if quota.scope in ("project", "folder") or (run.uid if quota.scope == "user" else run.gid) == quota.id
    ]
    size, files = copies * sum(run.bytes for run in theirs), sum(run.files for run in theirs)
    return quota._replace(
        used=None if quota.used is None else quota.used + size,
        used_files=None if quota.used_files is None else quota.used_files + files,
    )


def judge(about: str, quota: Quota, need: int, files: int, counted: str = "files") -> Iterator[CheckResult]:
    """Judge whether `need` bytes and `files` files fit in a quota. If both numbers are 0, judge whether it is
    used up. `counted` names the things that the quota counts as files.

    | limit              | used and needed                         | verdict           |
    |--------------------|-----------------------------------------|-------------------|
    | none               | any                                     | nothing           |
    | hard               | used is not known                       | note              |
    |                    | used up, or would be passed             | stop              |
    |                    | neither                                 | ok                |
    | soft               | would not be passed                     | nothing           |
    |                    | passed, and its grace is over           | stop              |
    |                    | would be passed, or its grace is running | warning           |
    """
    mend = f"{MAKE_ROOM}, stage less, or have the quota raised: {ADMINISTRATOR}"

    def number(count: int) -> str:
        return f"{count:,} {counted}"

    hard = ((quota.used, quota.limit, need, _size, "bytes"),
            (quota.used_files, quota.file_limit, files, number, counted))  # fmt: skip
    for used, limit, more, shown, unit in hard:
        if limit is None:
            continue
        if used is None:
            yield CheckResult(about, f"the limit is {shown(limit)}; what is used is not known", "note")
            continue
        text = f"{shown(used)} used, {shown(more)} more, the limit is {shown(limit)}"
        if used + more > limit or used >= limit:
            missing = max(1, used + more - limit)
            text += f": {missing:,} {unit} are missing"
            yield CheckResult(about, text, "stop", shown(used + more), mend)
        else:
            yield CheckResult(about, text if more else f"{shown(used)} of {shown(limit)} used")
    soft = ((quota.used, quota.soft_limit, quota.grace, need, _size),
            (quota.used_files, quota.soft_file_limit, quota.file_grace, files, number))  # fmt: skip
    for used, limit, grace, more, shown in soft:
        if limit is None or used is None or used + more <= limit:
            continue
        if grace is not None and grace <= 0:
            text = f"its soft limit of {shown(limit)} is passed, and its grace is over: writes are refused"
            yield CheckResult(about, text, "stop", shown(limit), mend)
            continue
        left = "the grace time begins then" if used <= limit else "what is left of its grace is not known"
        left = left if grace is None else f"{grace:,.0f} s of grace are left"
        passed = f"{shown(more)} more pass" if more else "which passes"
        text = f"{shown(used)} used, {passed} its soft limit of {shown(limit)}; {left}"
        yield CheckResult(about, text, "warning", shown(limit), mend)


def unnamed_group(folder: Path, *, enforced: bool) -> list[CheckResult]:
    """Judge a target folder for whose files no group is configured. `enforced` says whether group quotas are
    in force. Raises OSError.

    | setgid folder, so files get its group  | group quotas | verdict                                      |
    |----------------------------------------|--------------|----------------------------------------------|
    | yes                                    | any          | warning: a mode decides whose quota it is    |
    | no                                     | in force     | stop: the quota is that of whoever runs it   |
    | no                                     | not in force | nothing                                      |
    """
    hands_on = bool(folder.stat().st_mode & stat.S_ISGID)
    if not hands_on and not enforced:
        return []
    mend = "name the group of the files in `permissions.group`"
    if hands_on:
        text = f"no group is configured; files get group {folder.stat().st_gid}, which the folder hands on"
        return [CheckResult("group", text, "warning", "a group in `permissions.group`", mend)]
    text = (
        "group quotas are in force, no group is configured, and the folder hands none on: files would count "
        f"against the group of whoever runs penstock ({os.getegid()})"
    )
    return [CheckResult("group", text, "stop", "a group in `permissions.group`", mend)]


# Quotas that the kernel counts, for users, groups and projects on ext4, XFS and other file systems that
# support quotactl(2).
#
# quotactl_fd (Linux 5.14) queries the file system of an open folder. On older kernels, quotactl queries it by
# the mount's device. XFS supports `Q_GETQUOTA`, too (`fs/quota/quota.c`: `quota_getquota`). Limits are in
# KiB, use in bytes, and a grace time is the second of its end. An account may see its own quotas and those of
# its groups; root may see all quotas (`check_quotactl_permission`). Only root sees a project's quota. To
# other accounts, statvfs shows the project's room if new files in the folder get the folder's project
# (`xfs_qm_statvfs`, `ext4_statfs_project`). Id 0 is not queried: its limits are not in force, and on XFS they
# are the defaults for other ids.
#
# Quotas of an NFS server (its rquota service) are not queried; they show as EDQUOT on writes. Figures are in
# bytes and files, grace times in seconds left.

# Scopes in the order of the kernel's types (USRQUOTA, GRPQUOTA, PRJQUOTA). Each has the flag that means that
# the scope's limits are in force (`FS_QUOTA_UDQ_ENFD` and the like, linux/dqblk_xfs.h).
TYPES: tuple[tuple[Scope, int], ...] = (("user", 0x02), ("group", 0x08), ("project", 0x20))
_GET_STATE = 0x5805  # Q_XGETQSTAT: queries which scopes' limits are in force; any account may do so
_GET_QUOTA = 0x800007
_LIMIT_UNIT = 1024  # bytes in a unit of `dqb_bhardlimit` and `dqb_bsoftlimit` (QIF_DQBLKSIZE)
_DQBLK = struct.Struct("=8Q")
_FS_GET_XATTR = 0x801C581F  # FS_IOC_FSGETXATTR: reads flags, extent size and number, and project id
_HANDS_ON = 0x200  # FS_XFLAG_PROJINHERIT: the flag by which new files in a folder get its project


class KernelQuotas(NamedTuple):
    """The kernel's quotas for the owner of a folder's new files."""

    enforced: frozenset[Scope] = frozenset()  # scopes whose limits are in force
    quotas: tuple[Quota, ...] = ()
    unknown: tuple[Quota, ...] = ()  # quotas in force that this account may not see


def ask(folder: str, uid: int, gid: int, device: str = "") -> KernelQuotas:
    """Query the quotas for new files with this owner in an existing `folder`. `device` is that of the
    folder's mount. The result is empty if nothing is counted, or the folder cannot be opened. Never
    raises."""
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
            # Other errors mean that nothing is counted for this owner yet (ENOENT), or that nothing is
            # counted any more (ESRCH).
            if error.errno in (errno.EPERM, errno.EACCES):
                unknown.append(Quota(scope, number))
            continue
        quotas.append(read(scope, number, answer, time.time()))
    return KernelQuotas(frozenset(enforced), tuple(quotas), tuple(unknown))


def read(scope: Scope, number: int, answer: bytes, now: float) -> Quota:
    """Parse the quota in a `struct if_dqblk`. `now` is in seconds since the epoch."""
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
    """Return the project of new files in an open folder, or 0 if there is none or it cannot be read."""
    return project_known(fd) or 0


def project_known(fd: int) -> int | None:
    """Return the project of new files in an open folder, 0 if there is none, or None if it cannot be read."""
    try:
        answer = fcntl.ioctl(fd, _FS_GET_XATTR, bytes(28))
    except OSError:
        return None
    flags, _, _, project = struct.unpack_from("=4I", answer)
    return int(project) if flags & _HANDS_ON else 0


def of_new_files(
    path: Path, uid: int | None, gid: int | None, proc: str | os.PathLike[str] = PROC
) -> KernelQuotas:
    """Query the quotas for new files in the nearest existing folder at or above `path`. `uid` and `gid` mean
    the same as for `owner_of_new`. Raises OSError if a call on the path itself fails."""
    folder = nearest(path)
    real = os.path.realpath(folder)
    return ask(real, *owner_of_new(folder, uid, gid), mount_of(real, proc).device)


def check(
    limits: KernelQuotas, need: int = 0, files: int = 0, others: Sequence[StillToWrite] = ()
) -> list[CheckResult]:
    """Judge whether `need` bytes in whole blocks and `files` files and folders fit in these quotas. `others`
    are the runs below the root, whose remaining data counts, too. If both numbers are 0, judge whether a
    quota is used up or its grace time is running. Unknown quotas become notes."""
    results = [
        result
        for quota in limits.quotas
        for result in judge(f"quota of {quota.name}", beside(quota, others), need, files)
    ]
    text = "not known: only root may ask for it; its limits are in force"
    return results + [CheckResult(f"quota of {quota.name}", text, "note") for quota in limits.unknown]
