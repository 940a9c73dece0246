"""Messages about a long wait: what a step waits for, how long by now, and how long a server asks for."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Self, TypeVar

from penstock.host import waits
from penstock.sources.backoff import pauses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")

# Seconds between checks. The first message comes once a wait is older than half of this: within a minute.
WORD = 25.0


class Waiting:
    """`with Waiting(say, "s3://bucket/"):` calls `say` from a thread once the block lasts longer than WORD
    seconds. With `each`, only the wait for the next item counts. A signal ends the wait (`host.waits`)."""

    def __init__(self, say: Callable[[str], None], what: str) -> None:
        self._say, self._what = say, what
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="waiting", daemon=True)
        self._since: float | None = None
        self._left = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._left.enter_context(waits.interruptible())
        self._since = time.monotonic()
        self._left.callback(self._end)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.close()

    def _end(self) -> None:
        self._ended.set()
        self._thread.join()

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the same items."""
        for item in items:
            self._since = None
            with waits.whole():
                yield item
            self._since = time.monotonic()

    def _watch(self) -> None:
        while not self._ended.wait(WORD):
            since = self._since
            if since is None:
                continue
            lasts = time.monotonic() - max(since, pauses.answered)
            if words := pauses.words():
                self._say(f"waiting for {self._what}: {words}")
            elif lasts >= max(WORD / 2, 1.0):
                self._say(f"waiting for {self._what}: no answer for {lasts:.0f} s")
