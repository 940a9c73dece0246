"""Lets a library read a file with bounded memory, whatever the file states about itself.

A Parquet file of 50 KB can decode to terabytes, with a dictionary or a shared beginning of names. Neither its
footer nor its pages show this. So during the reading, this process may take only `MOST` more bytes. Larger
allocations fail, and Arrow raises MemoryError. The limit is RLIMIT_DATA, which counts the maps of malloc
since Linux 4.7. Arrow uses the C library's malloc meanwhile, since mimalloc reserves a gibibyte ahead.

Limits: other threads' allocations share the bound. Without /proc or RLIMIT_DATA memory is not bounded.
"""

from __future__ import annotations

import contextlib
import resource
import threading
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

MOST = 192 << 20  # bytes for decoding a batch: 65,536 rows with names of a kilobyte take half of them
_held = threading.RLock()
_DATA = 5  # field of /proc/self/statm: pages of data


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Let allocations beyond `MOST` raise MemoryError inside the block. For one thread at a time."""
    with _held:
        limits = resource.getrlimit(resource.RLIMIT_DATA)
        pool = pa.default_memory_pool()
        try:
            most = _data() + MOST
            pa.set_memory_pool(pa.system_memory_pool())
            if limits[0] == resource.RLIM_INFINITY or limits[0] > most:
                resource.setrlimit(resource.RLIMIT_DATA, (most, limits[1]))
        except OSError:
            pass
        try:
            yield
        finally:
            pa.set_memory_pool(pool)
            resource.setrlimit(resource.RLIMIT_DATA, limits)


def each(items: Iterator[T]) -> Iterator[T]:
    """Yield the items up to the first None. Each item is made inside `bounded`."""
    while True:
        with bounded():
            item = next(items, None)
        if item is None:
            return
        yield item


def _data() -> int:
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[_DATA]) * resource.getpagesize()
