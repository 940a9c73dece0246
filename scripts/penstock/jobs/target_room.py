"""Whether a plan, a repair or a slice of a rehearsal fits on the target beside what others still write: on
its stores, its metadata and its quotas.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from penstock.core import events, human
from penstock.core.errors import LockedError, NoSpaceError
from penstock.core.human import brief
from penstock.dataset import staging_notice
from penstock.fs import quotas, store_checks
from penstock.fs.capabilities import facts
from penstock.fs.placement import SizeClasses
from penstock.fs.quotas import owner_of_new
from penstock.jobs import forecast, share_rule
from penstock.jobs.forecast import FILE_SYSTEM_BLOCK
from penstock.target import access

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.config.settings import TargetConfig
    from penstock.core.dataset_documents import StillToWrite
    from penstock.core.events import CheckResult
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.dataset.staging_notice import StagingNotice
    from penstock.jobs.forecast import Totals


# How a plan's files spread over the target's stores, metadata and quotas.
#
# The file system vendor's commands, if any, and the kernel's quotas say it. Only `stripe` changes anything:
# the layout of the empty staging folder (the tree in which the release grows).


class TargetStores:
    """The stores of one dataset's target: first `check`, before anything is made, then `stripe`. `gid`: the
    files' group; None: the folder's where it is setgid, else the process's."""

    def __init__(self, layout: DatasetLayout, target: TargetConfig, gid: int | None) -> None:
        self._layout, self._target, self._gid = layout, target, gid
        self._checks = store_checks.PlanChecks([])
        self._others: Sequence[StillToWrite] = ()

    @property
    def pool(self) -> str:
        """The files' storage pool, by `check`; "": not known."""
        return self._checks.pool

    @property
    def chunk_files(self) -> int:
        """The files' chunk files (BeeGFS's stripes), by the last of `check` and `stripe`; 0: not known."""
        return self._checks.chunk_files

    @property
    def gid(self) -> int:
        return owner_of_new(self._layout.releases, None, self._gid)[1]

    @property
    def sizes(self) -> SizeClasses | None:
        """New counters by size for the files to copy; None without the vendor's commands."""
        needed = store_checks.has_tools(self._layout.root, self._target.filesystem)
        return SizeClasses() if needed else None

    def check(self, totals: Totals, others: Sequence[StillToWrite] = ()) -> list[CheckResult]:
        """Check that these files fit beside what `others` will still write, striped as configured. Returns a
        result for each check. Raises NoSpaceError where the files do not fit."""
        self._others = others
        self._checks = store_checks.check_plan(
            self._layout.releases,
            totals.to_place or SizeClasses(),
            totals.folders,
            gid=self._gid,
            wish=self._target.striping,
            named=self._target.filesystem,
            others=others,
        )
        counted = quotas.of_new_files(self._layout.releases, None, self._gid)
        results = [
            *quotas.check(counted, totals.blocks, totals.new_inodes, others),
            *self._checks.results,
        ]
        self._refuse(results)
        return results

    def stripe(self, data: Path, totals: Totals) -> list[CheckResult]:
        """Set the striping chosen by `check` on the empty staging folder `data`.

        If the file system refuses it, check that the files fit with the folder's own striping. Raises
        NoSpaceError where they do not.
        """
        checks = self._checks
        results = store_checks.stripe(data, checks.targets, checks.chunk, named=self._target.filesystem)
        if any(result.verdict != "ok" for result in results):
            sizes = totals.to_place or SizeClasses()
            as_given = store_checks.check_plan(
                data,
                sizes,
                totals.folders,
                gid=self._gid,
                named=self._target.filesystem,
                others=self._others,
            )
            self._refuse(as_given.results)
            self._checks = as_given
        return results

    def _refuse(self, results: list[CheckResult]) -> None:
        stops = [result for result in results if result.verdict == "stop"]
        if stops:
            raise NoSpaceError(
                "the target cannot take this run",
                where=str(self._layout.root),
                why="; ".join(f"{result.about}: {result.found}" for result in stops),
                hint="; ".join(dict.fromkeys(result.mend for result in stops)) + "; nothing was copied",
            )


# Whether a plan, a repair or a slice of a rehearsal fits on the target beside what others still write.
#
# The problem: a run fills a file system for hours, and a run planned meanwhile sees free space that the first
# will take. So each states in its notice (`dataset.staging_notice`) what it will still write, and lowers that
# once a minute. `take` adds up the live notices.
#
# | a notice below the root, of another work            | then                                             |
# |-----------------------------------------------------|--------------------------------------------------|
# | is not living, only submitted, or no notice         | is passed over                                   |
# | is of this account, or of one of `target.owners`    | is counted, and named                            |
# | is of any other account, or states more than the    | is named, and refuses nothing: one forged number |
# | file system holds                                   | would stop everybody                             |
#
# Each work states first and then counts. So of two plans at one moment at least one is refused; neither
# waits. Where a listing is late, or the other lies below another root, both pass. Then each writer ends
# before `target.keep_free` is reached (`target.room_watch`), and can be resumed.
#
# While a run of a version before 1.0 lives, nothing is planned beside it (`share_rule`).

NAMED = 10  # others that a message names; the rest is counted
EVERY = 60.0  # seconds between two changes of a notice, at least


def take(
    context: Context, layout: DatasetLayout, path: Path, step: str, totals: Totals, stores: TargetStores
) -> tuple[str, list[CheckResult]]:
    """State in the notice `path` what will be written, then check that it fits beside the others.

    Returns a sentence on the space, and a result for each check. The caller holds the dataset's lock. Raises
    NoSpaceError that names the others, LockedError while a run of an older version lives.
    """
    owners = access.owners_told(layout.root, context.config.target.owners)

    def trusted(uid: int) -> bool:
        return uid == os.geteuid() or access.is_listed(uid, owners)

    share_rule.refuse_older(layout.promises, LockedError, trusted)
    size, files = max(0, totals.blocks), totals.new_inodes
    staging_notice.restate(layout, path, bytes=size, files=files, chunk_files=0, gid=stores.gid, pool="")
    space = facts(layout.root)
    keep = context.config.target.kept(space.total_bytes)
    counted: list[StagingNotice] = []
    passed_over: list[StagingNotice] = []
    for notice in staging_notice.living_below(layout):
        if notice.path != path and (notice.writes.bytes or notice.writes.files):
            counts = notice.writes.bytes <= space.total_bytes and trusted(notice.uid)
            (counted if counts else passed_over).append(notice)
    for what, notices in (
        ("counted, as other runs below this root still write it", counted),
        (
            "not counted, as `target.owners` does not name the account, or the file system holds less",
            passed_over,
        ),
    ):
        if notices:
            text = f"{what}: {'; '.join(_named(notices))}"
            context.emit(events.Noted(layout.dataset, step, text=text))

    def count(theirs: Sequence[StillToWrite]) -> tuple[str, list[CheckResult]]:
        return forecast.require_room(layout, totals, keep, theirs), stores.check(totals, theirs)

    try:
        counts_of_all = count([notice.writes for notice in counted])
    except NoSpaceError as error:
        if not counted:
            raise
        count(())  # raises where the others are not the reason
        named = "\n  ".join(["", *_named(counted)])
        raise NoSpaceError(
            error.what,
            where=error.where,
            why=f"{error.why}. Other runs below this root will still write:{named}",
            hint="wait for them, have their owners end them (`penstock cancel`), make room, or stage less; "
            "nothing was copied",
        ) from None
    staging_notice.restate(layout, path, pool=stores.pool, chunk_files=stores.chunk_files)
    return counts_of_all


def lowered(before: StillToWrite, size: int, files: int) -> StillToWrite:
    """Return the statement lowered to this size and number of files; it never rises."""
    left = min(files, before.files)
    # their part of all, at least one each
    chunks = max(left, -(-before.chunk_files * left // before.files)) if left else 0
    return before._replace(
        bytes=min(size, before.bytes), files=left, chunk_files=min(before.chunk_files, chunks)
    )


class LoweredNotice:
    """The notice of a run or repair that writes `files` files and folders and `size` bytes in all."""

    def __init__(self, layout: DatasetLayout, path: Path, files: int, size: int) -> None:
        self._layout, self._path = layout, path
        self._files, self._bytes = files, size
        self._at = time.monotonic()

    def __call__(self, files: int, size: int) -> None:
        if time.monotonic() - self._at >= EVERY:
            self.lower(files, size)

    def lower(self, files: int, size: int) -> None:
        """Lower the statement to what is left after so many files and bytes.

        The rest errs on the high side: each file counts a block, and linked or taken-over files count as
        copied. Raises neither OSError nor PenstockError.
        """
        self._at = time.monotonic()
        left = max(0, self._files - files)
        left_bytes = max(0, self._bytes - size) + left * FILE_SYSTEM_BLOCK
        if notice := staging_notice.find(self._layout, self._path):
            writes = lowered(notice.writes, left_bytes, left)
            staging_notice.restate(self._layout, self._path, **writes._asdict())


def _named(others: Sequence[StagingNotice]) -> list[str]:
    lines = [
        f"dataset {notice.dataset} ({access.in_words([str(notice.uid)])}): "
        f"{human.size(notice.writes.bytes)} ({notice.writes.bytes:,} bytes) and "
        f"{human.counted(notice.writes.files, 'file')}, step {notice.notice.step} on "
        f"{brief(notice.notice.host)}, last sign of life at {human.local(notice.touched)}"
        for notice in others[:NAMED]
    ]
    return [*lines, f"{len(others) - NAMED} more"] if len(others) > NAMED else lines
