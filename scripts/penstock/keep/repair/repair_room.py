"""Checks that a repair has the space it needs: that of the damaged files once more, until each is
replaced."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.core import events
from penstock.core.errors import NoSpaceError
from penstock.core.events import sentence
from penstock.engine.records import journal
from penstock.fs.placement import INHERIT
from penstock.jobs import target_room
from penstock.jobs.forecast import Totals
from penstock.jobs.target_room import TargetStores
from penstock.tables.shards import read_shard
from penstock.target import modes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.core.layout import DatasetLayout
    from penstock.core.model import Entry
    from penstock.core.run_documents import PlanInfo
    from penstock.dataset.context import Context

STEP = "repair"


def take(
    context: Context,
    layout: DatasetLayout,
    release: str,
    files: Iterable[Sequence[Entry]],
    standing: PlanInfo | None,
) -> None:
    """State the space for these files, each as its rows, then count it as a plan's. `standing`: the plan of a
    continued attempt; what that fetched is not counted again. Raises NoSpaceError, naming the runs that take
    the room."""
    gid = modes.group_id(context.dataset(layout.dataset).permissions)
    stores = TargetStores(layout, replace(context.config.target, striping=INHERIT), gid)
    totals = _totals(files if standing is None else _left(layout, release, standing), stores)
    try:
        path = layout.repair_under_way
        _, results = target_room.take(context, layout, path, STEP, totals, stores)
    except NoSpaceError as error:
        raise NoSpaceError(
            f"the target has too little room for the repair of release {release}",
            where=error.where,
            why=error.why,
            hint=f"the damaged files need their space once more until they are replaced; {error.hint}",
        ) from None
    for result in results:
        if result.verdict == "warning":
            context.emit(events.Warned(layout.dataset, STEP, text=sentence(result)))


def _totals(files: Iterable[Sequence[Entry]], stores: TargetStores) -> Totals:
    totals = Totals(to_place=stores.sizes)
    folders: set[str] = set()
    for rows in files:
        totals.add([sum(row.length for row in rows)])
        folder = os.path.dirname(rows[0].path)
        while folder and folder not in folders:
            folders.add(folder)
            folder = os.path.dirname(folder)
    totals.folders = len(folders)
    return totals


def _left(layout: DatasetLayout, release: str, plan: PlanInfo) -> Iterator[list[Entry]]:
    """Yield for each file the rows that no attempt has recorded."""
    folder = layout.repair(release)
    for shard in plan.shards:
        done = journal.replay(folder.journals(shard.index), shard.digest)
        left: dict[str, list[Entry]] = {}
        entries = (entry for batch in read_shard(folder.shard(shard.index)) for entry in batch)
        for row, entry in enumerate(entries):
            if row not in done:
                left.setdefault(entry.path, []).append(entry)
        yield from left.values()
