"""`repairs/<release>/fetched/<index>.json`: what an element of a repair did for each file of its shard."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.documents import typed_json

FORMAT = 1


class FetchedFile(NamedTuple):
    """One damaged file. A path that is not UTF-8 keeps its bytes as \\udcXX escapes."""

    path: str
    why: str = ""
    """Why the release cannot get it back; "" where it can."""
    how: str = ""
    """The weakest way in which the caches were passed when it was read back."""
    inode: int = 0
    """Of the file in the repair's staging, which read back as published; 0 where there is none."""


class FetchedFiles(NamedTuple):
    """Those of a shard, in its order. A file without `why` and `inode` was right in the release already."""

    files: Sequence[FetchedFile] = ()
    bytes: int = 0
    """That came from the sources."""


def to_json(fetched: FetchedFiles) -> dict[str, object]:
    return typed_json.to_json(fetched, FORMAT)


def from_json(content: bytes, where: object) -> FetchedFiles:
    """Of the file's bytes, `where` is its path. Raises NewerFormatError, and ValueError for any other
    content."""
    return typed_json.parse(FetchedFiles, content, "what a repair fetched", FORMAT, where)
