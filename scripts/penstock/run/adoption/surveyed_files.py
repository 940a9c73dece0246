"""The survey of a comparison as files, in the order of their paths: the parts of a giant together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.core.documents.differences import READ, SAME, STALE
from penstock.core.model import Surveyed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from penstock.core.layout import RunLayout
    from penstock.core.model import Entry
    from penstock.core.run_documents import PlanInfo
    from penstock.tables.survey_file import ShardSurvey

NOT_YET = Surveyed(0, "")
"""What is known of a row that was not seen yet."""


class File(NamedTuple):
    """One listed file, and what was seen of its rows: one, or one for each part of a giant."""

    entry: Entry
    """Whole; of a giant as its first part has it."""
    places: Sequence[tuple[int, int]]
    """(shard, row) of each."""
    rows: Sequence[Surveyed]


def read(folder: RunLayout, plan: PlanInfo) -> Iterator[list[File]]:
    """All files of the listing, in order, some thousands at a time. Raises FailedError."""
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
    there = [number for number in numbers if survey.state(number)]
    if len(there) == count:
        return survey.rows(there)
    found = dict(zip(there, survey.rows(there), strict=True)) if there else {}
    return [found.get(number, NOT_YET) for number in numbers]


def mark_stale(folder: RunLayout, rows: Mapping[int, Sequence[Surveyed]]) -> None:
    """Have these rows (`stale`), by shard, read again. Durable on return; no element may be at work."""
    from penstock.tables import survey_file

    for shard, some in rows.items():
        survey_file.put(folder.survey(shard), iter([list(some)]))


def stale(row: int, *, differed: bool) -> Surveyed:
    """A row to be read again; one that differed is compared by its bytes then."""
    return Surveyed(row, STALE, READ if differed else "")


def differed(folder: RunLayout, plan: PlanInfo) -> set[str]:
    """Paths of the files of which a row's bytes differed when they were read last. Raises FailedError."""
    from penstock.tables.survey_file import ShardSurvey

    paths: set[str] = set()
    for shard in plan.shards:
        survey = ShardSurvey(folder.survey(shard.index), shard.rows)
        rows = survey.differed(row for row in range(shard.rows) if survey.state(row) not in ("", SAME))
        if rows:
            paths.update(entry.path for row, entry in _numbered(folder, shard.index) if row in rows)
    return paths


def mark_differed(folder: RunLayout, plan: PlanInfo, paths: Collection[str]) -> None:
    """Have the rows of these files compared by their bytes, in a comparison that no element is at work on.
    Durable on return."""
    for shard in plan.shards if paths else ():
        rows = [
            stale(row, differed=True) for row, entry in _numbered(folder, shard.index) if entry.path in paths
        ]
        if rows:
            mark_stale(folder, {shard.index: rows})


def _numbered(folder: RunLayout, shard: int) -> Iterator[tuple[int, Entry]]:
    from penstock.tables.shards import read_shard

    return enumerate(entry for group in read_shard(folder.shard(shard)) for entry in group)
