"""`repairs/<release>/fetched/<index>.json`: what an element of a repair did for each file of its shard.
Pure; the element writes it, the repair reads it when all elements have ended."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.documents.typed_json import Document, FileNumber


class FetchedFile(NamedTuple):
    """One damaged file. A path that is not UTF-8 keeps its bytes as \\udcXX escapes."""

    path: str
    why: str = ""
    """Why the release cannot get it back; "" where it can."""
    how: str = ""
    """The weakest way in which the caches were passed when it was read back."""
    inode: FileNumber = 0
    """Of the file in the repair's staging, which read back as published; 0 where there is none."""


class FetchedFiles(NamedTuple):
    """Those of a shard, in its order. A file without `why` and `inode` was right in the release already."""

    files: Sequence[FetchedFile] = ()
    bytes: int = 0
    """That came from the sources."""


FETCHED_FILES = Document(FetchedFiles, "what a repair fetched")
