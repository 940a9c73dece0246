"""The pieces of work on a large row that is copied in parts (`core.model.Part`).

Pure. The process that starts the workers makes these pieces (`transfer.multipart`), and the workers do them
(`transfer.part_copier`).

A store's object is copied in parts by BEGIN (its temporary file is made), one FETCH for each part, and FINISH
(the parts together are judged, the file gets its name). Where that does not work out, DROP removes the file,
and the row goes WHOLE, as any other entry.

A folder's file is copied IN_ORDER by one stream: a file system has no limit for each connection, and verify
then need not compute two digests. After every STEP bytes the stream hands a mark to the journal, which says
how far the file is, and the digest of the bytes so far.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from penstock.core.model import Part

if TYPE_CHECKING:
    from penstock.core.model import Entry, PartLine

BEGIN, FETCH, FINISH, DROP, WHOLE, IN_ORDER = range(6)
_MIB = 1 << 20
LEAST = 64 * _MIB
"""Bytes from which an object is copied in parts, or in order."""
LOST = 48 * _MIB
"""Bytes of each stream that may be on their way or not in the journal yet. With the part or block that comes
on top, a killed attempt costs less than 64 MiB a stream."""
FEWEST = 8
"""Fewer streams may lose as much as so many do: two that were 48 MiB ahead took 1.1 to 1.4 times as long on a
local disk, which was idle between two flushes."""
STEP = LOST // 2
"""Bytes between two marks: a stream waits at one until the one before is recorded, or may be lost."""


def most_lost(streams: int) -> int:
    """Bytes that may be on their way, or done and not in the journal yet, while so many streams work."""
    return LOST * max(FEWEST, streams)


def is_spare(unrecorded: int, streams: int) -> bool:
    """Whether a stream need not wait for its mark: all may be LOST bytes further ahead within `most_lost`."""
    return unrecorded + LOST * streams <= most_lost(streams)


def temporary_name() -> str:
    """A name that no other file has, for one that is copied in parts or in order."""
    return f".p.{secrets.token_hex(8)}"


def part_bytes(size: int) -> int:
    """Bytes of each part but the last of a store's object of this size. Small ones lose little when an
    attempt is killed, and each costs a request (8 MiB cost 15 % more CPU than one GET for all, 16 MiB 5 %, 64
    MiB nothing). Powers of two: parts of a multipart upload mostly end where ours do, so that their sums
    join."""
    return 16 * _MIB if size <= 4096 * _MIB else 32 * _MIB


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


def in_order(entry: Entry, temporary: str, step: int, mark: PartLine | None) -> Part:
    """The job that copies an entry from its last `mark` to its end, with a mark after every `step` bytes."""
    done = mark.part_bytes if mark else 0
    place = entry._replace(part=0, offset=done, length=entry.size - done)
    return Part(place, temporary, IN_ORDER, step, (mark,) if mark else ())


def doing(entry: Entry, temporary: str, work: int, size: int, lines: tuple[PartLine, ...] = ()) -> Part:
    """A job that moves no bytes: BEGIN, FINISH or DROP."""
    return Part(entry._replace(part=0, offset=0, length=0), temporary, work, size, lines)
