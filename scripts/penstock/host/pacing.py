"""The one limiter: bytes and requests of the source, and metadata operations of the target, at a rate that
may change at any moment.

For the workers of an element, and for commands that make many metadata operations. Touches nothing but the
memory that workers share (`shared_memory`); it lets callers wait.

The rate of bytes is `engine.limit`, or what the element's share of a network link allows. The process that
started the workers has one thread for that share, which writes its `Allowance` into the shared memory
whenever it changes. So workers stop using what was given back, also while another thread of that process
hangs in a call to a file system. An allowance holds until its moment `until`: a worker that sees no later one
stops reading then, also where that thread itself hangs.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import time
from struct import Struct
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.host.shared_memory import STORE_BYTES, STORES_AT, SharedMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BURST = 0.05
"""Seconds' worth that may be taken at once after a pause; what would come in beyond that is lost. So nothing
is made up for after the machine has let all takers wait."""
LOOK = 0.2
"""Seconds after which a taker that waits looks whether the pace has changed."""
SHORTEST = 0.0005
"""Seconds between two tries at least."""
BYTES, REQUESTS, OPERATIONS = 0, 1, 2
"""The stores: what is counted."""
PATIENT = 10.0
"""Seconds after which a taker that waits goes before those that came later: servers close a connection that
nobody reads from for a minute."""
_STORE = Struct("=4d")


class Allowance(NamedTuple):
    """What an element may read from its source now."""

    rate: float
    """Bytes a second from the source; 0: nothing, infinite: no cap."""
    requests: float
    """Requests a second to the source; likewise."""
    until: float
    """By `clock`."""
    most: float = math.inf
    """Bytes a second that it could be, if all others ended."""


class Allowances(Protocol):
    """An element's share of a network link, as its engine sees it: `jobs.bandwidth.share.LinkShare`, which
    stands above the engine and so cannot be named here."""

    def __call__(self) -> Allowance:
        """What the element may do now. Raises FailedError where there will be no share any more."""

    def hand_to(self, write: Callable[[Allowance], None] | None) -> None:
        """Call `write` with what the element may do, at once and each time that it changes, from any thread.
        None: no more; on return no call is under way."""


def clock() -> float:
    """Seconds of this machine, the same for all its processes, going on while it sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def allowed_rate(
    shared_memory: SharedMemory, store: int, limit: int | None = None, now: Callable[[], float] = clock
) -> Callable[[], float]:
    """The rate of bytes or requests by the element's share of a network link; `limit` where that is lower."""
    most = math.inf if limit is None else limit

    def rate() -> float:
        of_bytes, of_requests, until = shared_memory.allowance
        return min(most, of_requests if store == REQUESTS else of_bytes) if now() <= until else 0.0

    return rate


class Pace:
    """One of the stores, for all workers of an element.

    A store is filled at the rate, up to BURST seconds' worth. Whoever finds it not below nothing takes all
    that it wants, and the store may go below; the others wait until it is filled again, and are not in
    order. Whoever has waited for PATIENT seconds says so in the store: those that came later leave what is
    there to it, as long as it says so every LOOK seconds. A new rate holds for all that wait. Over any window
    of time what is taken is at most the rate times the window, BURST seconds' worth, and one taking, also
    when the machine lets takers wait.

    The obvious way, a line in which each taker books its turn and waits for it, fails where many takers come
    late, as on a machine with too much to do: they all go at once. With 40 MB/s among four engines and a load
    of 17 on two CPUs that was up to 28 % too much in a second.
    """

    def __init__(
        self,
        shared_memory: SharedMemory,
        store: int,
        rate: Callable[[], float],
        wait: Callable[[float], object],
        now: Callable[[], float] = clock,
    ) -> None:
        """`rate`: a second, of now: 0: nothing, infinite: no bound; it is called by a thread at a time.
        `wait`: true when the engine stops."""
        self._shared_memory, self._rate, self._wait, self._clock = shared_memory, rate, wait, now
        self._lock, self._at = Lock(), STORES_AT + store * STORE_BYTES

    def take(self, count: int) -> None:
        """Return when `count` more may be read, or the engine stops."""
        since = self._clock()
        while (left := self._taken(count, since)) > 0:
            if self._wait(min(left, LOOK)):
                return

    def ready(self) -> None:
        """Return when anything may be read at all, or the engine stops: a connection that is opened earlier
        would be closed by a server that waits for its reader."""
        while self._rate() <= 0 and not self._wait(LOOK):
            pass

    def _taken(self, count: int, came: float) -> float:
        """0 when it was taken, else seconds after which to try again. `came`: since when it is waited for."""
        with self._lock:
            rate = self._rate()
            if math.isinf(rate):
                return 0.0
            self._hold()
            try:
                there, since, first, said = _STORE.unpack_from(self._shared_memory.memory, self._at)
                now = self._clock()
                there = min(BURST * rate, there + rate * max(0.0, now - since))
                # A worker that died while it waited says nothing any more.
                others = 0.0 < first < came and now - said <= 2 * LOOK
                free = rate > 0 and there >= 0 and not others
                if free and first == came:
                    first, said = 0.0, -math.inf
                elif not free and not others and now - came >= PATIENT:
                    first, said = came, now
                left = there - count if free else there
                _STORE.pack_into(self._shared_memory.memory, self._at, left, now, first, said)
            finally:
                self._release()
        if free:
            return 0.0
        # Not all at the same moment: by the digits of the clock.
        if others:
            return LOOK
        return max(SHORTEST, -there / rate if rate > 0 else LOOK) + BURST / 2 * (now * 1e4 % 1)

    def _hold(self) -> None:
        # The file lock is between processes, the other between this one's threads.
        fcntl.lockf(self._shared_memory.fd, fcntl.LOCK_EX, STORE_BYTES, self._at)

    def _release(self) -> None:
        fcntl.lockf(self._shared_memory.fd, fcntl.LOCK_UN, STORE_BYTES, self._at)


@contextlib.contextmanager
def spending(rate: Callable[[], float], wait: Callable[[float], object]) -> Iterator[Callable[[int], None]]:
    """A function that waits until the threads of this process may make n more metadata operations. `rate`:
    operations a second, of all threads together; `wait` as of `Pace`. Good within the context."""
    shared_memory = SharedMemory()
    try:
        yield Pace(shared_memory, OPERATIONS, rate, wait).take
    finally:
        shared_memory.close()
