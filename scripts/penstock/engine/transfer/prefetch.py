"""Small objects that a stream asks for before their turn comes.

One thread with requests out costs a fifth less CPU than as many threads that hand the interpreter to one
another, and nobody waits for an answer while there are others to work on.
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
        """The rows that are done next, in this order. What was asked for before has been taken."""
        self._coming = deque(entries if depth > 1 else ())
        self._depth, self._asked, self._bytes = depth, 0, 0

    def __bool__(self) -> bool:
        return bool(self._coming)

    def turn(self, entry: Entry) -> None:
        """This row's turn came: ask for it, and for those after it that fit."""
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
