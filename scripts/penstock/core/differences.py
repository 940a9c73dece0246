"""Compares a tree with a listing: which objects the tree has already, and how it differs. Used for stagings
from which a run takes over files, and for a tree that penstock did not write. Pure.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from penstock.core import typed_json
from penstock.core.human import in_quotes
from penstock.core.model import Copied, Entry, Reuse, proof_text

# Merges a listing with the files that another run's staging already has, both in the order of paths.
#
# Equal size and time never suffice: the source's version token, the key, the source and the size must be
# equal. Verify always reads back files that are taken over. (`run.previous_release` compares columns of the
# listing with the current release.)


class HasPath(Protocol):
    @property
    def path(self) -> str: ...


Lying = TypeVar("Lying", bound=HasPath)  # a file already on the target


def merge(
    listing: Iterable[Sequence[Entry]], held: Iterator[Lying], reused: Callable[[Entry, Lying], Reuse | None]
) -> Iterator[list[Entry]]:
    """Return the listing's batches. An entry without `reuse` gets `reused(entry, file)` as its `reuse` if
    both streams have its path. Both streams are in ascending order of the path's bytes."""
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
    """An object in another run's staging: all of it, or parts of a giant."""

    path: str
    entry: Entry  # the object as that run copied it
    copied: Copied | None  # None: a giant
    parts: dict[int, tuple[Entry, Copied]]


def grouped(rows: Iterable[tuple[Entry, Copied]]) -> Iterator[Held]:
    """Return the copied rows of a run, in order, with the rows of each giant grouped together."""
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
    to this run's. `certain`: whether the source's token is strong: an equal token then proves equal bytes.

    | token is strong (`certain`) and the same | size, key, version, source | time, if kept    | answer |
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


# Differences between a tree that penstock did not write and its source, with marks as in `diff`; for
# `penstock adopt`.
#
# | mark | kind     | means                                                                          |
# |------|----------|--------------------------------------------------------------------------------|
# | -    | missing  | the source has the file, but the tree lacks it                                 |
# | *    | size     | the tree's file has another size                                               |
# | *    | content  | the tree's file has the same size, but other bytes than the source (`PROOFS`)  |
# | *    | replaced | the tree has a link, folder or special file in place of the file               |
# | +    | extra    | the tree has the file, but the source lacks it                                 |
# | +    | link     | a symbolic link that the source does not have                                  |
# | +    | special  | a FIFO, socket or device                                                       |
# | !    | unread   | the tree's file could not be read: nothing is known of its bytes               |
# | !    | source   | the source's object could not be compared: it changed, is gone, or is refused  |
# | !    | moving   | the tree's file was written to while it was compared                           |
# | ~    | time     | same size, another time; the bytes were not compared with anything             |
# | ?    | excluded | the tree has a file that `include` or `exclude` leaves out of the dataset      |
# | ?    | folder   | a folder that contains no file of the source                                   |
# | ?    | unlinked | a symbolic link or special file; the source's own ones are left out as well    |
# | ?    | away     | the file was not read, since its data is in an archive or a lower tier         |
#
# Kinds marked `~` and `?` are reported but do not count as differences, also not in the exit status.

MARKS = {
    "missing": "-",
    "size": "*",
    "content": "*",
    "replaced": "*",
    "extra": "+",
    "link": "+",
    "special": "+",
    "unread": "!",
    "source": "!",
    "moving": "!",
    "time": "~",
    "excluded": "?",
    "folder": "?",
    "unlinked": "?",
    "away": "?",
}
KINDS = tuple(MARKS)
TOLD = frozenset(kind for kind, mark in MARKS.items() if mark in "~?")  # kinds that are no difference
# Kinds for files that the tree has and the listing does not.
NOT_LISTED = frozenset({"extra", "link", "special", "excluded", "folder", "unlinked"})
# Kinds of listed files whose bytes a release would have to get from the source.
TO_FETCH = frozenset({"missing", "size", "content", "replaced", "unread", "moving", "away"})

SAME, UNLIKE, OTHER, UNREAD, SOURCE, AWAY, STALE = (
    "same", "unlike", "other", "unread", "source", "away", "stale",
)  # fmt: skip
# States of a surveyed row. `unlike`: it is no regular file of the listed size. `other`: it has other bytes.
# `stale`: it was seen, but must be read again.
STATES = (SAME, UNLIKE, OTHER, UNREAD, SOURCE, AWAY, STALE)

CHECKSUM, READ, SIZE = "checksum", "source", "size"
# how a tree's bytes are compared: with the source's checksum, the source's bytes, or only the size
PROOFS = (CHECKSUM, READ, SIZE)


class Difference(NamedTuple):
    """A difference: a line of `differences.jsonl`, and part of a comparison's result."""

    kind: str
    path: str  # bytes that are not UTF-8 stay as \udcXX escapes, which JSON carries
    size: int  # bytes of the listed file, or of the tree's file if none is listed
    why: str
    how: str = ""  # one of `PROOFS` if the kind is `content`

    @property
    def mark(self) -> str:
        return MARKS[self.kind]

    def derived(self) -> Mapping[str, object]:
        """Return the further JSON fields."""
        return {"mark": self.mark}


def difference_from_json(line: bytes) -> Difference:
    """Parse a line of `differences.jsonl`. Raises ValueError."""
    difference = typed_json.read(Difference, typed_json.loads(line))
    if difference.kind not in MARKS:
        raise ValueError(f"{in_quotes(difference.kind)} is no kind of difference")
    return difference
