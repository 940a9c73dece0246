"""`ended.json` in a dataset's state: how the last command that staged it ended, where that was no success."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from typing import NamedTuple

from penstock.core.documents import typed_json

FORMAT = 1


class LastEnd(NamedTuple):
    """A step that failed, was stopped by a signal, or was cancelled."""

    step: str = ""
    """"" where it was stopped between two steps."""
    exit: int = 1
    """By the table of exit statuses; 128 and the number of a signal."""
    why: str = ""
    """One line."""
    hint: str = ""
    """What to do, as the message said; "" where it said nothing."""
    at: float = 0.0
    """Seconds since the epoch."""
    user: str = "?"
    host: str = "?"
    stopped: bool = False
    """By a signal or `penstock cancel`, and not by an error."""


def to_json(end: LastEnd) -> dict[str, object]:
    return typed_json.to_json(end, FORMAT)


def from_json(content: bytes, where: object) -> LastEnd:
    """Read the file's bytes; `where` is its path, for messages. Raises NewerFormatError, and ValueError for
    any other content."""
    return typed_json.parse(LastEnd, content, "how a dataset's last command ended", FORMAT, where)
