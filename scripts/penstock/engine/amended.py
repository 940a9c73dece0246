"""A shard's rows as they were copied: in the version that lies in staging, without what left the source.

The shard's file is never rewritten; what its journals say of it is laid over. A row keeps its number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine import journal

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from penstock.core.model import Copied, Entry, Pin


def whole(entry: Entry) -> Entry:
    """The row of a giant's first part, where it stands for all of it."""
    return entry._replace(part=-1, offset=0, length=entry.size, reuse="")


def nothing(entry: Entry) -> Entry:
    """A row that stands for nothing any more."""
    return entry._replace(part=-1, offset=0, size=0, length=0, reuse="")


def lies(copied: Copied) -> bool:
    """Whether something stands for the row in staging."""
    return copied.digest != journal.GONE


def rows(
    shard: Iterable[Sequence[Entry]],
    wholes: Container[int],
    voids: Container[int],
    pins: Mapping[int, Pin | None],
) -> Iterator[list[Entry]]:
    """The shard's groups with giants that are copied whole as `journal.joined` says, and other versions as
    `pins` says: None where the object is gone."""
    row = 0
    for group in shard:
        out: list[Entry] = []
        for entry in group:
            if row in voids:
                entry = nothing(entry)
            elif row in wholes:
                entry = whole(entry)
            if row in pins:
                pin = pins[row]
                entry = nothing(entry) if pin is None else pin.of(entry)
            out.append(entry)
            row += 1
        yield out


def pins(copied: Mapping[int, Copied]) -> dict[int, Pin | None]:
    """Of the rows that were copied of another version than the planned one, or whose object is gone."""
    return {row: one.pin for row, one in copied.items() if one.pin is not None or not lies(one)}
