"""A shard of these rows, and what verify saw, row by row: written as plan and verify write them, and read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.model import Entry, Record
from penstock.tables.manifest import Files, SeenRow, extend_shard, read_records
from penstock.tables.run_tables import ShardWriter, numbered

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from penstock.core.run_documents import ShardInfo


def write_shard(path: Path, index: int, entries: Iterable[Entry]) -> ShardInfo:
    with ShardWriter(path, index) as writer:
        writer.add(entries)
        return writer.close()


def write_rows(path: Path, rows: Sequence[SeenRow]) -> None:
    """The records of a shard that has just these rows."""
    shard = path.with_name(f"{path.name}.shard")
    entries = [
        Entry(
            r.path, r.key, r.size, r.token, r.modified_ns, r.source, r.version, "", s.part, s.offset, s.length
        )
        for s in rows
        for r in [s.record]
    ]
    write_shard(shard, 0, entries)

    def columns(numbers: Sequence[int]) -> Mapping[str, Sequence[object]]:
        some = [rows[number].record for number in numbers]
        return {name: [getattr(record, name) for record in some] for name in Record._fields}

    extend_shard(path, numbered(shard), columns)
    shard.unlink()


def rows_of(path: Path) -> list[SeenRow]:
    """All rows of a shard's records, in order."""
    rows: list[SeenRow] = []
    for some in read_records(path):
        if isinstance(some, Files):
            rows += [SeenRow(n, -1, 0, r.size, r) for n, r in enumerate(some.records(), len(rows))]
        else:
            rows += some
    return rows
