"""How much of a plan is placed on a single storage target, by the stripe pattern of its files.

| of a plan        | comes to one of T targets                                                            |
|------------------|--------------------------------------------------------------------------------------|
| all its bytes    | the T-th part (of both copies, where files are mirrored), and a margin of `MARGIN` % |
| its largest file | its bytes, divided over as many targets as its chunks and the pattern take           |

A target needs room for the larger of the two. The margin is for targets chosen at random for each file, as
BeeGFS does by default (`tuneTargetChooser=randomized`). With 10,000 equal files on 4 of 64 targets each, the
fullest target gets some 10 % more than the mean; with more files less.

Limit: a few large files can meet on a target. Such a copy ends for lack of space.
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

MARGIN = 10  # percent of its even share that a target may get more
_BITS = 4  # leading bits of a size that tell its class


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
        """Files counted."""
        return sum(self._counts.values())

    @property
    def bytes(self) -> int:
        """The sum of their sizes."""
        return sum(self._sums.values())

    def half_of_the_bytes(self) -> float:
        """Return the mean size of the class that contains the middle of all bytes, from the smallest on; 0
        without files."""
        left = self.bytes / 2
        for count, size in self:
            left -= count * size
            if left <= 0:
                return size
        return 0.0


class TargetLoad(NamedTuple):
    """What a target gets."""

    bytes: int  # for which it needs room, by the table above
    chunk_files: float  # files that it must hold, in the mean


def load(sizes: SizeClasses, pattern: Pattern, among: int) -> TargetLoad:
    """Compute what each of `among` targets gets of these files."""
    places = max(1, among // pattern.copies)
    mean = -(-sizes.bytes * (100 + MARGIN) // (100 * places))
    chunks = math.ceil(sizes.largest / pattern.chunk_bytes)
    of_largest = -(-sizes.largest // max(1, min(pattern.targets, places, chunks)))
    objects = sum(count * _objects(size, pattern, min(pattern.targets, places)) for count, size in sizes)
    return TargetLoad(max(mean, of_largest), objects / places)


def chunk_files(sizes: SizeClasses, pattern: Pattern) -> int:
    """Count the chunk files of these files on all targets together: what a quota counts as files."""
    return pattern.copies * sum(count * _objects(size, pattern, pattern.targets) for count, size in sizes)


def _objects(size: float, pattern: Pattern, wide: int) -> int:
    """Return on how many of `wide` targets a file has an object; an empty file may have some."""
    return wide if pattern.objects_of_empty else min(wide, math.ceil(size / pattern.chunk_bytes))


def eligible(targets: Sequence[Target], wanted: int) -> list[Target]:
    """Return the targets among which BeeGFS chooses `wanted`, by capacity pools.

    | enough for `wanted`                 | chosen among            |
    |-------------------------------------|-------------------------|
    | `normal` (also where not known)     | these                   |
    | `normal` and `low`                  | these                   |
    | neither                             | all that are not offline|

    Inactive and closed targets are never among them.
    """
    up = [target for target in targets if target.reachability not in ("offline", "inactive")]
    up = [target for target in up if target.capacity != "closed"]
    for pools in (("normal", "unknown"), ("normal", "unknown", "low")):
        chosen = [target for target in up if target.capacity in pools]
        if len(chosen) >= wanted:
            return chosen
    return up


class FreeRoom(NamedTuple):
    """What a target can still take."""

    bytes: int
    limit: int  # bytes free when it is reached; 0: until it is full


def room(target: Target, limits: tuple[int, ...] = FillRules().storage_limits) -> FreeRoom | None:
    """Return what a target takes before its next limit; None where its free space is unknown.

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
