"""A whole object read once, as lists and checksum files are. Sends requests to its source, writes nothing."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.model import Entry
    from penstock.sources.port import Body, Source


@contextmanager
def reading(source: Source, entry: Entry) -> Iterator[Body]:
    """The body of the listed object, by a reader of its own: closed at the end, dropped after an error.
    Raises as `Body.readinto` and `Body.close`."""
    reader = source.reader()
    try:
        body = reader.open(entry, 0, entry.size)
        try:
            yield body
        except BaseException:
            body.abandon()
            raise
        body.close()
    finally:
        reader.close()
