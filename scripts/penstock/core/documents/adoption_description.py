"""`adoptions/<id>/adoption.json`: the tree and the listing that `penstock adopt` compares."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from collections.abc import Mapping
from typing import NamedTuple

from penstock.core.documents.typed_json import Document, FileNumber
from penstock.core.layout import DatasetLayout, RunLayout


class Adoption(NamedTuple):
    """A tree beside a listing."""

    id: str  # 16 hex digits of a hash over the tree, the listing and all that decides how rows are cut
    dataset: str
    tree: str  # absolute path of its top folder, without links
    device: FileNumber
    inode: FileNumber  # of that folder
    created: str  # UTC, ISO 8601
    listing: str  # `sha256:<hex>` of the listing
    files: int
    bytes: int  # of the listing
    scanned: int
    ignored: Mapping[str, int]  # left out of the listing by policy: as in `RunInfo`
    read_source: bool  # the source is read where it states no checksum
    filesystem: str  # as `target.filesystem`
    recall: int  # bytes of tiered files that all elements together may fetch back to read

    def layout(self, layout: DatasetLayout) -> RunLayout:
        """Return the paths of the comparison's state, which has the shape of a run's."""
        return RunLayout(layout.adoptions / self.id)


ADOPTION = Document(Adoption, "a comparison's description")
