"""The mark of a run that adopts a tree: its staging is a tree that penstock did not write. `penstock
adopt --seal` writes the mark. Plan, copy and whatever removes stagings obey it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.core import dataset_documents
from penstock.dataset import documents

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.dataset_documents import AdoptedTree
    from penstock.core.layout import RunLayout


def read(run: RunLayout) -> AdoptedTree | None:
    """Return the run's mark; None if it adopts nothing. Raises FailedError if it cannot be read,
    NewerFormatError."""
    return documents.find(dataset_documents.ADOPTED_TREE, run.adopted)


def write(run: RunLayout, tree: AdoptedTree) -> None:
    """Write the mark, durably. Raises as `documents.write`."""
    documents.write(dataset_documents.ADOPTED_TREE, run.adopted, tree)


def stands_in(tree: AdoptedTree, data: Path) -> bool:
    """Check by inode that this folder is the adopted tree; False if it is missing. Raises OSError."""
    try:
        return os.lstat(data).st_ino == tree.inode
    except FileNotFoundError:
        return False
