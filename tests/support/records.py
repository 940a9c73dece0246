"""What verify saw, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.formats.columns import Files
from penstock.formats.records import SeenRow, read_records

if TYPE_CHECKING:
    from pathlib import Path


def rows_of(path: Path) -> list[SeenRow]:
    """All rows of a shard's records, in order."""
    rows: list[SeenRow] = []
    for some in read_records(path):
        if isinstance(some, Files):
            rows += [SeenRow(n, -1, 0, r.size, r) for n, r in enumerate(some.records(), len(rows))]
        else:
            rows += some
    return rows
