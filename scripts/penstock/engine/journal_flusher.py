"""A thread that holds journal lines back until their bytes are durable, and then appends them.

If `engine.durability` is `syncfs`, a barrier makes all bytes durable that were written before it began. Then
the lines that were held when the barrier began are appended and synced. The barrier's descriptor was opened
before the first write, so it reports every write error since. If `engine.durability` is `fsync`, bytes are
durable before their lines arrive, so the lines are only appended and synced. A flush is made every SOONEST to
LATEST seconds, and flushes take about a tenth of the time. After a failed barrier, no held line is ever
recorded, and the next attempt copies the rows of these lines again.
"""

from __future__ import annotations

import time
from threading import Condition, Thread
from typing import TYPE_CHECKING, Self

from penstock.core.errors import FailedError, NoSpaceError, PenstockError
from penstock.fs.safe_open import storage_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engine.journal import Journal
    from penstock.target.staging_folder import Barrier


SOONEST, LATEST = 0.5, 5.0  # the fewest and the most seconds between two flushes
PAUSE_FACTOR = 10.0  # the pause after a flush, in multiples of the flush's duration
# Unrecorded bytes of large files' parts at which their lines are flushed at once. After a kill, unrecorded
# parts are fetched again.
SOON = 64 << 20


def next_pause(cost: float) -> float:
    """Return the seconds until the next flush, if the last flush took `cost` seconds."""
    return min(LATEST, max(SOONEST, PAUSE_FACTOR * cost))


class Keeper:
    """Takes the lines of finished rows (`add`), and makes them durable. `close` raises the first error.

    The end of a `with` block waits for all lines added, but raises no error. The first error ends the thread,
    and no line is appended after it. It is the barrier's error (FailedError, NoSpaceError), or an error
    according to `safe_open.storage_error`.
    """

    def __init__(self, journal: Journal, barrier: Barrier | None) -> None:
        self._journal, self._barrier = journal, barrier
        self._pause = SOONEST
        self._held: list[bytes] = []
        self._then: list[Callable[[], None]] = []
        self._large = 0
        self.waiting = 0  # bytes of large files' parts that are not recorded yet
        self._ending = False
        self._error: PenstockError | None = None
        self._change = Condition()
        self._thread = Thread(target=self._run, name="keeper", daemon=True)
        self._thread.start()

    def add(self, lines: bytes, large: int = 0, then: Callable[[], None] | None = None) -> None:
        """Hold these lines until the next flush. Any thread may call it.

        `large` is the size of a large file's part, or 0 for other rows. If `then` is given, the lines are
        flushed at once, and `then` is called in the keeper's thread when they are recorded.
        """
        with self._change:
            self._held.append(lines)
            if then:
                self._then.append(then)
            self._large += large
            self.waiting += large
            if then or self._large >= SOON:
                self._change.notify()

    def check(self) -> None:
        """Raise the error that stopped the flushes, if any."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Flush now, and end the thread. Raises the error that kept a line from being recorded, if any."""
        with self._change:
            self._ending = True
            self._change.notify()
        self._thread.join()
        self.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not self._ending:
            with self._change:
                self._ending = True
                self._change.notify()
            self._thread.join()

    def _run(self) -> None:
        ending = False
        while not ending and self._error is None:
            with self._change:
                self._change.wait_for(lambda: self._ending or self._then or self._large >= SOON, self._pause)
                ending = self._ending
                lines, self._held = self._held, []
                recorded, self._then = self._then, []
                large, self._large = self._large, 0
            if lines:
                began = time.monotonic()
                try:
                    self._keep(b"".join(lines))
                except (FailedError, NoSpaceError) as error:
                    self._error = error
                except OSError as error:
                    self._error = storage_error(error, "cannot write the journal", str(self._journal.path))

                self._pause = next_pause(time.monotonic() - began)
                with self._change:
                    self.waiting -= large
                for then in recorded if self._error is None else ():
                    then()

    def _keep(self, lines: bytes) -> None:
        if self._barrier is not None:
            self._barrier.wait()
        self._journal.append(lines)
        self._journal.sync()
