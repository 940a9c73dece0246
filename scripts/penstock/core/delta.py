"""What the current release already holds: a merge of two streams in the same order.

Nothing is called unchanged because size and time agree: the source's own version token has to
be the same, and so do the key, the source and the size. What is linked is always read back by verify,
against the digest that the release's manifest states, and against a checksum that the source states now
and did not state then.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.core.model import Reuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.core.model import Entry, Record


def compare(
    listing: Iterable[Sequence[Entry]],
    base: Iterable[Sequence[Record]],
    *,
    sources: Mapping[int, int],
    giant_bytes: int,
    keep_mtime: bool,
) -> Iterator[list[Entry]]:
    """The listing's batches, with `reuse` set where the current release has the same file.

    Both streams ascend in the bytes of the path. `sources` maps an index of the release's
    sources to the index of the same source now. Bounded memory.
    """
    records = (record for batch in base for record in batch)
    record = next(records, None)
    for batch in listing:
        out: list[Entry] = []
        for entry in batch:
            if record is not None and record.path != entry.path:
                mine = os.fsencode(entry.path)
                while record is not None and os.fsencode(record.path) < mine:
                    record = next(records, None)
            if (
                record is not None
                and record.path == entry.path
                and same(entry, record, sources=sources, giant_bytes=giant_bytes, keep_mtime=keep_mtime)
            ):
                entry = entry._replace(reuse=reuse(record))
            out.append(entry)
        yield out


def reuse(record: Record) -> str:
    """What a linked file brings along."""
    return str(
        Reuse(record.digest, record.source_grade, record.source_proof, record.mtime_ns, record.written_host)
    )


def same(
    entry: Entry, record: Record, *, sources: Mapping[int, int], giant_bytes: int, keep_mtime: bool
) -> bool:
    """Whether the release's file at this path is the listed object.

    | token     | size | key, source, version | time, where kept | size below giants | answer |
    |-----------|------|----------------------|------------------|-------------------|--------|
    | same      | same | same                 | same             | yes               | True   |
    | none      |      |                      |                  |                   | False  |
    | different |      |                      |                  |                   | False  |
    | anything else differs                                                       || False  |
    """
    return (
        bool(entry.token)
        and entry.token == record.token
        and entry.size == record.size
        and entry.key == record.key
        and entry.version == record.version
        and sources.get(record.source) == entry.source
        and (not keep_mtime or entry.modified_ns == record.modified_ns)
        and entry.size < giant_bytes
        and record.digest.startswith("xxh3_128:")
    )
