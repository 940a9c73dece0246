"""`adoptions/<id>/adoption.json`: which tree is compared with which listing of a dataset's source. Pure;
`penstock adopt` writes it when a comparison begins, and reads it to go on."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from collections.abc import Mapping
from typing import NamedTuple

from penstock.core.documents.typed_json import Document, FileNumber
from penstock.core.layout import DatasetLayout, RunLayout


class Adoption(NamedTuple):
    """One tree beside one listing."""

    id: str
    """16 hex digits of a hash: of the tree, the listing and what decides how rows are cut."""
    dataset: str
    tree: str
    """The absolute path of its top folder, without links."""
    device: FileNumber
    inode: FileNumber
    """Of that folder."""
    created: str
    """UTC, ISO 8601."""
    listing: str
    """`sha256:<hex>` of the listing."""
    files: int
    bytes: int
    """Of the listing."""
    scanned: int
    ignored: Mapping[str, int]
    """What the listing left out by policy: as of `RunInfo`."""
    read_source: bool
    """Whether the source is read where it states no checksum."""
    filesystem: str
    """As `target.filesystem`."""
    recall: int
    """Bytes of tiered files of the tree that may be fetched back to be read, of all elements together."""

    def layout(self, layout: DatasetLayout) -> RunLayout:
        """The paths of the comparison's state, which has the shape of a run's."""
        return RunLayout(layout.adoptions / self.id)


ADOPTION = Document(Adoption, "a comparison's description")
