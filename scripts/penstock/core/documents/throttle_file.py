"""`throttle.json` in a run's folder: how many of its elements may run at once, as a person said last."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from typing import NamedTuple

from penstock.core.documents import typed_json

FORMAT = 1


class Throttle(NamedTuple):
    """One `penstock limit DATASET --nodes N`."""

    at_once: int = 0
    """Elements of a step; 0: as `cluster.max_elements` has it."""
    at: float = 0.0
    """Seconds since the epoch."""
    user: str = "?"
    host: str = "?"


def to_json(mark: Throttle) -> dict[str, object]:
    return typed_json.to_json(mark, FORMAT)


def from_json(content: bytes, where: object) -> Throttle:
    """Read the file's bytes; `where` is its path, for messages. Raises NewerFormatError, and ValueError for
    any other content."""
    return typed_json.parse(Throttle, content, "a run's throttle", FORMAT, where)
