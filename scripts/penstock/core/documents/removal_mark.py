"""`releases/.removing-<release>`: a release is about to be removed, and no reader pins it any more."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from typing import NamedTuple

from penstock.core.documents import typed_json

FORMAT = 1


class RemovalMark(NamedTuple):
    """The line that the history will get, once the release has lost its name."""

    release: str
    nonce: str
    """In the name that the release's folder gets: `.removed-<release>-<nonce>`."""
    at: str
    """UTC, ISO 8601."""
    by: str
    uid: int | None
    host: str
    run: str
    """The run that published it: its state goes, too. "" where there is no seal."""
    why: str
    files: int
    """As the seal has it; `bytes` likewise."""
    bytes: int


def to_json(mark: RemovalMark) -> dict[str, object]:
    return typed_json.to_json(mark, FORMAT)


def from_json(content: bytes, where: object) -> RemovalMark:
    """Of the file's bytes, `where` is its path. Raises NewerFormatError, and ValueError for any other
    content."""
    return typed_json.parse(RemovalMark, content, "the mark of a removal", FORMAT, where)
