"""How often the holder of a lock shows that it lives, and how long a silence means that it does not.

A heartbeat is the touch of a file on the target. For the dataset's lock and whatever else shows that its
process lives; this module only has the times, waits, and a thread that calls: it touches nothing.

An environment variable for tests scales all these times: `PENSTOCK_TEST_HEARTBEAT`, seconds
(CONTRIBUTING.md).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TESTED = "PENSTOCK_TEST_HEARTBEAT"
"""For tests only: seconds of `HEARTBEAT` in the environment; what follows from it shrinks with it."""


def _heartbeat() -> float:
    text = os.environ.get(TESTED, "10")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.01 <= seconds <= 60:
        raise ConfigError(
            f"{TESTED} is not a number of seconds", where=text, hint="it is for tests: unset it"
        )
    return seconds


HEARTBEAT = _heartbeat()
"""Seconds between two touches of the lock file: 10, but in tests."""
PATIENCE = 12 * HEARTBEAT
"""Seconds that a heartbeat must be seen unchanged: 120."""
SHORT = 3 * HEARTBEAT
"""As PATIENCE, where the scheduler names the holder's job as ended: 30."""


@contextlib.contextmanager
def beating(beat: Callable[[], None], name: str) -> Iterator[None]:
    """Call `beat`, which raises nothing, once in a HEARTBEAT while the block runs, by a thread of its own."""
    ends = threading.Event()

    def run() -> None:
        while not ends.wait(HEARTBEAT):
            beat()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def stands_still(
    patience: float,
    heartbeat: float,
    pause: Callable[[float], None],
    moved: Callable[[], bool],
) -> bool:
    """Whether `moved`, called twice a heartbeat or more, stays false for `patience` seconds of this process's
    own clock. Returns False as soon as `moved` is true. `pause(seconds)` waits between two calls, and may
    raise to give up.

    A call of `moved` that takes longer than a heartbeat begins the wait anew: servers that are away (BeeGFS
    waits 600 s for them) keep the heartbeat back that is watched, too.
    """
    still = 0.0
    while still < patience:
        began = time.monotonic()
        pause(min(heartbeat / 2, patience / 4, patience - still))
        asked = time.monotonic()
        if moved():
            return False
        answered = time.monotonic()
        still = still + answered - began if answered - asked <= heartbeat else 0.0
    return True
