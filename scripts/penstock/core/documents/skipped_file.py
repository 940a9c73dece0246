"""A line of `audits/<id>/skipped.jsonl`: a file not opened, as its data is in an archive or a lower tier."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from typing import NamedTuple

from penstock.core.documents import typed_json


class SkippedFile(NamedTuple):
    """A file; of a giant all parts that were skipped for one reason."""

    kind: str  # `offline` or `tiered`
    path: str  # bytes that are not UTF-8 stay as \udcXX escapes, which JSON carries
    bytes: int
    why: str


def from_json(line: bytes) -> SkippedFile:
    """Parse a line of `skipped.jsonl`. Raises ValueError."""
    return typed_json.read(SkippedFile, typed_json.loads(line))
