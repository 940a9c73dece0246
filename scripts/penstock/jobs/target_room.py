"""Whether a plan, a repair or a slice of a rehearsal fits on the target, beside the other runs' writes.
Counts the target's stores, metadata and quotas.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from penstock.core import human, run_steps
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
    from penstock.core.layout import DatasetLayout
    from penstock.core.run_steps import CheckResult
    from penstock.dataset.context import Context
    from penstock.dataset.staging_notice import StagingNotice
    from penstock.jobs.forecast import Totals


# How a plan's files spread over the target's stores, metadata and quotas.
#
# The figures come from the file system vendor's commands, if any, and the kernel's quotas. Only `stripe` has
# effects: it sets the layout of the empty staging folder (the tree in which the release grows).


class TargetStores:
    """The stores of a dataset's target. Call `check` before anything is made, then `stripe`. `gid` is the
    files' group. If it is None, the folder's group counts if the folder is setgid, or else the process's."""

    def __init__(self, layout: DatasetLayout, target: TargetConfig, gid: int | None) -> None:
        self._layout, self._target, self._gid = layout, target, gid
        self._checks = store_checks.PlanChecks([])
        self._others: Sequence[StillToWrite] = ()

    @property
    def pool(self) -> str:
        """The files' storage pool, found by `check`; "" if not known."""
        return self._checks.pool

    @property
    def chunk_files(self) -> int:
        """The number of chunk files (BeeGFS's stripes), from the last `check` or `stripe`; 0 if not known."""
        return self._checks.chunk_files

    @property
    def gid(self) -> int:
        return owner_of_new(self._layout.releases, None, self._gid)[1]

    @property
    def sizes(self) -> SizeClasses | None:
        """New counters by size for the files to copy; None if the vendor's commands are missing."""
        needed = store_checks.has_tools(self._layout.root, self._target.filesystem)
        return SizeClasses() if needed else None

    def check(self, totals: Totals, others: Sequence[StillToWrite] = ()) -> list[CheckResult]:
        """Check that these files, striped as configured, fit beside what `others` will still write. Returns a
        result for each check. Raises NoSpaceError if the files do not fit."""
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

        If the file system refuses it, check whether the files fit with the folder's own striping. Raises
        NoSpaceError if they do not.
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


# Whether a plan, a repair or a slice of a rehearsal fits on the target beside other runs' writes.
#
# The problem: a run fills a file system for hours, and a run planned meanwhile sees free space that the first
# run will take. So each run states in its notice (`dataset.staging_notice`) the bytes and files that it will
# still write, and lowers these once a minute. `take` adds up the live notices.
#
# | another notice below the root                       | then                                             |
# |-----------------------------------------------------|--------------------------------------------------|
# | is not live, only submitted, or invalid             | it is ignored                                    |
# | is of this account, or of one of `target.owners`    | it is counted, and reported                      |
# | is of any other account, or states more than the    | it is reported, but not counted: one forged      |
# | file system holds                                   | number would stop everybody                      |
#
# Each run writes its own notice before it counts, so of two plans at the same moment at least one is refused.
# Neither plan waits. If a listing is old, or the other run is below another root, both plans pass. Then each
# writer ends before `target.keep_free` is reached (`target.room_watch`), and can be resumed.
#
# While a run of a version before 1.0 lives, nothing is planned beside it (`share_rule`).

NAMED = 10  # most other runs that a message lists; the rest is only counted
EVERY = 60.0  # fewest seconds between two changes of a notice


def take(
    context: Context, layout: DatasetLayout, path: Path, step: str, totals: Totals, stores: TargetStores
) -> tuple[str, list[CheckResult]]:
    """State in the notice `path` what will be written, then check that it fits beside the other runs.

    Returns a sentence on the space, and a result for each check. The caller holds the dataset's lock. Raises
    NoSpaceError, which names the other runs, and LockedError while a run of an older version lives.
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
            context.emit(run_steps.Noted(layout.dataset, step, text=text))

    def count(theirs: Sequence[StillToWrite]) -> tuple[str, list[CheckResult]]:
        return forecast.require_room(layout, totals, keep, theirs), stores.check(totals, theirs)

    try:
        counts_of_all = count([notice.writes for notice in counted])
    except NoSpaceError as error:
        if not counted:
            raise
        count(())  # raises if the other runs are not the reason
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
    """Return the statement `before`, lowered to this size and number of files. No number ever rises."""
    left = min(files, before.files)
    # The remaining files' part of all chunk files, at least one for each file.
    chunks = max(left, -(-before.chunk_files * left // before.files)) if left else 0
    return before._replace(
        bytes=min(size, before.bytes), files=left, chunk_files=min(before.chunk_files, chunks)
    )


class LoweredNotice:
    """The notice of a run or repair that writes `files` files and folders with `size` bytes in all."""

    def __init__(self, layout: DatasetLayout, path: Path, files: int, size: int) -> None:
        self._layout, self._path = layout, path
        self._files, self._bytes = files, size
        self._at = time.monotonic()

    def __call__(self, files: int, size: int) -> None:
        if time.monotonic() - self._at >= EVERY:
            self.lower(files, size)

    def lower(self, files: int, size: int) -> None:
        """Lower the statement to what is left after `files` files and `size` bytes.

        The result may be too high: each file counts as one block larger, and linked or taken-over files count
        as copied. Raises neither OSError nor PenstockError.
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
