"""Many calls to a file system: one after another where each takes a microsecond, by threads where they wait.

Threads cost more than a call that answers at once, and pay where each call waits for a server. `Calls` times
the first few calls and uses threads only if they wait.
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

WAITS = 1e-4  # seconds: calls wait if the fastest of the last LOOKS calls took longer
LOOKS = 8  # calls that are timed before the decision, and remembered
THREADS = 32  # threads of a `Calls`: most wait for a server, so there may be more than CPUs
GROUP = 16  # calls that a thread makes at a time


class Calls:
    """Decides whether calls wait, and owns the threads for them. For one thread; to be closed. Once True,
    `waits` stays True."""

    def __init__(self) -> None:
        self.waits = False
        self._recent: deque[float] = deque(maxlen=LOOKS)
        self._pool: ThreadPoolExecutor | None = None

    def saw(self, seconds: float) -> None:
        """Record a call's duration. A fast call among the last few means that calls do not wait."""
        self._recent.append(seconds)
        if len(self._recent) == LOOKS and min(self._recent) > WAITS:
            self.waits = True

    def each(self, do: Callable[[Sequence[Item]], list[Answer]], items: Sequence[Item]) -> list[Answer]:
        """Apply `do` to all items, some at a time; return its answers in order. Several threads may call `do`
        at once, also with no items. Raises what `do` raises, while other threads go on until `close`; OSError
        where no thread can be started."""
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
        """Have a thread do it, even where calls do not wait. Raises OSError where no thread can be
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
