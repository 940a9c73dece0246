"""The objects of a step that took longest. Pure. Workers keep theirs, an element's receipt those of all its
workers, and the report those of all elements."""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

KEPT = 5
"""How many of them a worker and an element keep."""
SlowObject = tuple[float, int, str]
"""Seconds, with all tries and the pauses between them; bytes, of an object in parts of its slowest part; the
key at its source, or the path of what is read back, safe on a terminal."""


def slowest(objects: Iterable[SlowObject], most: int = KEPT) -> Sequence[SlowObject]:
    """Those that took longest, each key once, the slowest first.

    >>> slowest([(2.0, 9, "a"), (3.0, 9, "b"), (5.0, 9, "a")])
    [(5.0, 9, 'a'), (3.0, 9, 'b')]
    """
    return nlargest(most, {row[2]: row for row in sorted(objects)}.values())
