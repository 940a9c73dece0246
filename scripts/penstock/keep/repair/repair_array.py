"""The array of a repair: its plan, its elements, and putting the fetched files in place.

A file in the release is replaced by one that read back as published, or not at all. A killed repair continues
with what it fetched, unless it went by other audits.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from penstock.core import audit_documents, events
from penstock.core.errors import NoSpaceError, PenstockError
from penstock.core.layout import DATA
from penstock.dataset import documents, receipts, staging_notice
from penstock.jobs.array_runner import run_array, still_alive
from penstock.jobs.array_supervision import read_slots, started_event
from penstock.jobs.bandwidth import cap_now
from penstock.jobs.forecast import element_rate, element_time
from penstock.jobs.target_room import LoweredNotice
from penstock.keep.repair import repair_plan, repair_room
from penstock.keep.repair.published_files import inode_of, mender_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.core.audit_documents import Audit, FetchedFile, FetchedFiles, Finding
    from penstock.core.layout import DatasetLayout
    from penstock.core.model import Record
    from penstock.core.seal import Seal
    from penstock.dataset.context import Context
    from penstock.dataset.run import Run
    from penstock.keep.repair.hard_linked_damage import HardLinkedDamage
    from penstock.target.file_replacement import Mender

STEP = "repair"
STREAMS = 8  # files put in place at once
ALREADY = "it was right already"


@dataclass(frozen=True)
class PathOutcome:
    """What became of one path."""

    path: str
    how: str = ""
    why: str = ""  # why it could not be repaired; "": it was


def planned(
    context: Context,
    layout: DatasetLayout,
    audits: Sequence[Audit],
    sealed: tuple[Seal, str],
    records: Sequence[Record],
    wanted: dict[str, Finding],
    done: list[PathOutcome],
) -> Run | None:
    """Plan or continue the repair of these files; None if there is nothing to fetch. Files whose source is no
    longer configured go to `done`. Raises NoSpaceError if they do not fit."""
    seal, digest = sealed
    release = audits[0].release
    configured = repair_plan.sources(context, layout.dataset, seal) if records else {}
    done += [PathOutcome(r.path, why=repair_plan.UNKNOWN) for r in records if r.source not in configured]
    files = [
        repair_plan.rows(record, wanted[record.path], configured[record.source])
        for record in records
        if record.source in configured
    ]
    name = repair_plan.name(audits, digest, files)
    plan = repair_plan.standing(layout, release, name)
    if plan is None:
        _end_other(context, layout, release)
        repair_plan.clear(context, layout, release)
        if not files:
            return None
        repair_room.take(context, layout, release, files, None)
        plan = repair_plan.begin(context, layout, release, name, files)
    else:
        context.emit(events.Noted(layout.dataset, STEP, f"going on with repair {name}"))
        repair_room.take(context, layout, release, files, plan)
    return repair_plan.describe(context, layout, seal, plan)


def _end_other(context: Context, layout: DatasetLayout, release: str) -> None:
    """End the elements of a repair that went by other audits."""
    folder = layout.repair(release)
    began = time.monotonic()
    while alive := still_alive(context, layout.dataset, folder, STEP):
        if not context.cluster.abilities.elements_end_with_controller:
            for array in alive:
                context.cluster.cancel(array)
        context.stop.wait(context.cluster.interval(time.monotonic() - began))


def fetch(
    context: Context,
    run: Run,
    seal: Seal,
    records: Sequence[Record],
    done: list[PathOutcome],
    sizes: list[int],
    others: HardLinkedDamage,
) -> None:
    """Fetch the damaged files and put them in place, here and in releases that share them. If interrupted,
    files fetched so far are put in place too. Appends outcomes to `done` and fetched bytes to `sizes`."""

    ok = receipts.held(run, STEP)
    for index in filter(ok, run.indices):
        if any(_lost(run, file) for file in _fetched(run, index).files):
            receipts.drop(run.folder.receipt(STEP, index))
    plan = run.plan
    context.emit(started_event(context, run, STEP, plan.files))
    times = {record.path: record.mtime_ns for record in records}

    def put(stop: Callable[[], None]) -> None:
        with (
            mender_of(context, run.layout, seal, run.release) as mender,
            others,
            ThreadPoolExecutor(STREAMS) as pool,
        ):
            for index in filter(ok, run.indices):
                fetched = _fetched(run, index)
                sizes.append(fetched.bytes)
                done.extend(
                    pool.map(
                        partial(_place, run, times=times, mender=mender, others=others, stop=stop),
                        fetched.files,
                    )
                )

    notice = run.layout.repair_under_way
    left = sum(not ok(index) for index in run.indices)
    elements = min(read_slots(context, run.folder, STEP), left)
    lowered = LoweredNotice(run.layout, notice, plan.files, plan.bytes)
    try:
        rate = element_rate(run.config.engine.limit, cap_now(context.config.bandwidth).rate, elements)
        expected = element_time(run.layout, run.shards, rate, copies=True)
        run_array(
            context, run.dataset, run.folder, STEP, run.indices, ok, amounts=lowered, expected=expected,
        )  # fmt: skip
    except BaseException:
        put(lambda: None)
        raise
    staging_notice.written(run.layout, notice)
    put(context.stop.check)


def _fetched(run: Run, index: int) -> FetchedFiles:
    return documents.load(audit_documents.FETCHED_FILES, run.folder.fetched(index))


def _staged(run: Run, file: FetchedFile) -> Path:
    return run.layout.repair_staging(run.release) / DATA / file.path


def _in_place(run: Run, file: FetchedFile) -> bool:
    status = inode_of(run.layout, run.release, file.path)
    return status is not None and status.st_ino == file.inode and not os.path.lexists(_staged(run, file))


def _lost(run: Run, file: FetchedFile) -> bool:
    """Whether a killed repair lost the file between staging and its folder, where it was swept."""
    return file.inode > 0 and not os.path.lexists(_staged(run, file)) and not _in_place(run, file)


def _place(
    run: Run,
    file: FetchedFile,
    *,
    times: dict[str, int],
    mender: Mender,
    others: HardLinkedDamage,
    stop: Callable[[], None],
) -> PathOutcome:
    stop()
    new = _staged(run, file)
    if file.why:
        return PathOutcome(file.path, why=file.why)
    if not file.inode:
        return PathOutcome(file.path, ALREADY)
    try:
        # A killed repair may have put it there.
        if not _in_place(run, file):
            if file.path in others.names:
                mender.dress(file.path, times[file.path], new)
                others.mend(file.path, new)
            mender.replace(file.path, times[file.path], new)
    except PenstockError as error:
        if isinstance(error, NoSpaceError):
            raise
        return PathOutcome(file.path, why=str(error).partition("\n")[0])
    return PathOutcome(file.path, file.how)
