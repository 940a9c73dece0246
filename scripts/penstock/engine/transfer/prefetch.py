"""Requests for small objects that a stream sends before their turn comes.

One thread with several requests out takes a fifth less CPU than as many threads with one request each, which
hand the interpreter to one another; and it has work while answers are on their way.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from penstock.engine.stream import BLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.core.model import Entry

AHEAD_BYTES = 4 << 20
"""What they may have together. 2, 4 and 8 MiB were alike; where it was 1 MiB, objects of that size needed
several threads, and a tenth more time."""


class Asking:
    """Of one stream. `asker` gives what asks a source, by its index; None where nothing has to be waited
    for. Rows that are linked from a release (`linking`) are not asked for."""

    def __init__(self, asker: Callable[[int], Callable[[Entry], None] | None], *, linking: bool) -> None:
        self._asker, self._linking = asker, linking
        self._coming: deque[Entry] = deque()
        self._depth = self._asked = self._bytes = 0

    def begin(self, entries: Sequence[Entry], depth: int) -> None:
        """The rows that come next, in this order. All earlier requests have been answered and taken."""
        self._coming = deque(entries if depth > 1 else ())
        self._depth, self._asked, self._bytes = depth, 0, 0

    def __bool__(self) -> bool:
        return bool(self._coming)

    def turn(self, entry: Entry) -> None:
        """It is this row's turn: request it, unless that was done, and the rows after it that fit."""
        coming = self._coming
        while coming and coming[0].path != entry.path:
            self._bytes -= coming.popleft().size
            self._asked -= 1
        if self._asked <= 0:
            self._asked = self._bytes = 0
        while self._asked < self._depth and self._asked < len(coming):
            one = coming[self._asked]
            if self._asked and self._bytes + one.size > AHEAD_BYTES:
                return
            self._asked += 1
            self._bytes += one.size
            if (
                one.size <= BLOCK
                and one.part < 0
                and not (one.reuse and self._linking)
                and (ask := self._asker(one.source))
            ):
                ask(one)
