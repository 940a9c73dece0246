"""How many elements the next array may have, where the cluster refuses them for now.

Pure: `jobs.arrays.array_runner` asks `free` at each look at a step's arrays, submits no more elements
than that, and says how the submission went.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

PAUSE = 8
"""Looks at the living arrays between two tries of a single element, at most."""


@dataclass
class QueuePlaces:
    """A queue that is full for this account: its limits count other jobs of it, or of its group, too, so the
    cluster's refusals say best how much room there is. The next array has half as many elements as the one
    that was refused, and twice as many as the last one that was taken. A single element that is refused is
    tried again after some looks: after 2, then 4, then 8.
    """

    most: int = sys.maxsize
    """Elements that the next array may have."""
    full: str = ""
    """Why the last array was refused; "" where it was not."""
    _pause: int = 1
    _left: int = 0

    def free(self) -> int:
        """How many elements may be submitted at this look. To be called once a look: it counts them."""
        if self._left:
            self._left -= 1
            return 0
        return self.most

    def refused(self, elements: int, why: str) -> None:
        """An array of so many elements was refused for now."""
        self.most, self.full = max(1, elements // 2), why
        if elements == 1:
            self._pause = self._left = min(PAUSE, 2 * self._pause)

    def taken(self) -> None:
        """An array was submitted."""
        self.most, self.full, self._pause = min(sys.maxsize, 2 * self.most), "", 1
