"""What `penstock du` prints with `--json`, a line a dataset (docs/releases.md). Bytes are allocated ones
(`st_blocks`), files are inodes that are no folders; each inode is counted once in each sum. Pure;
`look.dataset_use` fills it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.core.documents.catalogue_rows import PinnedBy


class OwnedUse(TypedDict):
    """What counts against the quotas of one user and one group."""

    uid: int
    user: str
    gid: int
    group: str
    files: int
    """Folders are counted, too: quotas count them."""
    bytes: int


class AreaUse(TypedDict):
    """A release, or another part of the dataset's folder."""

    kind: str
    """`release`, `state`, `other`, or that of a hidden folder (`catalogue_rows.StagingRow`)."""
    name: str
    state: str
    """Of a release `current` or ""; of a hidden folder as in `StagingRow`."""
    files: int
    folders: int
    bytes: int
    """Of all that lies in it, what it shares with others included."""
    unique_files: int
    unique_bytes: int
    """What a removal of it alone would free."""
    frees: Sequence[OwnedUse]
    """The same by user and group; folders included."""
    project: int | None
    """The id of its project quota, 0 for none; null where it cannot be read."""
    pool: str
    """The storage pool; "" where it is not known."""
    unreadable: int
    """Folders and files that this account could not look at: the figures are without them."""


class DiskUse(TypedDict):
    """One dataset."""

    dataset: str
    path: str
    problem: str
    areas: Sequence[AreaUse]
    shared_files: int
    shared_bytes: int
    """In several areas, by hard links: counted once."""
    outside_files: int
    outside_bytes: int
    """Files that have names outside of the dataset, too: no removal here frees them."""
    files: int
    folders: int
    bytes: int
    """All, each inode once."""
    owners: Sequence[OwnedUse]
    """All by user and group, each inode once; folders included."""
    last_pins: Mapping[str, PinnedBy]
    """By release."""
    seconds: float
