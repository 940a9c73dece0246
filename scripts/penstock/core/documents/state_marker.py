"""`state.json` in a dataset's state: penstock 1.0 or a later version made the state."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from typing import NamedTuple

from penstock.core.documents import typed_json

FORMAT = 1


class StateMarker(NamedTuple):
    penstock: str
    """The version that made the state."""


def from_json(content: bytes, where: object) -> StateMarker:
    """Of the file's bytes, `where` is its path. Raises NewerFormatError, and ValueError for any other
    content."""
    return typed_json.parse(StateMarker, content, "a dataset's state", FORMAT, where)


def to_json(marker: StateMarker) -> dict[str, object]:
    return typed_json.to_json(marker, FORMAT)
