"""The rows of a shard that an attempt must still copy, each with the version of its object to read. Also the
rows as they were copied, without those whose object left the source.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from penstock.core.model import Pin
from penstock.engine import journal
from penstock.engine.journal import CopiedRows

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from penstock.core.model import Copied, Entry
    from penstock.engine.linking import LinkedRows
    from penstock.engine.multipart import Multipart
    from penstock.engine.tasks import CopyTask, Outcome


# The shard's file is never rewritten. Its journals amend it, and each row keeps its number.
#
# A giant is an object whose parts are rows of several shards. If it changes at the source, it is copied
# whole. Then the row of its first part is the whole object, and its other rows are void.


@dataclass
class Amendments:
    """The changes to a shard's rows that its journals record."""

    wholes: frozenset[int] = frozenset()  # rows of a giant's first part that now are the whole object
    voids: frozenset[int] = frozenset()  # rows of such a giant's other parts, which have no file
    # Rows copied in another version of their object than planned, with that version (size, token, time,
    # version id); None if the object is gone.
    pins: dict[int, Pin | None] = field(default_factory=dict)

    @classmethod
    def read(cls, journals: Path, shard_digest: str, copied: Mapping[int, Copied]) -> Self:
        """Read a shard's amendments from its journals, and from the records `copied` replayed from them.

        Raises the errors of `journal.replay`.
        """
        rows = copied.odd() if isinstance(copied, CopiedRows) else copied
        pins = {row: record.pin for row, record in rows.items() if record.pin is not None or not lies(record)}
        return cls(*journal.joined(journals, shard_digest), pins)

    def __bool__(self) -> bool:
        return bool(self.pins or self.wholes or self.voids)

    @property
    def gone(self) -> int:
        """The number of rows whose object left its source."""
        return sum(pin is None for pin in self.pins.values())

    @property
    def changed(self) -> int:
        """The number of rows copied in another version than planned."""
        return len(self.pins) - self.gone

    def left_out(self, row: int) -> bool:
        """Return whether the row has no file in the release: it is void, or its object is gone."""
        return row in self.voids or (row in self.pins and self.pins[row] is None)

    def of(self, row: int, entry: Entry) -> Entry:
        """Return the row as it was copied, or an entry of 0 bytes if it is left out."""
        if self.left_out(row):
            return entry._replace(part=-1, offset=0, size=0, length=0, reuse=None)
        if row in self.wholes:
            entry = entry._replace(part=-1, offset=0, length=entry.size, reuse=None)
        pin = self.pins.get(row)
        return entry if pin is None else pin.of(entry)

    def rows(self, shard: Iterable[Sequence[Entry]]) -> Iterator[Sequence[Entry]]:
        """Yield the groups of `run_tables.read_shard`, with each row as `of` returns it."""
        if not self:
            yield from shard
            return
        start = 0
        for group in shard:
            yield [self.of(row, entry) for row, entry in enumerate(group, start)]
            start += len(group)

    def columns(
        self, shard: Iterable[tuple[Sequence[int], pa.RecordBatch]]
    ) -> Iterator[tuple[Sequence[int], pa.RecordBatch]]:
        """Yield the groups of `run_tables.numbered`, with each row as `of` returns it, without rows left
        out."""
        from penstock.tables.run_tables import as_columns, as_rows

        touched = self.pins.keys() | self.wholes | self.voids
        for numbers, batch in shard:
            if touched.isdisjoint(numbers):
                yield numbers, batch
                continue
            kept = [row for row in numbers if not self.left_out(row)]
            entries = as_rows(batch)
            amended = [self.of(row, entries[row - numbers[0]]) for row in kept]
            for batch in as_columns(amended):
                yield kept[: batch.num_rows], batch
                kept = kept[batch.num_rows :]


def lies(copied: Copied) -> bool:
    """Return whether staging has a file for the row, as its object did not leave the source."""
    return copied.digest != journal.GONE


class RowsLeft:
    """The rows that must still be copied according to a shard's journals.

    It writes to the journals only to take back records on which attempts disagree (`journal.settle`).
    """

    def __init__(self, task: CopyTask, multipart: Multipart, outcome: Outcome) -> None:
        """Count the rows that earlier attempts did, and give `multipart` the parts of unfinished files.
        Raises the errors of `journal.replay`."""
        journal.settle(task.journals, task.shard.digest, run=task.run, host=task.host)
        copied = journal.replay(task.journals, task.shard.digest, outcome.warnings, multipart.unfinished)
        self._path, self._taken_back = task.rows, multipart.unfinished.taken_back
        self.amendments = Amendments.read(task.journals, task.shard.digest, copied)
        self.done = need_no_copy(copied, self.amendments.voids)  # rows that need no copy
        self.rows, self.bytes = task.shard.rows, task.shard.bytes  # rows left, and their bytes
        if copied or self.amendments or multipart.unfinished.parts:
            self.rows, self.bytes = _count_done(self.groups(), self.done, multipart, outcome)
        # A giant that is copied whole is recorded with its version, even if that is the planned version.
        wholes = {row for row in self.amendments.wholes if row not in self.done}
        # giants that this attempt copies whole, and their versions, which must be recorded first
        self.whole_giants = {row: Pin.planned(entry) for row, entry in self.entries(wholes).items()}
        self.amendments.pins |= self.whole_giants
        outcome.amended, outcome.gone = self.amendments.changed, self.amendments.gone
        # rows that need not, or may not, be linked
        self.unlinked = _Union(self.done, self.amendments.pins.keys() | self._taken_back)

    def groups(self) -> Iterator[Sequence[Entry]]:
        """Return all rows of the shard. A linked row that did not read back is returned without its link, or
        it would be linked again and again."""
        from penstock.tables.run_tables import read_shard

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
    """Return the rows copied and the void rows (`Amendments.voids`).

    The result is no set, as a set takes 70 bytes a row.
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
    """Count the done rows in the outcome, and return the number of rows left and their bytes."""
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
    """Yield the shard's rows, with `rows` marked to be copied even if the target has their files."""
    if not rows:
        yield from shard
        return
    row = 0
    for group in shard:
        numbered = enumerate(group, row)
        row += len(group)
        yield [entry._replace(reuse=None) if number in rows else entry for number, entry in numbered]
