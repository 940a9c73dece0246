"""How many elements the next array may have, where the cluster refuses them for now."""

from __future__ import annotations

import sys
from dataclasses import dataclass

PAUSE = 8  # looks between two tries of a single element, at most


@dataclass
class QueuePlaces:
    """A queue that is full for this account.

    Its limits also count other jobs of the account or group, so only refusals show how much room is left.
    After a refusal the next array has half as many elements, after a success twice as many. A single refused
    element is retried after 2, then 4, then 8 looks.
    """

    most: int = sys.maxsize  # elements that the next array may have
    full: str = ""  # why the last array was refused; "": it was not
    _pause: int = 1
    _left: int = 0

    def free(self) -> int:
        """Return how many elements may be submitted now. Call it once a look: it counts looks."""
        if self._left:
            self._left -= 1
            return 0
        return self.most

    def refused(self, elements: int, why: str) -> None:
        self.most, self.full = max(1, elements // 2), why
        if elements == 1:
            self._pause = self._left = min(PAUSE, 2 * self._pause)

    def taken(self) -> None:
        self.most, self.full, self._pause = min(sys.maxsize, 2 * self.most), "", 1
