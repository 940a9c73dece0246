"""Reads one file from front to end by several threads: they read pieces at the same time, past the caches of
this machine, and the pieces are handed over in order.

`reading.rereader` uses it for hashes over all bytes of a giant (an object copied in parts over several
shards), which need the bytes in order. It reads the file and writes nothing; its threads end before it
returns.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from penstock.fs.cold_read import ColdReader

PIECE = 4 << 20
"""Bytes that a thread reads at a time."""
READERS = 4
"""Threads that read one file."""


def read_in_order(
    reader: Callable[[], ColdReader], path: str, size: int, consume: Callable[[memoryview], None]
) -> None:
    """Call `consume` with every byte of the file of `size` bytes, once, in order, in this thread. At most
    READERS + 1 pieces are in memory. `reader` makes a reader for one thread. Raises what reading or `consume`
    raises."""
    own = threading.local()
    opened: list[ColdReader] = []

    def read(offset: int) -> bytearray:
        if not hasattr(own, "reader"):
            own.reader = reader()
            opened.append(own.reader)
        piece = bytearray()
        own.reader.read(path, offset, min(PIECE, size - offset), piece.extend)
        return piece

    offsets = iter(range(0, size, PIECE))
    under_way: deque[Future[bytearray]] = deque()
    pool = ThreadPoolExecutor(READERS)
    try:
        for offset in offsets:
            under_way.append(pool.submit(read, offset))
            if len(under_way) > READERS:
                consume(memoryview(under_way.popleft().result()))
        while under_way:
            consume(memoryview(under_way.popleft().result()))
    finally:
        pool.shutdown(cancel_futures=True)
        for one in opened:
            one.close()
