"""The mark of a run whose staging is a tree that penstock did not write (`core.documents.marks`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.core.documents import marks
from penstock.dataset import documents

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.documents.marks import AdoptedTree
    from penstock.core.layout import RunLayout


def read(run: RunLayout) -> AdoptedTree | None:
    """None where the run adopts nothing. Raises FailedError when the mark is damaged, NewerFormatError."""
    return documents.find(marks.ADOPTED_TREE, run.adopted)


def write(run: RunLayout, tree: AdoptedTree) -> None:
    """Durable on return."""
    documents.write(marks.ADOPTED_TREE, run.adopted, tree)


def stands_in(tree: AdoptedTree, data: Path) -> bool:
    """Whether this folder is the adopted tree."""
    try:
        return os.lstat(data).st_ino == tree.inode
    except FileNotFoundError:
        return False
