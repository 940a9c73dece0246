"""Draws a small sample of a dataset's files with the sizes of all, and measures its distance from them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def spread(count: int) -> list[int]:
    """Return the numbers below `count`, each beginning spread evenly: 1/2, 1/4, 3/4, 1/8 ... of the way (van
    der Corput: bits read backwards). As places in files sorted by size, the first 64 represent all sizes to
    1/64."""
    bits = max(1, (count - 1).bit_length())
    backwards = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits))
    return list(dict.fromkeys(number * count >> bits for number in backwards))


def distance(sample: Iterable[int], sizes: Iterable[Sequence[int]]) -> float:
    """Return the Kolmogorov-Smirnov distance of a sample's sizes from all `sizes`, which come in batches in
    any order: the largest difference, 0 to 1, between the fractions of both up to some size; 1 if either is
    empty. Memory holds the sample and one batch."""
    ordered = sorted(sample)
    points = sorted(set(ordered))
    below, upto, total = [0] * len(points), [0] * len(points), 0
    for batch in sizes:
        whole = sorted(batch)
        total += len(whole)
        for place, point in enumerate(points):
            below[place] += bisect_left(whole, point)
            upto[place] += bisect_right(whole, point)
    if not ordered or not total:
        return 1.0

    # Between two sizes of the sample its own fraction stays, and that of all grows: the ends are enough.
    return max(
        abs(counted(ordered, point) / len(ordered) - of_all / total)
        for counted, counts in ((bisect_left, below), (bisect_right, upto))
        for point, of_all in zip(points, counts, strict=True)
    )
