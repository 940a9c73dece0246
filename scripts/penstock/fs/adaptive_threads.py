"""Many calls to a file system: one after another where each takes a microsecond, by threads where they wait.

Threads cost more than a call that answers at once, and pay where each call waits for a server. `Calls` times
the first few calls and uses threads only if they wait.

For whatever looks at, changes or removes many files: walks, permissions, removal, linking. Starts threads of
this process; what is called is the caller's.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future, ThreadPoolExecutor

    Item = TypeVar("Item")
    Answer = TypeVar("Answer")

WAITS = 1e-4
"""Seconds: when the fastest of the last LOOKS calls took longer, calls wait for something."""
LOOKS = 8
"""Calls that are timed before it is decided, and that are remembered."""
THREADS = 32
"""Threads of one `Calls`: most of them wait for a server, so they may be more than CPUs."""
GROUP = 16
"""Calls that a thread makes at a time."""


class Calls:
    """Decides whether calls wait, and owns the threads that then make them. To be used by one thread, and
    closed: that waits for calls under way, and drops those that did not begin. `waits`, once True, stays."""

    def __init__(self) -> None:
        self.waits = False
        self._recent: deque[float] = deque(maxlen=LOOKS)
        self._pool: ThreadPoolExecutor | None = None

    def saw(self, seconds: float) -> None:
        """Note how long one call took. One fast call among the last few means that calls do not wait."""
        self._recent.append(seconds)
        if len(self._recent) == LOOKS and min(self._recent) > WAITS:
            self.waits = True

    def each(self, do: Callable[[Sequence[Item]], list[Answer]], items: Sequence[Item]) -> list[Answer]:
        """`do` of all items, some at a time; its answers, in the items' order. `do` may be called by several
        threads at once, and with no items. Raises what `do` raises, while other threads go on until `close`;
        and OSError where no thread can be started."""
        if self.waits:
            groups = [self.submit(do, items[at : at + GROUP]) for at in range(0, len(items), GROUP)]
            return [answer for group in groups for answer in group.result()]
        answers: list[Answer] = []
        for at in range(min(LOOKS, len(items))):
            began = perf_counter()
            answers += do(items[at : at + 1])
            self.saw(perf_counter() - began)
        rest = items[LOOKS:]
        return answers + (self.each(do, rest) if self.waits and rest else do(rest))

    def submit(self, do: Callable[..., Answer], *arguments: Any) -> Future[Answer]:
        """Have one of the threads do it, also where calls do not wait. Raises OSError where no thread can be
        started."""
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="calls")
        try:
            return self._pool.submit(do, *arguments)
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, f"{os.strerror(errno.EAGAIN)} ({error})") from None

    def close(self) -> None:
        """Wait for calls under way, drop those that did not begin, end the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
