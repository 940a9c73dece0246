"""`rollback.json`: where `current` is about to be led, until the history says that it was."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from typing import Annotated, NamedTuple

from penstock.core.documents import typed_json

FORMAT = 1


class RollbackIntent(NamedTuple):
    """The line that the history will get, once `current` names `release`."""

    release: str
    left: Annotated[str, "from"]
    """The release that `current` named when it was written."""
    nonce: str
    """The history's line has it, too: of two rollbacks in one second each has a line."""
    at: str
    """UTC, ISO 8601."""
    by: str
    uid: int | None
    host: str
    claim: int
    """The number of the claim that stood."""


def to_json(intent: RollbackIntent) -> dict[str, object]:
    told = typed_json.to_json(intent, FORMAT)
    told["from"] = told.pop("left")
    return told


def from_json(content: bytes, where: object) -> RollbackIntent:
    """Of the file's bytes, `where` is its path. Raises NewerFormatError, and ValueError for any other
    content."""
    return typed_json.parse(RollbackIntent, content, "the intent of a rollback", FORMAT, where)
