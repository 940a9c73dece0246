"""`runs/<run>/taken.json`: another run was planned with this run's staging, and may hold files of it."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from typing import NamedTuple

from penstock.core.documents import typed_json

FORMAT = 1


class TakenMark(NamedTuple):
    """Who took it, and what it is called."""

    by: str
    """The other run."""
    staging: str
    """Name of the staging below `releases/`; "": as the run itself named it."""


def to_json(mark: TakenMark) -> dict[str, object]:
    return typed_json.to_json(mark, FORMAT)


def from_json(content: bytes, where: object) -> TakenMark:
    """Of the file's bytes, `where` is its path. Raises NewerFormatError, and ValueError for any
    other content."""
    return typed_json.parse(TakenMark, content, "the mark of a staging that was taken over", FORMAT, where)
