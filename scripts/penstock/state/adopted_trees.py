"""The mark of a run whose staging is a tree that penstock did not write (`core.documents.marks`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.core.documents import marks
from penstock.errors import STATE_ANEW, FailedError
from penstock.filesystem import plain_files
from penstock.filesystem.errno_map import storage_error
from penstock.storage import durable

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.documents.marks import AdoptedTree
    from penstock.core.layout import RunLayout


def read(run: RunLayout) -> AdoptedTree | None:
    """None where the run adopts nothing. Raises FailedError when the mark is damaged, NewerFormatError."""
    try:
        return marks.ADOPTED_TREE.from_json(plain_files.read(run.adopted), run.adopted)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FailedError(
            "the mark of an adopted tree cannot be read",
            where=str(run.adopted),
            why=str(error),
            hint=STATE_ANEW,
        ) from error


def write(run: RunLayout, tree: AdoptedTree) -> None:
    """Durable on return."""
    try:
        durable.write_json(run.adopted, marks.ADOPTED_TREE.to_json(tree))
    except OSError as error:
        raise storage_error(error, "a run cannot be marked", str(run.adopted)) from error


def stands_in(tree: AdoptedTree, data: Path) -> bool:
    """Whether this folder is the adopted tree."""
    try:
        return os.lstat(data).st_ino == tree.inode
    except FileNotFoundError:
        return False
