"""How an engine holds while PAUSE stands at the root (`policy.pause`).

The workers' parent looks, and says it in the memory that they share. Each stream of a worker asks its stop
flag before a row and after each block: that flag holds there, so nothing more is read or written, and what
is under way stays open. Whoever holds for long may find its connection closed by the server: a row that
fails so right after is tried once more, and that counts as no attempt.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from penstock.policy import pause

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engine.tasks import StopCheck

LOOK = 0.2
"""Seconds between two looks at the shared memory while a stream holds."""
AFTER = 60.0
"""Seconds after a hold in which a transient error may be its doing."""


class Stopping(threading.Event):
    """A worker's stop flag. `is_set` does not return while `paused()`, but at once when the flag is set."""

    def __init__(self, paused: Callable[[], bool]) -> None:
        super().__init__()
        self._paused = paused
        self._held = float("-inf")

    def is_set(self) -> bool:
        if self._paused():
            while self._paused() and not self.wait(LOOK):
                pass
            self._held = time.monotonic()
        return super().is_set()

    @property
    def lately_held(self) -> bool:
        return time.monotonic() - self._held < AFTER


def lately_held(stopping: threading.Event) -> bool:
    """Whether streams with this stop flag have just held."""
    return isinstance(stopping, Stopping) and stopping.lately_held


def rest(stop: StopCheck) -> None:
    """Return when no PAUSE stands. Raises what `stop` raises."""
    while pause.standing() is not None:
        stop()
        time.sleep(LOOK)
