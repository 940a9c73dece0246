"""How fast a worker reads shards back while it copies others: never faster than it copies.

It stops while reading slows the copy down. A `ReadingPace` compares the rate of the copy with and without
reading, in seconds and bytes:

| it                                    | then                                                         |
|---------------------------------------|--------------------------------------------------------------|
| has measured the copy alone for QUIET | reads, and measures the copy after each TRIED                |
| the copy has less than MUCH of the    | rests, twice as long each time in a row; of the rest it      |
| rate that it has alone, or twice in a | learns the rate that the copy has alone                      |
| row less than SLOWER of it            |                                                              |
| the copy keeps its rate               | reads on; after AGAIN it measures the copy alone once more   |
| nothing is copied                     | reads as fast as it can                                      |
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

QUIET, TRIED, AGAIN = 3.0, 10.0, 60.0
REST = 10.0
LONGEST_REST = 300.0
SLOWER, MUCH = 0.95, 0.8
WINDOW = 1.0  # seconds over which no more is read than copied
SLACK = 64 << 20  # bytes that may be read ahead within a WINDOW: some blocks of each stream


class _Mark(NamedTuple):
    at: float
    copied: int
    read: int

    def rate(self, now: float, copied: int) -> float:
        return (copied - self.copied) / max(now - self.at, 0.001)


class ReadingPace:
    """The pace of one worker. `copied`: its bytes copied so far, None while it copies nothing."""

    def __init__(self, copied: Callable[[], int | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._copied, self._clock = copied, clock
        self._alone: float | None = None  # the copy's rate without reading
        self._measured = float("-inf")  # when it was measured
        self._phase: _Mark | None = None
        self._window: _Mark | None = None
        self._rests_until, self._rest, self._slower = float("-inf"), REST, 0
        self._read = self._before = 0

    def rests(self, read: int) -> bool:
        """Return whether reading is to stop now; `read` is in bytes of the current shard, from 0."""
        now, copied = self._clock(), self._copied()
        self._before += self._read if read < self._read else 0
        self._read = read
        total = self._before + read
        if copied is None:
            self._alone = self._phase = self._window = None
            return False
        if now < self._rests_until:
            return True
        if self._phase is None:
            self._phase = self._window = _Mark(now, copied, total)
        if self._alone is None:
            if now - self._phase.at < QUIET:
                return True
            self._alone, self._measured = self._phase.rate(now, copied), now
            self._phase = self._window = _Mark(now, copied, total)
        elif now - self._phase.at >= TRIED:
            self._judge(now, copied)
            self._phase = _Mark(now, copied, total)
            if self._alone is None:
                return True
        return self._is_ahead(now, copied, total)

    def _judge(self, now: float, copied: int) -> None:
        assert self._phase is not None
        assert self._alone is not None
        rate = self._phase.rate(now, copied)
        self._slower = self._slower + 1 if rate < SLOWER * self._alone else 0
        if rate < MUCH * self._alone or self._slower > 1:
            self._rests_until, self._rest = now + self._rest, min(2 * self._rest, LONGEST_REST)
            self._alone, self._slower = None, 0
            return
        self._rest = self._rest if self._slower else REST
        if now - self._measured >= AGAIN:
            self._alone = None

    def _is_ahead(self, now: float, copied: int, total: int) -> bool:
        """Return whether more was read than copied since a WINDOW ago, or since it last was not."""
        mark = self._window or _Mark(now, copied, total)
        ahead = total - mark.read > copied - mark.copied + SLACK
        if not ahead and now - mark.at >= WINDOW:
            mark = _Mark(now, copied, total)
        self._window = mark
        return ahead
