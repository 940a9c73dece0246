"""A shard's rows as they were copied: in the version now in staging, without what left the source.

The shard's file is never rewritten: its journals amend it, and a row keeps its number.

A giant is an object whose parts are rows of several shards. Once it changes at the source, it is copied
whole. Then the row of its first part stands for all of it, and its other rows for nothing.
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
    """What a shard's journals amend."""

    wholes: frozenset[int] = frozenset()  # rows of a giant's first part that stand for all of it
    voids: frozenset[int] = frozenset()  # rows of such a giant's other parts, which stand for nothing
    # Rows copied in another version of their object than planned, with that version (size, token, time,
    # version id). None: the object is gone.
    pins: dict[int, Pin | None] = field(default_factory=dict)

    @classmethod
    def read(cls, journals: Path, shard_digest: str, copied: Mapping[int, Copied]) -> Self:
        """Read a shard's amendments from its journals, and from the records `copied` replayed from them.

        Raises as `journal.replay`.
        """
        rows = copied.odd() if isinstance(copied, CopiedRows) else copied
        pins = {row: record.pin for row, record in rows.items() if record.pin is not None or not lies(record)}
        return cls(*journal.joined(journals, shard_digest), pins)

    def __bool__(self) -> bool:
        return bool(self.pins or self.wholes or self.voids)

    @property
    def gone(self) -> int:
        """Number of rows whose object left its source."""
        return sum(pin is None for pin in self.pins.values())

    @property
    def changed(self) -> int:
        """Number of rows copied in another version than planned."""
        return len(self.pins) - self.gone

    def left_out(self, row: int) -> bool:
        """Return whether the row stands for nothing in the release."""
        return row in self.voids or (row in self.pins and self.pins[row] is None)

    def of(self, row: int, entry: Entry) -> Entry:
        """Return the row as it was copied; an entry of 0 bytes where it stands for nothing."""
        if self.left_out(row):
            return entry._replace(part=-1, offset=0, size=0, length=0, reuse=None)
        if row in self.wholes:
            entry = entry._replace(part=-1, offset=0, length=entry.size, reuse=None)
        pin = self.pins.get(row)
        return entry if pin is None else pin.of(entry)

    def rows(self, shard: Iterable[Sequence[Entry]]) -> Iterator[Sequence[Entry]]:
        """Yield the groups of `shards.read_shard`, each row as `of` returns it."""
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
        """Yield the groups of `shards.numbered`, each row as `of` returns it, without rows that stand for
        nothing."""
        from penstock.tables.shards import as_columns, as_rows

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
    """Return whether staging has something for the row: its object did not leave the source."""
    return copied.digest != journal.GONE
