"""A shard's rows as they were copied: in the version that lies in staging, without what left the source.

The shard's file is never rewritten; what its journals say of it is laid over. A row keeps its number. Copy,
verify, plan (for files of another run's staging) and publish read rows so. `Amendments.read` reads the
shard's journals; all else is pure.

A giant is an object whose parts are rows of several shards. Where it changed at the source, it is copied
whole from then on: the row of its first part stands for all of it, and its other rows stand for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from penstock.engine.records import journal
from penstock.engine.records.copied_rows import CopiedRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from penstock.core.model import Copied, Entry, Pin


@dataclass
class Amendments:
    """What the journals of a shard say of its rows."""

    wholes: frozenset[int] = frozenset()
    """Rows of a giant's first part that stand for all of it."""
    voids: frozenset[int] = frozenset()
    """Rows of such a giant's other parts: they stand for nothing any more."""
    pins: dict[int, Pin | None] = field(default_factory=dict)
    """Rows of another version of their object than the planned one, with that version (size, token, time,
    version id); None: the object is gone."""

    @classmethod
    def read(cls, journals: Path, shard_digest: str, copied: Mapping[int, Copied]) -> Self:
        """The amendments of a shard, by its journals and by the records `copied` that were replayed from
        them. Raises as `journal.replay`."""
        rows = copied.odd() if isinstance(copied, CopiedRows) else copied
        pins = {row: one.pin for row, one in rows.items() if one.pin is not None or not lies(one)}
        return cls(*journal.joined(journals, shard_digest), pins)

    def __bool__(self) -> bool:
        return bool(self.pins or self.wholes or self.voids)

    @property
    def gone(self) -> int:
        """How many rows have an object that left its source."""
        return sum(pin is None for pin in self.pins.values())

    @property
    def changed(self) -> int:
        """How many rows were copied in another version than the planned one."""
        return len(self.pins) - self.gone

    def left_out(self, row: int) -> bool:
        """Whether the row stands for nothing in the release."""
        return row in self.voids or (row in self.pins and self.pins[row] is None)

    def of(self, row: int, entry: Entry) -> Entry:
        """The row as it was copied, and is to be read; an entry of 0 bytes where it stands for nothing."""
        if self.left_out(row):
            return entry._replace(part=-1, offset=0, size=0, length=0, reuse=None)
        if row in self.wholes:
            entry = entry._replace(part=-1, offset=0, length=entry.size, reuse=None)
        pin = self.pins.get(row)
        return entry if pin is None else pin.of(entry)

    def rows(self, shard: Iterable[Sequence[Entry]]) -> Iterator[Sequence[Entry]]:
        """The groups of `shards.read_shard`, with each row as `of` gives it: all rows, in their order."""
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
        """The groups of `shards.numbered`, with each row as `of` gives it, without the rows that stand for
        nothing: row numbers and columns, in the order of rows."""
        from penstock.tables.shards import as_columns, as_rows

        touched = self.pins.keys() | self.wholes | self.voids
        for numbers, batch in shard:
            if touched.isdisjoint(numbers):
                yield numbers, batch
                continue
            kept = [row for row in numbers if not self.left_out(row)]
            entries = as_rows(batch)
            found = [self.of(row, entries[row - numbers[0]]) for row in kept]
            for batch in as_columns(found):
                yield kept[: batch.num_rows], batch
                kept = kept[batch.num_rows :]


def lies(copied: Copied) -> bool:
    """Whether something stands for the row in staging: its object did not leave the source."""
    return copied.digest != journal.GONE
