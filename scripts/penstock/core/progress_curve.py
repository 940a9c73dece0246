"""Rates and remaining time, by how files and bytes of a step grew. Pure.

The problem: a stream's pace is steady in bytes where a link bounds it, in files where requests do, and in a
mixture of both where a file costs a fixed time besides its bytes. Sizes are not mixed evenly: the files left
may be other ones than those that were done. The later of bytes and files at their own rates (the obvious way)
is several times too long where small files come last, or large ones.

The way taken: both counts are divided by what they are now, so each is a curve that rose from 0 to 1. Work
done is the mixture `share * bytes + (1 - share) * files` whose curve was nearest to a straight line over time
(least squares); bytes or files alone where that is as straight. The time left is what is left of the work, at
its rate of late.

Limits: while all files so far were alike both curves are the same, and nothing shows which of the two is
steady; then bytes count.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from operator import mul
from typing import NamedTuple

WINDOW_SECONDS = 30.0
"""The time of which a rate is."""
PACE_SECONDS = 60.0
"""The time by whose pace the remaining time is: elements report in waves."""
SPACING = 0.5
SAMPLES = 480
"""Samples that are kept, the newest: four minutes or more."""
ALIKE, NOISE = 0.001, 1.25
"""A curve that is so much further from a straight line than another one, or by this factor, counts as steady
as that: a root mean square, where both rise from 0 to 1. Reports that come late bend all curves."""


class Sample(NamedTuple):
    """What was done, and when, in seconds of any clock."""

    at: float
    files: int
    bytes: int


class ProgressCurve:
    """How the counts of one step grew, over the attempts of all elements. What was done before the first
    sample, by an earlier command, is none of it."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._last: Sample | None = None

    def add(self, at: float, files: int, size: int) -> None:
        """Files and bytes that are done by now; neither falls."""
        self._last = Sample(at, files, size)
        if not self._samples or at - self._samples[-1].at >= SPACING:
            self._samples.append(self._last)

    def rates(self, now: float) -> tuple[float, float]:
        """(bytes, files) a second of late; (0, 0) where nobody can say."""
        begin, last = self._since(now - WINDOW_SECONDS), self._last
        if begin is None or last is None or now - begin.at < 0.2:
            return 0.0, 0.0
        seconds = now - begin.at
        return (last.bytes - begin.bytes) / seconds, (last.files - begin.files) / seconds

    def seconds_left(self, now: float, files: int, size: int) -> float | None:
        """Until so many files and bytes more are done; None where nothing moves, or nothing is left."""
        begin, last = self._since(now - PACE_SECONDS), self._last
        if begin is None or last is None or now - begin.at < 0.2 or (files <= 0 and size <= 0):
            return None
        first = self._samples[0]
        all_files, all_bytes = last.files - first.files, last.bytes - first.bytes
        share = self._share(all_files, all_bytes)

        def work(files: int, size: int) -> float:
            return share * size / (all_bytes or 1) + (1 - share) * files / (all_files or 1)

        pace = work(last.files - begin.files, last.bytes - begin.bytes) / (now - begin.at)
        left = work(max(0, files), max(0, size))
        return left / pace if pace > 0 and left > 0 else None

    def _share(self, all_files: int, all_bytes: int) -> float:
        """Of bytes in the mixture that grew most steadily: 1, else 0, where that alone was as steady."""
        first, last = self._samples[0], self._last
        if not all_files or not all_bytes or last is None:
            return float(bool(all_bytes))
        # Distances of the curve of files from the straight line, and from the curve of bytes.
        from_line, apart = [], []
        for at, files, size in self._samples:
            by_files = (files - first.files) / all_files
            from_line.append(by_files - (at - first.at) / (last.at - first.at))
            apart.append(by_files - (size - first.bytes) / all_bytes)

        def bend(share: float) -> float:
            return math.dist(from_line, [share * gap for gap in apart]) / math.sqrt(len(apart))

        fit = sum(map(mul, from_line, apart)) / (sum(map(mul, apart, apart)) or 1.0)
        mixed = min(1.0, max(0.0, fit))
        return next(share for share in (1.0, 0.0, mixed) if bend(share) <= NOISE * bend(mixed) + ALIKE)

    def _since(self, moment: float) -> Sample | None:
        """The last sample before the moment, or the first one."""
        if not self._samples:
            return None
        after = bisect_left(self._samples, moment, key=lambda sample: sample.at)
        return self._samples[max(0, after - 1)]
