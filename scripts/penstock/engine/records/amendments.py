"""A shard's rows as they were copied: in the version that lies in staging, without what left the source.

The shard's file is never rewritten; what its journals say of it is laid over. A row keeps its number.
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
    """Rows of its other parts: they stand for nothing any more."""
    pins: dict[int, Pin | None] = field(default_factory=dict)
    """Rows of another version than the planned one; None: the object is gone."""

    @classmethod
    def read(cls, journals: Path, shard_digest: str, copied: Mapping[int, Copied]) -> Self:
        """With the versions of what was `copied`. Raises as `journal.replay`."""
        rows = copied.odd() if isinstance(copied, CopiedRows) else copied
        pins = {row: one.pin for row, one in rows.items() if one.pin is not None or not lies(one)}
        return cls(*journal.joined(journals, shard_digest), pins)

    def __bool__(self) -> bool:
        return bool(self.pins or self.wholes or self.voids)

    @property
    def gone(self) -> int:
        return sum(pin is None for pin in self.pins.values())

    @property
    def changed(self) -> int:
        return len(self.pins) - self.gone

    def left_out(self, row: int) -> bool:
        """Whether the row stands for nothing in the release."""
        return row in self.voids or (row in self.pins and self.pins[row] is None)

    def of(self, row: int, entry: Entry) -> Entry:
        """The row as it is to be read or was copied; without bytes where it stands for nothing."""
        if self.left_out(row):
            return entry._replace(part=-1, offset=0, size=0, length=0, reuse=None)
        if row in self.wholes:
            entry = entry._replace(part=-1, offset=0, length=entry.size, reuse=None)
        pin = self.pins.get(row)
        return entry if pin is None else pin.of(entry)

    def rows(self, shard: Iterable[Sequence[Entry]]) -> Iterator[Sequence[Entry]]:
        """The groups of `shards.read_shard`."""
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
        """The groups of `shards.numbered`, without the rows that stand for nothing."""
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
    """Whether something stands for the row in staging."""
    return copied.digest != journal.GONE
