"""Merges a listing with what another run's staging already holds, both in the order of paths.

Equal size and time never suffice: the source's version token, the key, the source and the size must be the
same. Verify always reads back what is taken over. (`run.planning.unchanged_rows` compares with the current
release, on columns.)
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from penstock.core.digests import proof_text
from penstock.core.model import Reuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.core.model import Copied, Entry


class HasPath(Protocol):
    @property
    def path(self) -> str: ...


Lying = TypeVar("Lying", bound=HasPath)  # a file already on the target


def merge(
    listing: Iterable[Sequence[Entry]], held: Iterator[Lying], reused: Callable[[Entry, Lying], Reuse | None]
) -> Iterator[list[Entry]]:
    """Return the listing's batches, with `reused(entry, file)` as `reuse` of entries that have none, where
    both streams have the path. Both ascend in the bytes of the path."""
    lying = next(held, None)
    for batch in listing:
        out: list[Entry] = []
        for entry in batch:
            if lying is not None and lying.path != entry.path:
                mine = os.fsencode(entry.path)
                while lying is not None and os.fsencode(lying.path) < mine:
                    lying = next(held, None)
            if lying is not None and lying.path == entry.path and not entry.reuse:
                entry = entry._replace(reuse=reused(entry, lying))
            out.append(entry)
        yield out


class Held(NamedTuple):
    """What another run's staging holds of an object: all of it, or parts of a giant."""

    path: str
    entry: Entry  # the object as that run copied it
    copied: Copied | None  # None: a giant
    parts: dict[int, tuple[Entry, Copied]]


def grouped(rows: Iterable[tuple[Entry, Copied]]) -> Iterator[Held]:
    """Return the copied rows of a run, in order, with those of a giant together."""
    giant: Held | None = None
    for entry, copied in rows:
        if giant is not None and giant.path != entry.path:
            yield giant
            giant = None
        if entry.part < 0:
            yield Held(entry.path, entry, copied, {})
        else:
            giant = giant or Held(entry.path, entry, None, {})
            giant.parts[entry.part] = (entry, copied)
    if giant is not None:
        yield giant


def alike(
    entry: Entry,
    theirs: Entry,
    *,
    sources: Mapping[int, int],
    keep_mtime: bool,
    certain: Callable[[Entry], bool],
) -> bool:
    """Return whether another run copied exactly the listed object. `sources` maps that run's source indices
    to this run's. `certain`: the source's token is strong, so that an equal token proves equal bytes.

    | token is strong (`certain`) and the same | size, key, version, source | time, where kept | answer |
    |------------------------------------------|----------------------------|------------------|--------|
    | yes                                      | same                       | same             | True   |
    | anything else                                                                            || False  |
    """
    return (
        entry.token == theirs.token
        and entry.size == theirs.size
        and entry.key == theirs.key
        and entry.version == theirs.version
        and sources.get(theirs.source) == entry.source
        and (not keep_mtime or entry.modified_ns == theirs.modified_ns)
        and certain(entry)
    )


def taken(copied: Copied, run: str) -> Reuse:
    """Return the `Entry.reuse` by which this run takes over a row that `run` copied."""
    proof = proof_text(copied.source_proof, copied.owed)
    return Reuse(copied.digest, copied.source_grade, proof, None, copied.written_host, run)
