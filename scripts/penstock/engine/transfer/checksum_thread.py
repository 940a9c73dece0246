"""A second thread that computes slow checksums of the same blocks that the stream reads and writes.

MD5 does some 0.8 GB a second and the SHAs some 2, on a core that would else read, hash and write: hashlib
lets other threads run meanwhile, so one stream uses two cores where there are two.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future


class Beside:
    """Calls `update` with each block given, in order. `room` returns when fewer than `blocks` of them
    wait or are being worked on: so of as many buffers used in turn the next is free to be filled."""

    def __init__(self, update: Callable[[memoryview], None], blocks: int) -> None:
        self._update, self._blocks = update, blocks
        self._given: deque[Future[None]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sums")

    def room(self) -> None:
        """To be called before a buffer is filled for `give`. Raises what `update` raised."""
        while len(self._given) >= self._blocks:
            self._given.popleft().result()

    def give(self, block: memoryview) -> None:
        """The block must stay as it is until its turn among the buffers comes again."""
        self._given.append(self._thread.submit(self._update, block))

    def end(self) -> None:
        """All blocks given are done, and the thread is gone. Raises what `update` raised."""
        self._thread.shutdown()
        for one in self._given:
            one.result()
