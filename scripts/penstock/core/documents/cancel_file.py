"""`cancelled.json` in a dataset's state: the last `penstock cancel`."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from typing import NamedTuple

from penstock.core.documents import typed_json

FORMAT = 1


class Cancellation(NamedTuple):
    """One `penstock cancel`: who ended the dataset's arrays, and when."""

    nonce: str = ""
    """Tells one cancel from another; "" where there was none."""
    at: float = 0.0
    """Seconds since the epoch."""
    user: str = "?"
    host: str = "?"


def to_json(mark: Cancellation) -> dict[str, object]:
    return typed_json.to_json(mark, FORMAT)


def from_json(content: bytes, where: object) -> Cancellation:
    """Read the file's bytes; `where` is its path, for messages. Raises NewerFormatError, and ValueError for
    any other content."""
    return typed_json.parse(Cancellation, content, "a dataset's mark of a cancel", FORMAT, where)
