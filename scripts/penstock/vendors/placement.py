"""How much of a plan comes to lie on one storage target, by the stripe pattern that its files will get. Pure.

The problem: BeeGFS chooses the targets of each file at random (`tuneTargetChooser=randomized`, as shipped),
so how much one target gets is not certain. The obvious way draws targets for each file: it takes time for
each file and gives another answer each time. Mean and variance alone fail where a few giants decide: two of
them on one of sixteen targets are no rarity, and far beyond four standard deviations.

The way taken: files are counted in classes of size, of which there are some hundred. A file of c chunks
lies on w = min(n, c) of the T targets, with the w-th part of its bytes on each, so one target gets such a
part with the probability w / T. What a target gets is a sum of such parts, and Chernoff's bound holds for
it: for each t > 0, P(sum >= x) <= exp(-t x) * product of (1 + w / T * (exp(t part) - 1)) over the files.
`most` is the least x for which some t puts this below 1 in 1,000 over all targets together.

Limits: the mean size of a class (at most 1/8 apart) stands for its files; a file's last chunk counts as if
it were spread; targets are taken to be chosen alike for each file by itself, which is not so with the
choosers `roundrobin` (more even) and `randominternode`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from penstock.vendors.facts import GIB, TIB, Rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.vendors.facts import Pattern, Target

__all__ = ["GIB", "TIB"]

RISK = 0.001
"""How probable it may be that any target gets more than `Load.most`."""
STEPS = 60
"""Of the search for t: the interval shrinks to its 10^-12."""
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
        self._change(sizes, 1)

    def remove(self, sizes: Iterable[int]) -> None:
        """Take files back that were counted. `largest` stays as it is."""
        self._change(sizes, -1)

    def _change(self, sizes: Iterable[int], by: int) -> None:
        counts, sums, largest = self._counts, self._sums, self.largest
        for size in sizes:
            shift = size.bit_length() - _BITS
            key = size >> shift << shift if shift > 0 else size
            counts[key] += by
            sums[key] += size if by > 0 else -size
            largest = max(largest, size)
        self.largest = largest

    def __iter__(self) -> Iterator[tuple[int, float]]:
        """(number of files, their mean size), from the smallest."""
        for key in sorted(self._counts):
            if self._counts[key] > 0:
                yield self._counts[key], self._sums[key] / self._counts[key]

    @property
    def files(self) -> int:
        return sum(self._counts.values())

    @property
    def bytes(self) -> int:
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


class Load(NamedTuple):
    """What one of the targets gets."""

    expected: float
    """Bytes, in the mean."""
    most: int
    """Bytes that no target gets more of, with a certainty of 99.9 %."""
    chunk_files: float
    """Files that it has to hold, in the mean."""


def load(sizes: SizeClasses, pattern: Pattern, among: int) -> Load:
    """What each of `among` targets gets of these files."""
    places = max(1, among // pattern.copies)
    certain = mean = chunks = 0.0
    drawn: list[tuple[float, float, float]] = []
    for count, size in sizes:
        for part, width, objects in _parts(size, pattern, places):
            chance = width / places
            chunks += count * objects / places
            mean += count * part * chance
            if width == places:
                certain += count * part
            elif width:
                drawn.append((count, part, chance))
    return Load(mean, math.ceil(certain + _bound(drawn, math.log(places / RISK))), chunks)


def _bound(drawn: Sequence[tuple[float, float, float]], unlikely: float) -> float:
    """The bytes of Chernoff's bound, for (number of files, part, chance) of each class; `unlikely` is the
    logarithm of one through the risk for one target. At most all parts together."""
    everything = sum(count * part for count, part, _ in drawn)
    if not everything:
        return 0.0
    largest = max(part for _, part, _ in drawn)

    def bytes_at(exponent: float) -> float:
        t = math.exp(exponent) / largest
        growth = sum(count * math.log1p(chance * math.expm1(t * part)) for count, part, chance in drawn)
        return (unlikely + growth) / t

    # Falls to its least and rises after it: a golden section finds that.
    low, high, golden = math.log(1e-9), math.log(600.0), (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = bytes_at(left), bytes_at(right)
    for _ in range(STEPS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = bytes_at(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = bytes_at(right)
    return min(everything, at_left, at_right)


def chunk_files(sizes: SizeClasses, pattern: Pattern) -> int:
    """How many chunk files these files make on all targets together: what a quota counts as files."""
    return pattern.copies * sum(
        count * objects for count, size in sizes for _, _, objects in _parts(size, pattern, pattern.targets)
    )


def _parts(size: float, pattern: Pattern, places: int) -> Iterator[tuple[float, int, int]]:
    """Of each component of a file's layout: bytes on each of its targets, how many targets have any, and how
    many have an object. An empty file is on none, but may have objects."""
    start = 0
    for component in pattern.components:
        here = max(0.0, (size if component.end is None else min(size, component.end)) - start)
        wide = min(component.targets, places)
        width = min(wide, math.ceil(here / component.chunk_bytes))
        # The first component of a file is made with it, each other one with its first byte.
        objects = wide if pattern.objects_of_empty and (here or not start) else width
        yield here / width if width else 0.0, width, objects
        start = component.end or 0


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


class Room(NamedTuple):
    """What a target still takes."""

    bytes: int
    limit: int
    """Bytes that are free when it is reached; 0: until it is full."""


def room(target: Target, limits: tuple[int, ...] = Rules().storage_limits) -> Room | None:
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
    return Room(free - limit, limit)
