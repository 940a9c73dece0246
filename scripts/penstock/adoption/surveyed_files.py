"""The survey of a comparison as files, in the order of their paths: the parts of a giant together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.core.differences import STALE
from penstock.core.model import Surveyed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.core.layout import RunLayout
    from penstock.core.model import Entry
    from penstock.core.run_documents import PlanInfo
    from penstock.formats.survey_file import Survey

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
    from penstock.formats.shards import read_shard
    from penstock.formats.survey_file import Survey

    held: File | None = None
    for shard in plan.shards:
        survey = Survey(folder.survey(shard.index), shard.rows)
        row = 0
        for group in read_shard(folder.shard(shard.index)):
            files: list[File] = []
            for number, (entry, seen) in enumerate(
                zip(group, _seen(survey, row, len(group)), strict=True), row
            ):
                place = (shard.index, number)
                if entry.part < 0 or entry.part == 0 or held is None:
                    one = File(entry, (place,), (seen,))
                else:
                    one = held._replace(places=(*held.places, place), rows=(*held.rows, seen))
                if entry.part >= 0 and entry.offset + entry.length < entry.size:
                    held = one
                    continue
                held = None
                files.append(one)
            row += len(group)
            if files:
                yield files


def _seen(survey: Survey, first: int, count: int) -> list[Surveyed]:
    numbers = range(first, first + count)
    there = [number for number in numbers if survey.state(number)]
    if len(there) == count:
        return survey.rows(there)
    found = dict(zip(there, survey.rows(there), strict=True)) if there else {}
    return [found.get(number, NOT_YET) for number in numbers]


def mark_stale(folder: RunLayout, rows: Mapping[int, Sequence[int]]) -> None:
    """Have these rows, by shard, read again. Durable on return; no element may be at work."""
    from penstock.formats import survey_file

    for shard, numbers in rows.items():
        survey_file.put(folder.survey(shard), iter([[Surveyed(number, STALE) for number in numbers]]))
