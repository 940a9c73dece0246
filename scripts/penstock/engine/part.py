"""The pieces of work on a large row that is copied in parts (`core.model.Part`).

A store's object: BEGIN makes its temporary file, one FETCH copies each part, FINISH judges the parts together
and renames the file. Where that fails, DROP removes the file, and the row goes WHOLE, as any other entry.

A folder's file is copied IN_ORDER by one stream: a file system has no limit for each connection, and verify
need not compute two digests. After every STEP bytes the stream hands the journal a mark: the bytes done, and
their digest.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from penstock.core.model import Part

if TYPE_CHECKING:
    from penstock.core.model import Entry, PartLine

BEGIN, FETCH, FINISH, DROP, WHOLE, IN_ORDER = range(6)
_MIB = 1 << 20
LEAST = 64 * _MIB  # bytes from which an object is copied in parts, or in order
# Bytes of each stream that may be on their way or not yet in the journal. With the part or block on top, a
# killed attempt costs less than 64 MiB a stream.
LOST = 48 * _MIB
# Fewer streams may lose as much as so many do. On a local disk that idles between two flushes, two streams 48
# MiB ahead took 1.1 to 1.4 times as long.
FEWEST = 8
# Bytes between two marks. A stream waits at a mark until the mark before is recorded, or may be lost.
STEP = LOST // 2


def most_lost(streams: int) -> int:
    """Return the bytes that `streams` streams may have on their way or not yet in the journal."""
    return LOST * max(FEWEST, streams)


def is_spare(unrecorded: int, streams: int) -> bool:
    """Return whether a stream need not wait for its mark: all streams may be LOST bytes further."""
    return unrecorded + LOST * streams <= most_lost(streams)


def temporary_name() -> str:
    """Return a unique name for a file that is copied in parts or in order."""
    return f".p.{secrets.token_hex(8)}"


def part_bytes(size: int) -> int:
    """Return the bytes of each part but the last of an object of this size.

    Small parts lose little when an attempt is killed, but each costs a request. The CPU's cost over one GET:
    15 % with 8 MiB, 5 % with 16 MiB, none with 64 MiB. Powers of two mostly end where the parts of a
    multipart upload end, so that their sums join.
    """
    return 16 * _MIB if size <= 4096 * _MIB else 32 * _MIB


# In place of a part's number: the temporary file was made; it was given up, with all its parts.
BEGUN, DROPPED = -1, -2


class Unfinished:
    """Rows without a record yet, by the journals."""

    def __init__(self) -> None:
        self.parts: dict[int, list[PartLine]] = {}
        self.taken_back: set[int] = set()  # rows whose record was taken back once, by any attempt
        # Rows of `taken_back` whose parts contradicted their source. One stream copies them again and judges
        # as it reads, which shows whether the wire was at fault.
        self.contradicted: set[int] = set()


def fetching(entry: Entry, temporary: str, number: int, size: int) -> Part:
    """Make the job that copies part `number`, of `size` bytes, into the temporary file."""
    offset = number * size
    place = entry._replace(part=number, offset=offset, length=min(size, entry.size - offset))
    return Part(place, temporary, FETCH, size)


def in_order(entry: Entry, temporary: str, step: int, mark: PartLine | None) -> Part:
    """Make the job that copies an entry from its last `mark` to its end, with a mark after every `step`
    bytes."""
    done = mark.part_bytes if mark else 0
    place = entry._replace(part=0, offset=done, length=entry.size - done)
    return Part(place, temporary, IN_ORDER, step, (mark,) if mark else ())


def doing(entry: Entry, temporary: str, work: int, size: int, lines: tuple[PartLine, ...] = ()) -> Part:
    """Make a job that moves no bytes: BEGIN, FINISH or DROP."""
    return Part(entry._replace(part=0, offset=0, length=0), temporary, work, size, lines)
