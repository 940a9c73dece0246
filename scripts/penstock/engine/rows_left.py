"""The rows of a shard that an attempt still has to copy, each with the version of its object to read.

Writes into the journals only to take back records on which attempts disagree (`journal.settle`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.model import Pin
from penstock.engine.records import journal
from penstock.engine.records.amendments import Amendments

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Sequence

    from penstock.core.model import Entry
    from penstock.engine.linking import LinkedRows
    from penstock.engine.tasks import CopyTask, Outcome
    from penstock.engine.transfer.multipart import Multipart


class RowsLeft:
    """The rows that a shard's journals leave to be copied."""

    def __init__(self, task: CopyTask, multipart: Multipart, outcome: Outcome) -> None:
        """Count what earlier attempts did, and give `multipart` the parts of unfinished files. Raises as
        `journal.replay`."""
        journal.settle(task.journals, task.shard.digest, run=task.run, host=task.host)
        copied = journal.replay(task.journals, task.shard.digest, outcome.warnings, multipart.unfinished)
        self._path, self._taken_back = task.rows, multipart.unfinished.taken_back
        self.amendments = Amendments.read(task.journals, task.shard.digest, copied)
        self.done = need_no_copy(copied, self.amendments.voids)  # rows that are not left
        self.rows, self.bytes = task.shard.rows, task.shard.bytes  # rows left, and their bytes
        if copied or self.amendments or multipart.unfinished.parts:
            self.rows, self.bytes = _count_done(self.groups(), self.done, multipart, outcome)
        # A giant that is copied whole is recorded with its version, even where that is the planned one.
        wholes = {row for row in self.amendments.wholes if row not in self.done}
        # giants that this attempt copies whole, and their versions, which must be recorded first
        self.whole_giants = {row: Pin.planned(entry) for row, entry in self.entries(wholes).items()}
        self.amendments.pins |= self.whole_giants
        outcome.amended, outcome.gone = self.amendments.changed, self.amendments.gone
        # rows that need not, or may not, be linked
        self.unlinked = _Union(self.done, self.amendments.pins.keys() | self._taken_back)

    def groups(self) -> Iterator[Sequence[Entry]]:
        """Return all rows of the shard. A linked row that did not read back loses its link: else it would be
        linked for ever."""
        from penstock.tables.shards import read_shard

        return _without_links(self.amendments.rows(read_shard(self._path)), self._taken_back)

    def entries(self, rows: Collection[int]) -> dict[int, Entry]:
        if not rows:
            return {}
        numbered = enumerate(entry for group in self.groups() for entry in group)
        return {row: entry for row, entry in numbered if row in rows}

    def remove(self, linked: LinkedRows) -> None:
        """Count linked rows as done."""
        if linked.count:
            self.done = _Union(self.done, linked)
            self.rows, self.bytes = self.rows - linked.count, self.bytes - linked.bytes


def need_no_copy(copied: Container[int], voids: Collection[int]) -> Container[int]:
    """Return the rows copied and the rows that stand for nothing (`Amendments.voids`).

    Not as a set, which takes 70 bytes a row.
    """
    return _Union(copied, voids) if voids else copied


class _Union:
    """The rows of two collections, without a copy of either."""

    def __init__(self, first: Container[int], second: Container[int]) -> None:
        self._first, self._second = first, second

    def __contains__(self, row: object) -> bool:
        return row in self._first or row in self._second


def _count_done(
    shard: Iterable[Sequence[Entry]], done: Container[int], multipart: Multipart, outcome: Outcome
) -> tuple[int, int]:
    """Count the done rows in the outcome; return how many are left, and their bytes."""
    row = rows = total = 0
    begun = multipart.unfinished.parts
    for group in shard:
        for entry in group:
            size = entry.length if entry.part >= 0 else entry.size
            if row in done:
                outcome.resumed_files += 1
                outcome.resumed_bytes += size
            else:
                rows += 1
                total += size - (multipart.resume(row, entry) if row in begun else 0)
            row += 1
    return rows, total


def _without_links(shard: Iterator[Sequence[Entry]], rows: Collection[int]) -> Iterator[Sequence[Entry]]:
    """Yield the shard's rows; `rows` of them must be copied whatever is on the target."""
    if not rows:
        yield from shard
        return
    row = 0
    for group in shard:
        numbered = enumerate(group, row)
        row += len(group)
        yield [entry._replace(reuse=None) if number in rows else entry for number, entry in numbered]
