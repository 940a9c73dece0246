"""How long after their writing a release's files were read back: summed while publish seals them."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from penstock.core.grades import SOON
from penstock.core.seal import SealedReadDelay

if TYPE_CHECKING:
    from penstock.tables.files import Files

STEP = 1.2  # ratio of the histogram's bounds


class ReadDelays:
    """`core.grades.read_delay` of all files, by columns, since publish has 10^9 of them.

    The histogram counts by powers of STEP: the median is too short by one step at most, and memory is
    bounded.
    """

    def __init__(self) -> None:
        self._least: int | None = None
        self._soon = 0
        self._powers = Counter[int]()

    def add(self, files: Files) -> None:
        size, ctime_ns, read_at, shared = map(files.stored, ("size", "ctime_ns", "read_at", "shared"))
        counted = pc.and_(pc.greater(read_at, 0), pc.greater(size, 0))
        counted = pc.and_(counted, pc.equal(shared, 0))
        changed = pc.add(pc.divide(pc.subtract(ctime_ns, 1), 10**9), 1)
        seconds = pc.max_element_wise(pc.subtract(read_at, changed), 0).filter(counted)
        if not len(seconds):
            return
        least = pc.min(seconds).as_py()
        self._least = least if self._least is None else min(self._least, least)
        self._soon += pc.sum(pc.less(seconds, SOON)).as_py()
        powers = pc.floor(pc.logb(pc.add(seconds, 1), STEP))
        self._powers.update({int(row["values"]): row["counts"] for row in powers.value_counts().to_pylist()})

    def sealed(self) -> SealedReadDelay | None:
        if self._least is None:
            return None
        left = (self._powers.total() + 1) // 2
        for power in sorted(self._powers):
            left -= self._powers[power]
            if left <= 0:
                break
        return SealedReadDelay(self._least, max(self._least, math.ceil(STEP**power) - 1), self._soon)
