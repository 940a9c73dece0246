"""`repairs/<release>/fetched/<index>.json`: what a repair's element did for each file of its shard."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.documents.typed_json import Document, FileNumber


class FetchedFile(NamedTuple):
    """A damaged file. Bytes of a path that are not UTF-8 stay as \\udcXX escapes."""

    path: str
    why: str = ""  # why the release cannot get it back, or ""
    how: str = ""  # weakest method of bypassing the caches on reading back
    inode: FileNumber = 0  # of the file in the repair's staging, which read back as published; 0: none


class FetchedFiles(NamedTuple):
    """The files of a shard, in order. Without `why` and `inode`: the release's file was right already."""

    files: Sequence[FetchedFile] = ()
    bytes: int = 0  # from the sources


FETCHED_FILES = Document(FetchedFiles, "what a repair fetched")
