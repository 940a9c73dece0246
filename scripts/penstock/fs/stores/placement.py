"""How much of a plan comes to lie on one storage target, by the stripe pattern that its files will get. Pure.

| of a plan        | comes to one of T targets                                                            |
|------------------|--------------------------------------------------------------------------------------|
| all its bytes    | the T-th part (of both copies, where files are mirrored), and a margin of `MARGIN` % |
| its largest file | its bytes, divided over as many targets as its chunks and the pattern take           |

A target needs room for the larger of the two. The margin is for targets that are chosen at random for each
file, as BeeGFS does (`tuneTargetChooser=randomized`, as shipped): of 10,000 files of one size on 4 of 64
targets each, the fullest target has some 10 % more than the mean; of more files less.

Limit: a few large files can meet on one target. That is not foreseen, and ends the copy for lack of space.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from penstock.fs.stores.facts import GIB, TIB, FillRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.fs.stores.facts import Pattern, Target

__all__ = ["GIB", "TIB"]

MARGIN = 10
"""Percent of its even share that a target may get more."""
_BITS = 4
"""Leading bits of a size that tell its class."""


class SizeClasses:
    """Files counted by size. Takes memory for some hundred classes, whatever the number of files."""

    def __init__(self, sizes: Iterable[int] = ()) -> None:
        self._counts: defaultdict[int, int] = defaultdict(int)
        self._sums: defaultdict[int, int] = defaultdict(int)
        self.largest = 0
        self.add(sizes)

    def add(self, sizes: Iterable[int]) -> None:
        """Count files of these sizes, in bytes."""
        counts, sums, largest = self._counts, self._sums, self.largest
        for size in sizes:
            shift = size.bit_length() - _BITS
            key = size >> shift << shift if shift > 0 else size
            counts[key] += 1
            sums[key] += size
            largest = max(largest, size)
        self.largest = largest

    def __iter__(self) -> Iterator[tuple[int, float]]:
        """(number of files, their mean size), from the smallest."""
        for key in sorted(self._counts):
            yield self._counts[key], self._sums[key] / self._counts[key]

    @property
    def files(self) -> int:
        """How many files were counted."""
        return sum(self._counts.values())

    @property
    def bytes(self) -> int:
        """Their sizes together."""
        return sum(self._sums.values())

    def half_of_the_bytes(self) -> float:
        """The mean size of the class in which half of all bytes are reached, from the smallest on; 0 of
        none."""
        left = self.bytes / 2
        for count, size in self:
            left -= count * size
            if left <= 0:
                return size
        return 0.0


class TargetLoad(NamedTuple):
    """What one of the targets gets."""

    bytes: int
    """For which it needs room: by the table above."""
    chunk_files: float
    """Files that it has to hold, in the mean."""


def load(sizes: SizeClasses, pattern: Pattern, among: int) -> TargetLoad:
    """What each of `among` targets gets of these files."""
    places = max(1, among // pattern.copies)
    mean = -(-sizes.bytes * (100 + MARGIN) // (100 * places))
    chunks = math.ceil(sizes.largest / pattern.chunk_bytes)
    of_largest = -(-sizes.largest // max(1, min(pattern.targets, places, chunks)))
    objects = sum(count * _objects(size, pattern, min(pattern.targets, places)) for count, size in sizes)
    return TargetLoad(max(mean, of_largest), objects / places)


def chunk_files(sizes: SizeClasses, pattern: Pattern) -> int:
    """How many chunk files these files make on all targets together: what a quota counts as files."""
    return pattern.copies * sum(count * _objects(size, pattern, pattern.targets) for count, size in sizes)


def _objects(size: float, pattern: Pattern, wide: int) -> int:
    """On how many of `wide` targets a file has an object; an empty file may have some."""
    return wide if pattern.objects_of_empty else min(wide, math.ceil(size / pattern.chunk_bytes))


def eligible(targets: Sequence[Target], wanted: int) -> list[Target]:
    """The targets among which BeeGFS chooses `wanted`: by capacity pools, the lower only where too few lie
    above.

    | enough for `wanted`                 | chosen among            |
    |-------------------------------------|-------------------------|
    | `normal` (also where not known)     | these                   |
    | `normal` and `low`                  | these                   |
    | neither                             | all that are not offline|

    Those that are inactive or closed are among none of these.
    """
    up = [target for target in targets if target.reachability not in ("offline", "inactive")]
    up = [target for target in up if target.capacity != "closed"]
    for pools in (("normal", "unknown"), ("normal", "unknown", "low")):
        found = [target for target in up if target.capacity in pools]
        if len(found) >= wanted:
            return found
    return up


class FreeRoom(NamedTuple):
    """What a target still takes."""

    bytes: int
    limit: int
    """Bytes that are free when it is reached; 0: until it is full."""


def room(target: Target, limits: tuple[int, ...] = FillRules().storage_limits) -> FreeRoom | None:
    """What a target takes before its next limit. None where its free space is not known.

    | free bytes                              | next limit                                      |
    |-----------------------------------------|-------------------------------------------------|
    | above the low limit, pool not `low`     | the low limit                                   |
    | above the emergency limit               | the emergency limit: the site's low limit is    |
    |                                         | another than the shipped one, or was passed     |
    | below                                   | none: until it is full                          |
    """
    if target.free_bytes is None:
        return None
    free = target.free_bytes
    kept = limits[1:] if target.capacity in ("low", "emergency") else limits
    limit = next(limit for limit in kept if free > limit or limit == 0)
    return FreeRoom(free - limit, limit)
