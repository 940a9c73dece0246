"""Tunes the number of active streams (threads that move rows) while the engine runs.

the store asked for less (503, SlowDown)   half, at once, no more than once a second; then the
                                           number climbs again by a quarter every 5 s without
its share of the network link feeds fewer  as many as it feeds, at once
CPUs busy                                  stays: more streams would only wait for each other
CPUs idle, last climb helped               double, up to the most
CPUs idle, last climb did not help         back to what it was, and hold for 10 s
parts of large objects                     double until the CPUs have no time left, or a climb did not help:
                                           only a climb shows whether the store limits each connection
"""

from __future__ import annotations

WINDOW = 0.4  # seconds over which rate and load are measured
# fraction of busy CPU time from which CPUs count as busy; FULL for parts of large objects
BUSY, FULL = 0.75, 0.9
BETTER = 1.1  # a climb helped where it multiplied the rate by this
HOLD = 10.0  # seconds without a climb after one that did not help
CALM = 5.0  # seconds without a climb after the store asked for less


class Tuner:
    """Decides the number of streams; its caller runs `streams` of them. Times are seconds of one monotonic
    clock."""

    def __init__(self, first: int, least: int, most: int, cpus: int, now: float, busy: float) -> None:
        """Begin with `first` streams, and stay between `least` and `most`.

        `cpus`: CPUs that the element may use; `busy`: as in `step`.
        """
        self.streams = max(least, min(first, most))
        self.peak = self.streams  # the most streams active at a time
        self.probing = False  # parts of large objects are copied, and each climb has helped so far
        self.words: list[str] = []  # the first dozen changes, each with its reason
        self._least, self._most, self.cpus = least, most, cpus
        self._since, self._work, self._busy = now, 0.0, busy
        self._before: tuple[int, float] | None = None
        self._hold = now
        self._pressed = now - CALM
        self._pressures = 0

    def pressure(self, now: float) -> bool:
        """Halve the streams: the store asked for less. Returns whether `streams` changed."""
        self._pressures += 1
        self._hold = now + CALM
        self._before = None
        if now - self._pressed < 1.0:
            return False
        self._pressed = now
        self.probing = False
        return self._set(max(self._least, self.streams // 2), "the store asked for less")

    def bound(self, most: int) -> bool:
        """Allow no more than `most` streams from now on, but at least `least`. Returns whether `streams`
        changed."""
        self._most = max(self._least, most)
        if self.streams <= self._most:
            return False
        self._before = None
        return self._set(self._most, "its share feeds no more")

    def due(self, now: float) -> bool:
        """Return whether `step` would measure now, so that the caller computes the totals only then."""
        return now - self._since >= WINDOW

    def restart(self, now: float, work: float, busy: float) -> None:
        """Begin a new window with these totals; the old one says nothing."""
        self._since, self._work, self._busy = now, work, busy

    def step(self, now: float, work: float, busy: float) -> bool:
        """Measure, and change `streams` by the table; return whether they changed.

        `work`: bytes moved so far; `busy`: seconds of busy CPUs so far (`cpu_usage.busy_seconds`).
        """
        span = now - self._since
        if span < WINDOW:
            return False
        rate, load = (work - self._work) / span, (busy - self._busy) / span / self.cpus
        self.restart(now, work, busy)
        before, self._before = self._before, None
        if rate <= 0 or now < self._hold:
            return False
        if before and rate < before[1] * BETTER:
            self._hold = now + HOLD
            self.probing = False
            return self._set(before[0], "more did not help")
        if load >= (FULL if self.probing else BUSY) or self.streams >= self._most:
            return False
        self._before = (self.streams, rate)
        more = self.streams * 2 if not self._pressures else self.streams + max(1, self.streams // 4)
        if self._pressures:
            self._hold = now + CALM
        return self._set(min(self._most, more), "CPUs were idle" if load < BUSY else "each may be limited")

    def _set(self, streams: int, why: str) -> bool:
        if streams == self.streams:
            return False
        if len(self.words) < 12:
            self.words.append(f"{self.streams} -> {streams} streams: {why}")
        self.streams = streams
        self.peak = max(self.peak, streams)
        return True

    @property
    def story(self) -> str:
        """The changes and their reasons, for the receipt."""
        text = "; ".join(self.words)
        if self._pressures:
            text += f"; asked for less {self._pressures} times"
        return text.lstrip("; ")
