"""One part of a large row as it travels to a worker: a row's entry that knows its file and what to do.

A row is copied in parts by BEGIN (its temporary file is made), one FETCH for each part, and FINISH (the
parts together are judged, the file gets its name). Where that does not work out, DROP removes the file, and
the row goes WHOLE, as any other entry.
"""

from __future__ import annotations

from operator import itemgetter
from typing import NamedTuple

from penstock.core.model import Entry

BEGIN, FETCH, FINISH, DROP, WHOLE = range(5)
_MIB = 1 << 20
LEAST = 256 * _MIB
"""Bytes from which an object is copied in parts."""
_SIZES = ((4096 * _MIB, 16 * _MIB), (16384 * _MIB, 32 * _MIB))
"""Up to this size, parts of so many bytes: small ones lose little when an attempt is killed, and each costs
a request (8 MiB cost 15 % more CPU than one GET for all, 16 MiB 5 %, 64 MiB nothing). Powers of two: parts of
a multipart upload mostly end where ours do, so that their sums join."""
_LARGEST = 64 * _MIB


def part_bytes(size: int) -> int:
    """Bytes of each part but the last of an object of this size."""
    return next((part for upto, part in _SIZES if size <= upto), _LARGEST)


BEGUN, DROPPED = -1, -2
"""In place of a part's number: the temporary file was made; it was given up, with all its parts."""


class PartLine(NamedTuple):
    """One part of a row, durable in the row's temporary file; or what became of this file as a whole."""

    row: int
    temporary: str
    """The file's name, in the folder of the row's path."""
    part_bytes: int
    """Bytes of each part but the last."""
    number: int
    """From 0 on; BEGUN, DROPPED."""
    digest: str
    """xxh3_128 of the part's bytes, in 32 hex digits."""
    proof: str
    """What `Sums.judge` keeps of a part, to be joined with the other parts'; or ""."""
    stated: str
    """The claims on the whole object that can be checked, separated by blanks."""
    token: str
    """Of the version that was read."""


class Unfinished:
    """What journals say of rows that have no record."""

    def __init__(self) -> None:
        self.parts: dict[int, list[PartLine]] = {}
        self.taken_back: set[int] = set()
        """Rows whose record was taken back once, whichever attempt's it was."""
        self.contradicted: set[int] = set()
        """Those of them whose parts had contradicted their source: one stream, which judges as it reads, says
        whether that was the wire."""


class Part(Entry):
    """An `Entry` whose `part`, `offset` and `length` name a range of it, with four fields more."""

    __slots__ = ()
    temporary: property = property(itemgetter(12))
    work: property = property(itemgetter(13))
    """BEGIN, FETCH, FINISH or DROP."""
    part_bytes: property = property(itemgetter(14))
    """Bytes of each part but the last."""
    lines: property = property(itemgetter(15))
    """FINISH: the journal's lines of all parts, in order, as plain tuples."""


def fetching(entry: Entry, temporary: str, number: int, size: int) -> Part:
    """Part `number` of `size` bytes each."""
    offset = number * size
    place = (number, offset, min(size, entry.size - offset), "")
    return _part(Part, (*entry[:8], *place, temporary, FETCH, size, ()))


def doing(
    entry: Entry, temporary: str, work: int, size: int, lines: tuple[tuple[object, ...], ...] = ()
) -> Part:
    """What moves no bytes: BEGIN, FINISH, DROP."""
    return _part(Part, (*entry[:8], 0, 0, 0, "", temporary, work, size, lines))


_part = tuple.__new__
