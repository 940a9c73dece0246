"""The slowest objects of a step: by worker, by element, and in the report by step."""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

KEPT = 5  # objects that a worker and an element keep
# Seconds, with all tries and pauses; bytes, of an object in parts of its slowest part; the key at its source,
# or the path of a file read back, safe on a terminal.
SlowObject = tuple[float, int, str]


def slowest(objects: Iterable[SlowObject], most: int = KEPT) -> Sequence[SlowObject]:
    """Return the slowest objects, each key once, slowest first.

    >>> slowest([(2.0, 9, "a"), (3.0, 9, "b"), (5.0, 9, "a")])
    [(5.0, 9, 'a'), (3.0, 9, 'b')]
    """
    return nlargest(most, {row[2]: row for row in sorted(objects)}.values())
