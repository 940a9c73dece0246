"""How often a lock's holder shows that it is still running, and after what time without a sign it counts as
dead. A heartbeat is the touch of a file on the target.

The environment variable `PENSTOCK_TEST_HEARTBEAT`, seconds, scales all these times in tests
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

TESTED = "PENSTOCK_TEST_HEARTBEAT"  # environment variable with the seconds of `HEARTBEAT`, only for tests


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


HEARTBEAT = _heartbeat()  # seconds between two touches of the lock file: 10, except in tests
PATIENCE = 12 * HEARTBEAT  # seconds without a heartbeat after which the holder counts as dead: 120
SHORT = 3 * HEARTBEAT  # PATIENCE if the scheduler reports that the holder's job has ended: 30


@contextlib.contextmanager
def beating(beat: Callable[[], None], name: str) -> Iterator[None]:
    """Call `beat`, which must not raise, every HEARTBEAT in a separate thread while the block runs."""
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
    """Return whether `moved` stays false for `patience` seconds of this process's clock. `moved` is called at
    least twice in a heartbeat. `pause(seconds)` waits between two calls, and may raise to give up. A call of
    `moved` that takes longer than a heartbeat restarts the wait. Unresponsive servers (BeeGFS waits 600 s for
    them) delay the watched heartbeat, too."""
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
