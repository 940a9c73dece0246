"""`cancelled.json` in a dataset's state: its last cancel."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from dataclasses import dataclass

from penstock.core.documents import typed_json

FORMAT = 1
"""Marks without a number are of format 1, too."""


@dataclass(frozen=True)
class Cancellation:
    """Who cancelled what was under way."""

    nonce: str = ""
    """Tells one cancel from another; "" where there was none."""
    at: float = 0.0
    """Seconds since the epoch."""
    user: str = "?"
    host: str = "?"


def to_json(mark: Cancellation) -> dict[str, object]:
    return typed_json.to_json(mark, FORMAT)


def from_json(content: bytes, where: object) -> Cancellation:
    """Of the file's bytes, `where` is its path. Raises NewerFormatError, and ValueError for any
    other content."""
    return typed_json.parse(Cancellation, content, "a dataset's mark of a cancel", FORMAT, where)
