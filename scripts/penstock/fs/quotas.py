"""Quotas: what a user, group or project uses and may use, whose quotas a run's files count against, and
whether they suffice.

`kernel_quotas` queries the kernel, `store_checks` the commands of file systems that count themselves.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Literal, NamedTuple

from penstock.core.errors import MAKE_ROOM
from penstock.core.events import ADMINISTRATOR, CheckResult
from penstock.core.human import size as _size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.core.dataset_documents import StillToWrite

Scope = Literal["user", "group", "project", "folder"]


class Quota(NamedTuple):
    """What a user, group, project or folder uses and may use. None: no limit, or an unknown figure."""

    scope: Scope
    id: int
    pool: str = ""  # the storage pool for which it holds; "": all
    used: int | None = None  # bytes; so are `limit` and `soft_limit`
    limit: int | None = None
    used_files: int | None = None  # on BeeGFS chunk files: a file striped over four targets counts four times
    file_limit: int | None = None
    soft_limit: int | None = None
    soft_file_limit: int | None = None
    # seconds until the passed soft limit of bytes refuses writes; None: not counted
    grace: float | None = None
    file_grace: float | None = None  # the same for the soft limit of files
    path: str = ""  # the folder, of a folder's quota

    @property
    def name(self) -> str:
        """Whose quota it is, for people: `user 1000 in pool 2`."""
        return f"{self.scope} {self.path or self.id}" + (f" in pool {self.pool}" if self.pool else "")


def owner_of_new(folder: Path, uid: int | None, gid: int | None) -> tuple[int, int]:
    """Return user and group that new files in `folder` finally have. None: this process's user; the folder's
    group where it passes that on (setgid), else this process's. Raises OSError."""
    if gid is None:
        status = folder.stat()
        gid = status.st_gid if status.st_mode & stat.S_ISGID else os.getegid()
    return (os.geteuid() if uid is None else uid), gid


def beside(quota: Quota, others: Sequence[StillToWrite], copies: int = 1) -> Quota:
    """Return the quota after other runs have written what they plan, each byte `copies` times. They state no
    project or folder: all below a root count as the same."""
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
    """Judge whether a quota takes `need` bytes and `files` more; with 0 of both, whether it is used up.
    `counted` names what it counts as files.

    | limit              | used and needed                         | verdict           |
    |--------------------|-----------------------------------------|-------------------|
    | none               | any                                     | nothing           |
    | hard               | used is not known                       | note              |
    |                    | used up, or would be passed             | stop              |
    |                    | else                                    | ok                |
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
    """Judge a target for whose files no group is configured. `enforced`: group quotas are in force. Raises
    OSError.

    | the folder hands its group on (setgid) | group quotas | verdict                                      |
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
