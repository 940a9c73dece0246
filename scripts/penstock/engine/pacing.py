"""The pace of a share that changes: of what all elements of a link may do together, this one's part of now.

The parent of the workers writes its `Allowance` into the memory that they share, several times a second. Each
worker goes by it until `until`; whoever does not hear of a later moment stops there, also when the parent
itself hangs in a call to a file system.
"""

from __future__ import annotations

import fcntl
import math
import time
from struct import Struct
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from penstock.engine.shared_memory import LINE_BYTES, LINES_AT

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engine.shared_memory import Shared

BURST = 0.03
"""Seconds' worth that may be taken at once after a pause."""
LATE = 0.05
"""Seconds after its turn from which on a taker, which the machine let wait, takes another turn instead: what
came to a stand all together does not read all at once when it goes on."""
LOOK = 0.2
"""Seconds after which a taker that waits looks whether the pace has changed."""
BYTES, REQUESTS = 0, 1
"""The two lines: what is counted."""
GRAIN = 0.0001
"""Seconds before its turn from which on a taker does not wait."""
_LINE = Struct("=dddd")


class Allowance(NamedTuple):
    """What an element may do now."""

    rate: float
    """Bytes a second from the source; 0: nothing, infinite: no cap."""
    requests: float
    """Requests a second to the source; likewise."""
    until: float
    """By `clock`."""
    most: float = math.inf
    """Bytes a second that it could be, if all others ended."""


def clock() -> float:
    """Seconds of this machine, the same for all its processes, going on while it sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Pace:
    """One of the two lines, for all workers of an element. Its rate is the share's, or `limit` where that is
    lower.

    Turns are places on one line of bytes (or requests), which moves on at the rate; what was booked keeps
    its place when the rate changes, and its turn comes sooner or later than it would have. Over any window
    of time what is taken is at most the rate times the window, LATE and BURST seconds' worth, and one taking.
    """

    def __init__(
        self,
        shared: Shared,
        line: int,
        wait: Callable[[float], object],
        limit: int | None = None,
        now: Callable[[], float] = clock,
    ) -> None:
        """`wait`: true when the engine stops."""
        self._shared, self._line, self._wait, self._clock = shared, line, wait, now
        self._limit = math.inf if limit is None else limit
        self._lock, self._at = Lock(), LINES_AT + line * LINE_BYTES

    def take(self, count: int) -> None:
        """Return when `count` more may be read, or the engine stops."""
        start, left = self._booked(count)
        again = True
        while left > GRAIN:
            if self._wait(min(left, LOOK)):
                return
            left = self._left(start)
            if left < -LATE and again:
                again = False
                start, left = self._booked(count)

    def ready(self) -> None:
        """Return when anything may be read at all, or the engine stops: a connection that is opened earlier
        would be closed by a server that waits for its reader."""
        while self._rate(self._clock()) <= 0 and not self._wait(LOOK):
            pass

    def _rate(self, now: float) -> float:
        rate, requests, until = self._shared.allowance
        return min(self._limit, requests if self._line == REQUESTS else rate) if now <= until else 0.0

    def _booked(self, count: int) -> tuple[float, float]:
        """A place for `count` at the end of the line, and the seconds until its turn."""
        with self._lock:
            self._hold()
            try:
                now, place, rate, booked = self._moved()
                start = place if math.isinf(rate) else max(booked, place - BURST * rate)
                booked = place if math.isinf(rate) else start + count
                self._keep(now, place, rate, booked)
            finally:
                self._release()
        return start, _seconds(start - place, rate)

    def _left(self, start: float) -> float:
        """Seconds until the line is there; less than 0 since it was."""
        with self._lock:
            self._hold()
            try:
                now, place, rate, booked = self._moved()
                self._keep(now, place, rate, booked)
            finally:
                self._release()
        return _seconds(start - place, rate)

    def _moved(self) -> tuple[float, float, float, float]:
        """The time, where the line is by now, how fast it goes from now on, and the end of what is booked."""
        place, since, before, booked = _LINE.unpack_from(self._shared.memory, self._at)
        now = self._clock()
        if not math.isinf(before):
            place += before * max(0.0, now - since)
        return now, place, self._rate(now), booked

    def _keep(self, now: float, place: float, rate: float, booked: float) -> None:
        _LINE.pack_into(self._shared.memory, self._at, place, now, rate, booked)

    def _hold(self) -> None:
        # The file lock is between processes, the other between this one's threads.
        fcntl.lockf(self._shared.fd, fcntl.LOCK_EX, LINE_BYTES, self._at)

    def _release(self) -> None:
        fcntl.lockf(self._shared.fd, fcntl.LOCK_UN, LINE_BYTES, self._at)


def _seconds(way: float, rate: float) -> float:
    """For so many bytes of a line; LOOK where it stands still, so that its taker looks again."""
    if math.isinf(rate):
        return 0.0
    return way / rate if rate > 0 else LOOK
