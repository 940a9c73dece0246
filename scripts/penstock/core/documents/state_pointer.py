"""`.penstock` in a dataset's folder, as a file: the dataset's state lies elsewhere (`target.state_root`)."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from typing import NamedTuple

from penstock.core.documents import typed_json

FORMAT = 1


class StatePointer(NamedTuple):
    state_root: str
    id: str
    """That of the state's `root.json`: a state of another id was made where this one was not mounted."""


def from_json(content: bytes, where: object) -> StatePointer:
    """Raises ValueError for what is none, NewerFormatError."""
    return typed_json.parse(StatePointer, content, "where a dataset's state lies", FORMAT, where)


def to_json(pointer: StatePointer) -> dict[str, object]:
    return typed_json.to_json(pointer, FORMAT)
