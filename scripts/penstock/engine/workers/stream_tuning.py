"""How many streams (threads that move rows) are active, tuned while the engine runs. Pure: the caller passes
times and totals.

`engine.shard_run` makes one `Tuner` for each shard; the pool calls it while it listens to the workers.

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

WINDOW = 0.4
"""Seconds over which rate and load are measured."""
BUSY, FULL = 0.75, 0.9
"""Fraction of the CPUs' time from which they count as busy; the latter while parts of large objects are
copied."""
BETTER = 1.1
"""A climb helped where the rate after it is so many times the rate before."""
HOLD = 10.0
"""Seconds without a further climb after one that did not help."""
CALM = 5.0
"""Seconds without a climb after the store asked for less."""


class Tuner:
    """The caller calls `step` now and then, and runs as many streams as `streams` says. All times are seconds
    of one monotonic clock; work is in bytes."""

    def __init__(self, first: int, least: int, most: int, cpus: int, now: float, busy: float) -> None:
        """Begins with `first` streams, and stays between `least` and `most`. `cpus`: how many CPUs the
        element may use. `busy`: the seconds that they were busy so far, as they are passed to `step`."""
        self.streams = max(least, min(first, most))
        self.peak = self.streams
        """The most streams that were active at a time."""
        self.probing = False
        """Parts of large objects are copied, and each climb has helped so far."""
        self.words: list[str] = []
        """The first dozen changes, each with its reason."""
        self._least, self._most, self.cpus = least, most, cpus
        self._since, self._work, self._busy = now, 0.0, busy
        self._before: tuple[int, float] | None = None
        self._hold = now
        self._pressed = now - CALM
        self._pressures = 0

    def pressure(self, now: float) -> bool:
        """The store asked for less. Returns whether `streams` changed."""
        self._pressures += 1
        self._hold = now + CALM
        self._before = None
        if now - self._pressed < 1.0:
            return False
        self._pressed = now
        self.probing = False
        return self._set(max(self._least, self.streams // 2), "the store asked for less")

    def bound(self, most: int) -> bool:
        """No more streams than `most` from now on, but never fewer than `least`. Returns whether `streams`
        changed."""
        self._most = max(self._least, most)
        if self.streams <= self._most:
            return False
        self._before = None
        return self._set(self._most, "its share feeds no more")

    def due(self, now: float) -> bool:
        """Whether a WINDOW has passed, so that `step` would measure: the caller computes the totals only
        then."""
        return now - self._since >= WINDOW

    def restart(self, now: float, work: float, busy: float) -> None:
        """Begin a new window at `now`, with these totals: what was before says nothing."""
        self._since, self._work, self._busy = now, work, busy

    def step(self, now: float, work: float, busy: float) -> bool:
        """`work`: bytes moved in all so far; `busy`: seconds that the CPUs were busy so far
        (`cpu_usage.busy_seconds`). Returns whether `streams` changed; False before a WINDOW has passed."""
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
        """The changes so far and their reasons, in words, for the receipt."""
        text = "; ".join(self.words)
        if self._pressures:
            text += f"; asked for less {self._pressures} times"
        return text.lstrip("; ")
