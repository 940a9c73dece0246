"""Whether a plan, a repair or a slice of a rehearsal fits on the target beside what others still write.

The problem: a run fills a file system for hours, and a run planned meanwhile sees free space that the first
will take. So each states in its notice (`dataset.staging_notice`) what it will still write, and lowers that
once a minute. `take` adds up the live notices.

| a notice below the root, of another work            | then                                             |
|-----------------------------------------------------|--------------------------------------------------|
| is not living, only submitted, or no notice         | is passed over                                   |
| is of this account, or of one of `target.owners`    | is counted, and named                            |
| is of any other account, or states more than the    | is named, and refuses nothing: one forged number |
| file system holds                                   | would stop everybody                             |

Each work states first and then counts. So of two plans at one moment at least one is refused; neither waits.
Where a listing is late, or the other lies below another root, both pass. Then each writer ends before
`target.keep_free` is reached (`target.room_watch`), and can be resumed.

While a run of a version before 1.0 lives, nothing is planned beside it (`older_versions`).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from penstock.core import events, human
from penstock.core.errors import LockedError, NoSpaceError
from penstock.core.human import brief
from penstock.dataset import staging_notice
from penstock.fs.capabilities import facts
from penstock.jobs import forecast, older_versions
from penstock.jobs.forecast import FILE_SYSTEM_BLOCK
from penstock.target import accounts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.core.dataset_documents import StillToWrite
    from penstock.core.events import CheckResult
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.dataset.staging_notice import StagingNotice
    from penstock.jobs.forecast import Totals
    from penstock.jobs.target_stores import TargetStores

NAMED = 10  # others that a message names; the rest is counted
EVERY = 60.0  # seconds between two changes of a notice, at least


def take(
    context: Context, layout: DatasetLayout, path: Path, step: str, totals: Totals, stores: TargetStores
) -> tuple[str, list[CheckResult]]:
    """State in the notice `path` what will be written, then check that it fits beside the others.

    Returns a sentence on the space, and a result for each check. The caller holds the dataset's lock. Raises
    NoSpaceError that names the others, LockedError while a run of an older version lives.
    """
    owners = accounts.owners_told(layout.root, context.config.target.owners)

    def trusted(uid: int) -> bool:
        return uid == os.geteuid() or accounts.is_listed(uid, owners)

    older_versions.refuse(layout.promises, LockedError, trusted)
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
        f"dataset {notice.dataset} ({accounts.in_words([str(notice.uid)])}): "
        f"{human.size(notice.writes.bytes)} ({notice.writes.bytes:,} bytes) and "
        f"{human.counted(notice.writes.files, 'file')}, step {notice.notice.step} on "
        f"{brief(notice.notice.host)}, last sign of life at {human.local(notice.touched)}"
        for notice in others[:NAMED]
    ]
    return [*lines, f"{len(others) - NAMED} more"] if len(others) > NAMED else lines
