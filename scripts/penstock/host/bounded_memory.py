"""Reads a library's file with bounded memory, whatever the file says of itself.

A Parquet file of 50 KB can hold a dictionary, or a shared beginning of names, whose rows take terabytes once
they are decoded, and neither its footer nor its pages say so. So while such a file is read, this process may
take `MOST` bytes more of memory than it had (RLIMIT_DATA, which since Linux 4.7 counts what malloc maps): the
allocation that would go beyond fails, and Arrow raises MemoryError. Bytes are taken by the C library's malloc
then, since mimalloc reserves a gibibyte ahead.

Limits: threads that allocate meanwhile share the bound; where /proc or the limit is missing, there is none.

For `tables`, which reads Parquet that another account may have written. Changes this process's RLIMIT_DATA
and Arrow's allocator while it reads, and sets both back.
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

MOST = 192 << 20
"""Bytes of one batch with what decoding it takes: 65,536 rows whose names have a kilobyte take half of it."""
_held = threading.RLock()
_DATA = 5
"""The field of /proc/self/statm: pages of data."""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Inside, an allocation beyond `MOST` bytes raises MemoryError. One thread at a time; others wait."""
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
    """These items in their order, each made inside `bounded`; ends at the first that is None."""
    while True:
        with bounded():
            item = next(items, None)
        if item is None:
            return
        yield item


def _data() -> int:
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[_DATA]) * resource.getpagesize()
