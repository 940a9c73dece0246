"""The objects of a step that took longest. Pure. Workers keep theirs, an element's receipt those of all its
workers, and the report those of all elements."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import NamedTuple

KEPT = 5
"""How many of them a worker and an element keep."""


class SlowObject(NamedTuple):
    """What one stream was busy with for long."""

    seconds: float
    """With all tries and the pauses between them."""
    bytes: int
    """Of an object in parts, those of its slowest part."""
    key: str
    """At the source; of what is read back, the path on the target. Safe on a terminal."""


def slowest(objects: Iterable[SlowObject], most: int = KEPT) -> Sequence[SlowObject]:
    """Those that took longest, each key once, the slowest first.

    >>> slow = [SlowObject(2.0, 9, "a"), SlowObject(3.0, 9, "b"), SlowObject(5.0, 9, "a")]
    >>> [(row.key, row.seconds) for row in slowest(slow)]
    [('a', 5.0), ('b', 3.0)]
    """
    each = {slow.key: slow for slow in sorted(objects)}
    return nlargest(most, each.values())
