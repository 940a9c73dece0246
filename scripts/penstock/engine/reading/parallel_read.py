"""Reads a file from front to end with several threads, past this machine's caches.

Whole-file digests of a giant (an object copied in parts over several shards) need its bytes in order.
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

PIECE = 4 << 20  # bytes that a thread reads at a time
READERS = 4  # threads that read one file


def read_in_order(
    reader: Callable[[], ColdReader], path: str, size: int, consume: Callable[[memoryview], None]
) -> None:
    """Call `consume` with every byte of the file, once, in order, in this thread.

    At most READERS + 1 pieces are in memory. `reader` makes a reader for one thread. Raises the errors of
    reading and of `consume`.
    """
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
        for piece_reader in opened:
            piece_reader.close()
