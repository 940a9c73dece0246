"""Rates and remaining time, by how files and bytes of a step grew.

The problem: a link makes a stream steady in bytes, requests make it steady in files, and fixed costs of files
a mixture. The files left may have other sizes than those done. The obvious way, the later of bytes and files
at their own rates, is several times too long where small or large files come last.

The way taken: both counts are scaled to curves from 0 to 1. Work is the mixture `share * bytes + (1 - share)
* files` with the straightest curve over time (least squares); bytes or files alone if as straight. The time
left is the work left at its recent rate.

Limits: while all files are alike both curves coincide, and nothing shows which is steady; then bytes count.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from operator import mul
from typing import NamedTuple

WINDOW_SECONDS = 30.0  # that a rate covers
PACE_SECONDS = 60.0  # whose pace gives the remaining time: elements report in waves
SPACING = 0.5
SAMPLES = 480  # newest samples that are kept: four minutes or more
# A curve counts as steady if its distance from a straight line (root mean square, both rise from 0 to 1)
# exceeds the best by no more than this, after this factor. Late reports bend all curves.
ALIKE, NOISE = 0.001, 1.25


class Sample(NamedTuple):
    """The work done, and when, in seconds of any clock."""

    at: float
    files: int
    bytes: int


class ProgressCurve:
    """The growth of a step's counts, over the attempts of all elements. Work done before the first sample, by
    an earlier command, is not counted."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._last: Sample | None = None

    def add(self, at: float, files: int, size: int) -> None:
        """Record files and bytes done by now; neither falls."""
        self._last = Sample(at, files, size)
        if not self._samples or at - self._samples[-1].at >= SPACING:
            self._samples.append(self._last)

    def rates(self, now: float) -> tuple[float, float]:
        """Return recent (bytes, files) a second; (0, 0): not known."""
        begin, last = self._since(now - WINDOW_SECONDS), self._last
        if begin is None or last is None or now - begin.at < 0.2:
            return 0.0, 0.0
        seconds = now - begin.at
        return (last.bytes - begin.bytes) / seconds, (last.files - begin.files) / seconds

    def seconds_left(self, now: float, files: int, size: int) -> float | None:
        """Return the seconds for the files and bytes left; None: nothing moves, or nothing is left."""
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
        """Return the share of bytes in the steadiest mixture; 1, else 0, if that is as steady."""
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
        """Return the last sample before the moment, or the first."""
        if not self._samples:
            return None
        after = bisect_left(self._samples, moment, key=lambda sample: sample.at)
        return self._samples[max(0, after - 1)]
