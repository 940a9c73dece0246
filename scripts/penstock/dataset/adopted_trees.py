"""The mark of a run that adopts a tree: the run's staging is a tree that penstock did not write.

`penstock adopt --seal` writes the mark. Plan and copy go by it, and whatever removes stagings, since the tree
is not penstock's to remove. Touches one small file of the run (`core.documents.marks`), and looks up inodes.
"""

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
    """The run's mark; None where the run adopts nothing. Raises FailedError when the mark is damaged or
    cannot be read, NewerFormatError."""
    return documents.find(marks.ADOPTED_TREE, run.adopted)


def write(run: RunLayout, tree: AdoptedTree) -> None:
    """Write the mark, durable on return. Raises as `documents.write`."""
    documents.write(marks.ADOPTED_TREE, run.adopted, tree)


def stands_in(tree: AdoptedTree, data: Path) -> bool:
    """Whether this folder is the adopted tree, by its inode; False where it is missing. Raises OSError."""
    try:
        return os.lstat(data).st_ino == tree.inode
    except FileNotFoundError:
        return False
