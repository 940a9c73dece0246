"""A line of `audits/<id>/skipped.jsonl`: a file that an audit did not open, since its data is not here
(in an archive, or on a lower tier). Pure; audits write and read the lines."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from typing import NamedTuple

from penstock.core.documents import typed_json


class SkippedFile(NamedTuple):
    """A file; or, of a giant, all parts that were skipped for one reason."""

    kind: str
    """`offline` or `tiered`."""
    path: str
    """A path that is not UTF-8 keeps its bytes as \\udcXX escapes, which JSON carries."""
    bytes: int
    why: str


def from_json(line: bytes) -> SkippedFile:
    """The file in a line of `skipped.jsonl`. Raises ValueError for what is no such line."""
    return typed_json.read(SkippedFile, typed_json.loads(line))
