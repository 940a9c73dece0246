"""Who stages a dataset now, in which job: `<dataset>/under-way.json`, for readers and their jobs.

The dataset's state is its owner's alone, so other accounts see neither lock nor run. Each step of a run
writes this notice once it holds the lock, and the lock's heartbeat touches it. It stays between the steps of
a run, and goes with the release's publication, a step that fails or is stopped, and `penstock cancel`. A
killed process leaves it:

| the notice                            | is shown as             | advice                                   |
|---------------------------------------|-------------------------|------------------------------------------|
| touched within `clock.BOUND`          | being staged            | depend on its job, or ask again later    |
| of a submitted controller that has    | submitted               | depend on its job                        |
| not begun, which touches nothing      |                         |                                          |
| any other                             | with the time of its    | as if there were none                    |
|                                       | last sign of life       |                                          |
| of another account than the dataset's | nothing                 | as if there were none                    |
| folder, no plain file, longer than    |                         |                                          |
| `LONGEST`, or with other fields       |                         |                                          |

It is for people: no decision depends on it, and where it cannot be written the step goes on without. Writes
that file alone; times of the dataset's folders move where the file system's clock is read (`fs.clock`).
"""

from __future__ import annotations

import contextlib
import os
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import step_table
from penstock.core.documents import under_way as document
from penstock.core.documents.under_way import UnderWay
from penstock.core.errors import PenstockError
from penstock.core.text import printable
from penstock.fs import clock, plain_files
from penstock.host import job_environment
from penstock.target import accounts, cross_account_files, dataset_folders

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout

LONGEST = 4096
"""Bytes of the notice."""
SUBMITTED = "submit"
"""In place of a step: the controller was submitted as a job, and has not begun."""
_JOB = re.compile(r"[0-9]{0,20}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_NAMED = 64
"""Characters that are shown of a host or cluster."""


class StagingNotice(NamedTuple):
    """A notice that is to be shown, and what its file says of it."""

    notice: UnderWay
    uid: int
    """The account that stages, by the file's owner."""
    touched: float
    """When the notice was touched last, in seconds since the epoch."""
    alive: bool
    """It was touched lately, or its controller's job waits to begin."""

    def __str__(self) -> str:
        """One line."""
        notice, who = self.notice, accounts.in_words([str(self.uid)])
        on = f" of cluster {_shown(notice.cluster)}" if notice.cluster else ""
        job = f"SLURM job {notice.job}{on}, " if notice.job else ""
        if notice.step == SUBMITTED:
            return f"{who} submitted its staging: {job}since {notice.since}, which had not begun then"
        where = f"step {notice.step} on {_shown(notice.host)}, {job}since {notice.since}"
        if self.alive:
            return f"it is being staged by {who}: {where}"
        return f"{who} was staging it: {where}; last sign of life at {_stamp(self.touched)}"


def _shown(text: str) -> str:
    return printable(text[:_NAMED])


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Notice:
    """The notice of one step that holds the dataset's lock. Raises neither OSError nor PenstockError."""

    def __init__(self, layout: DatasetLayout, step: str, controller: str) -> None:
        environment = job_environment.current()
        job = (environment.array or environment.job) if environment.proven else ""
        self._layout = layout
        self._notice = UnderWay(
            step=step,
            since=_stamp(clock.now(layout.folder)),
            host=job_environment.host_name(),
            job=job,
            cluster=environment.cluster if job else "",
            controller=controller,
        )

    def begin(self) -> None:
        """Write it, with the `since` of an earlier step of the same job or controller."""
        before = find(self._layout)
        if before is not None and self._notice.continues(before.notice):
            self._notice = self._notice._replace(since=before.notice.since)
        _write(self._layout, self._notice)

    def beat(self) -> None:
        """To be called with each heartbeat of the lock."""
        with contextlib.suppress(OSError):
            cross_account_files.touch(self._layout.folder, self._layout.under_way.name)

    def end(self) -> None:
        """Remove it, unless another process has replaced it."""
        standing = find(self._layout)
        if standing is not None and standing.notice == self._notice:
            forget(self._layout)


def submitted(layout: DatasetLayout, job: str, cluster: str) -> None:
    """Note that this job of a controller was submitted, where the dataset's folder is this account's already
    and nothing is at work. Raises neither OSError nor PenstockError."""
    standing = find(layout)
    at_work = standing is not None and standing.alive and standing.notice.step != SUBMITTED
    if not at_work and os.path.lexists(layout.folder) and dataset_folders.owns(layout):
        since = _stamp(clock.now(layout.folder))
        _write(layout, UnderWay(SUBMITTED, since, job=job, cluster=cluster))


def forget(layout: DatasetLayout) -> None:
    """Nothing is under way any more. By the dataset's owner. Raises neither OSError nor PenstockError."""
    with contextlib.suppress(OSError, PenstockError):
        cross_account_files.forget_notice(layout.under_way)


def _write(layout: DatasetLayout, notice: UnderWay) -> None:
    with contextlib.suppress(OSError, PenstockError):
        cross_account_files.write_notice(layout.under_way, document.UNDER_WAY.to_json(notice))


def find(layout: DatasetLayout) -> StagingNotice | None:
    """By the table above; None where nothing is to be shown. Raises nothing for what lies there."""
    try:
        owner = layout.folder.lstat().st_uid
        fd = plain_files.descriptor(layout.under_way)
        status = os.fstat(fd)
        notice = document.UNDER_WAY.from_json(plain_files.content(fd, LONGEST), layout.under_way)
    except (OSError, ValueError, PenstockError):
        return None
    known = notice.step in (*step_table.OF_RUN, SUBMITTED)
    if status.st_uid != owner or not (known and _JOB.fullmatch(notice.job) and _TIME.fullmatch(notice.since)):
        return None
    alive = notice.step == SUBMITTED or clock.now(layout.pins) - status.st_mtime <= clock.BOUND
    return StagingNotice(notice, owner, status.st_mtime, alive)


def advice(layout: DatasetLayout, staging: StagingNotice | None) -> str:
    """What an account that finds nothing published is to do, in words: wait for the job that stages it, ask
    the owner, or stage it itself."""
    if staging is not None and staging.alive:
        job = staging.notice.job
        if job:
            return f"wait for job {job}: sbatch --dependency=afterok:{job} --kill-on-invalid-dep=yes ..."
        return (
            "it is in no SLURM job that a job could wait for: give the same command again when it has ended"
        )
    try:
        owner = layout.folder.lstat().st_uid
    except OSError:
        owner = os.geteuid()
    if owner != os.geteuid():
        return f"ask its owner, {accounts.in_words([str(owner)])}, to stage it"
    return f"run `penstock run {layout.dataset}`"
