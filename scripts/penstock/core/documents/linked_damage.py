"""`runs/<run>/linked-damage/NNNNN.json`: linked files of a shard had other bytes than their release states,
so all linked files of the run are read."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from typing import NamedTuple

from penstock.core.documents import typed_json

FORMAT = 1


class LinkedDamage(NamedTuple):
    """How many were found so far."""

    files: int = 0


def to_json(mark: LinkedDamage) -> dict[str, object]:
    return typed_json.to_json(mark, FORMAT)


def from_json(content: bytes, where: object) -> LinkedDamage:
    """Of the file's bytes, `where` is its path. Raises NewerFormatError, and ValueError for any other
    content."""
    return typed_json.parse(LinkedDamage, content, "the mark of damaged linked files", FORMAT, where)
