"""The survey of a comparison as files, in the order of their paths, with a giant's parts together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.core.differences import READ, SAME, STALE
from penstock.core.model import Surveyed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from penstock.core.layout import RunLayout
    from penstock.core.model import Entry
    from penstock.core.run_documents import PlanInfo
    from penstock.tables.survey_file import ShardSurvey

NOT_YET = Surveyed(0, "")  # a row that was not read yet


class File(NamedTuple):
    entry: Entry  # whole; of a giant, as its first part has it
    places: Sequence[tuple[int, int]]  # (shard, row) of each row
    rows: Sequence[Surveyed]


def read(folder: RunLayout, plan: PlanInfo) -> Iterator[list[File]]:
    """Yield all files of the listing, in order, some thousands at a time."""
    from penstock.tables.shards import read_shard
    from penstock.tables.survey_file import ShardSurvey

    held: File | None = None
    for shard in plan.shards:
        survey = ShardSurvey(folder.survey(shard.index), shard.rows)
        row = 0
        for group in read_shard(folder.shard(shard.index)):
            files: list[File] = []
            for number, (entry, surveyed) in enumerate(
                zip(group, _seen(survey, row, len(group)), strict=True), row
            ):
                place = (shard.index, number)
                if entry.part < 0 or entry.part == 0 or held is None:
                    file = File(entry, (place,), (surveyed,))
                else:
                    file = held._replace(places=(*held.places, place), rows=(*held.rows, surveyed))
                if entry.part >= 0 and entry.offset + entry.length < entry.size:
                    held = file
                    continue
                held = None
                files.append(file)
            row += len(group)
            if files:
                yield files


def _seen(survey: ShardSurvey, first: int, count: int) -> list[Surveyed]:
    numbers = range(first, first + count)
    surveyed = [number for number in numbers if survey.state(number)]
    if len(surveyed) == count:
        return survey.rows(surveyed)
    rows = dict(zip(surveyed, survey.rows(surveyed), strict=True)) if surveyed else {}
    return [rows.get(number, NOT_YET) for number in numbers]


def mark_stale(folder: RunLayout, rows: Mapping[int, Sequence[Surveyed]]) -> None:
    """Have these rows (`stale`), by shard, read again. Durable on return; no element may be at work."""
    from penstock.tables import survey_file

    for shard, some in rows.items():
        survey_file.put(folder.survey(shard), iter([list(some)]))


def stale(row: int, *, differed: bool) -> Surveyed:
    """Return a row to read again; if it differed, its bytes are compared then."""
    return Surveyed(row, STALE, READ if differed else "")


def differed(folder: RunLayout, plan: PlanInfo) -> set[str]:
    """Return the paths of files of which a row's bytes differed at the last reading."""
    from penstock.tables.survey_file import ShardSurvey

    paths: set[str] = set()
    for shard in plan.shards:
        survey = ShardSurvey(folder.survey(shard.index), shard.rows)
        rows = survey.differed(row for row in range(shard.rows) if survey.state(row) not in ("", SAME))
        if rows:
            paths.update(entry.path for row, entry in _numbered(folder, shard.index) if row in rows)
    return paths


def mark_differed(folder: RunLayout, plan: PlanInfo, paths: Collection[str]) -> None:
    """Have these files' bytes compared, while no element is at work. Durable on return."""
    for shard in plan.shards if paths else ():
        rows = [
            stale(row, differed=True) for row, entry in _numbered(folder, shard.index) if entry.path in paths
        ]
        if rows:
            mark_stale(folder, {shard.index: rows})


def _numbered(folder: RunLayout, shard: int) -> Iterator[tuple[int, Entry]]:
    from penstock.tables.shards import read_shard

    return enumerate(entry for group in read_shard(folder.shard(shard)) for entry in group)
