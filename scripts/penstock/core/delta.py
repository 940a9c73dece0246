"""What another run's staging already holds of a listing: a merge of two streams in the order of paths. Pure;
plan calls it where a run takes over the staging of one that did not end, and for adopted trees.

Nothing is called the same because size and time agree: the source's own version token has to
be the same, and so do the key, the source and the size. What is taken over is always read back by verify.
(`run.planning.unchanged_rows` does the like with the current release, on columns.)
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


Lying = TypeVar("Lying", bound=HasPath)
"""What lies on the target already."""


def merge(
    listing: Iterable[Sequence[Entry]], held: Iterator[Lying], reused: Callable[[Entry, Lying], Reuse | None]
) -> Iterator[list[Entry]]:
    """The listing's batches, with the `reuse` that `reused` gives of an entry and what is held of the same
    path; it is asked only of entries without one. Both streams ascend in the bytes of the path."""
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
    """What another run's staging holds of one object: all of it, or parts of a giant (an object that is split
    over shards)."""

    path: str
    entry: Entry
    """The object as that run copied it."""
    copied: Copied | None
    """None for a giant."""
    parts: dict[int, tuple[Entry, Copied]]


def grouped(rows: Iterable[tuple[Entry, Copied]]) -> Iterator[Held]:
    """The copied rows of a run, in order, those of one giant together."""
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
    """Whether what another run copied is the listed object, of the very same bytes. `sources` maps the index
    of a source in that run to its index in this one; `certain` says whether the source's token is strong,
    which means that the same token proves the same bytes.

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
    """The `Entry.reuse` by which this run takes over a row that another run `run` copied."""
    proof = proof_text(copied.source_proof, copied.owed)
    return Reuse(copied.digest, copied.source_grade, proof, None, copied.written_host, run)
