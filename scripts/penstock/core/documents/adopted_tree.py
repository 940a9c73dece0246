"""`runs/<run>/adopted.json`: the run's staging is, or is to become, a tree that penstock did not write.

It is written before anything of the tree is changed. Where the tree stands is seen by the inode of its top
folder: a run that was killed goes on from that.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from typing import NamedTuple

from penstock.core.documents import typed_json

FORMAT = 1


class AdoptedTree(NamedTuple):
    run: str
    adoption: str
    """The comparison's id."""
    folder: str
    """Of that comparison's state."""
    tree: str
    """Where the tree stood, without links."""
    device: int
    inode: int
    """Of its top folder."""
    aside: str
    """Where what the release will not hold is moved to."""
    at: str
    """UTC, ISO 8601."""
    settled: bool = False
    """Every file that is taken over is recorded in the journals: no more is to be done than a copy does."""

    @property
    def key(self) -> str:
        """What rows that are taken over name as their staging."""
        return f"adopted-{self.adoption}"


def to_json(tree: AdoptedTree) -> dict[str, object]:
    return typed_json.to_json(tree, FORMAT)


def from_json(content: bytes, where: object) -> AdoptedTree:
    """Of the file's bytes, `where` is its path. Raises NewerFormatError, and ValueError for any other
    content."""
    return typed_json.parse(AdoptedTree, content, "the mark of an adopted tree", FORMAT, where)
