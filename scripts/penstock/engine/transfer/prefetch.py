"""Requests for small objects that a stream sends before their turn comes.

`transfer.copier` has one `Prefetch` for each stream; the parent of the workers says how many requests a
stream may have on their way (`sizing.asked_ahead`). Requests are sent by the source's own function (`asker`);
the answers are read elsewhere.

One thread with several requests on their way takes a fifth less CPU than as many threads with one request
each, which hand the interpreter lock to one another.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from penstock.engine.stream import BLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.core.model import Entry

AHEAD_BYTES = 4 << 20
"""The most bytes that one stream requests ahead. 2, 4 and 8 MiB took the same time; with 1 MiB, objects of
that size needed several threads and a tenth more time."""


class Prefetch:
    """The requests of one stream. `asker` takes a source's index and gives the function that requests an
    object of that source; None for a source whose bytes are there at once. With `linking`, rows that may be
    linked or taken over are not requested."""

    def __init__(self, asker: Callable[[int], Callable[[Entry], None] | None], *, linking: bool) -> None:
        self._asker, self._linking = asker, linking
        self._coming: deque[Entry] = deque()
        self._depth = self._asked = self._bytes = 0

    def begin(self, entries: Sequence[Entry], depth: int) -> None:
        """Set the rows that come next, in this order, and how many requests may be on their way; with a
        `depth` of 1 nothing is requested ahead. The answers to all earlier requests must have been read."""
        self._coming = deque(entries if depth > 1 else ())
        self._depth, self._asked, self._bytes = depth, 0, 0

    def __bool__(self) -> bool:
        return bool(self._coming)

    def turn(self, entry: Entry) -> None:
        """To be called when this row is read next: requests it, unless it was requested before, and as many
        of the rows after it as `depth` and AHEAD_BYTES allow."""
        coming = self._coming
        while coming and coming[0].path != entry.path:
            self._bytes -= coming.popleft().size
            self._asked -= 1
        if self._asked <= 0:
            self._asked = self._bytes = 0
        while self._asked < self._depth and self._asked < len(coming):
            ahead = coming[self._asked]
            if self._asked and self._bytes + ahead.size > AHEAD_BYTES:
                return
            self._asked += 1
            self._bytes += ahead.size
            if (
                ahead.size <= BLOCK
                and ahead.part < 0
                and not (ahead.reuse and self._linking)
                and (ask := self._asker(ahead.source))
            ):
                ask(ahead)
