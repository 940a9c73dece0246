"""The pieces of work on a large row that is copied in parts (`core.model.Part`).

Pure. The process that starts the workers makes these pieces (`transfer.multipart`), and the workers do them
(`transfer.part_copier`).

A row is copied in parts by BEGIN (its temporary file is made), one FETCH for each part, and FINISH (the
parts together are judged, the file gets its name). Where that does not work out, DROP removes the file, and
the row goes WHOLE, as any other entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.model import Part

if TYPE_CHECKING:
    from penstock.core.model import Entry, PartLine

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


class Unfinished:
    """The state, by the journals, of rows that have no record yet."""

    def __init__(self) -> None:
        self.parts: dict[int, list[PartLine]] = {}
        self.taken_back: set[int] = set()
        """Rows whose record was taken back once, whichever attempt's it was."""
        self.contradicted: set[int] = set()
        """Those of them whose parts had contradicted their source: one stream, which judges as it reads, says
        whether that was the wire."""


def fetching(entry: Entry, temporary: str, number: int, size: int) -> Part:
    """The job that copies part `number` of an entry in parts of `size` bytes, into the temporary file."""
    offset = number * size
    place = entry._replace(part=number, offset=offset, length=min(size, entry.size - offset))
    return Part(place, temporary, FETCH, size)


def doing(entry: Entry, temporary: str, work: int, size: int, lines: tuple[PartLine, ...] = ()) -> Part:
    """A job that moves no bytes: BEGIN, FINISH or DROP."""
    return Part(entry._replace(part=0, offset=0, length=0), temporary, work, size, lines)
