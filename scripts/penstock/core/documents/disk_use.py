"""What `penstock du` prints with `--json`, a line a dataset (docs/releases.md).

Bytes are allocated (`st_blocks`); files are inodes but folders. Each sum counts an inode once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.core.documents.catalogue_rows import PinnedBy


class OwnedUse(TypedDict):
    """What counts against the quotas of a user and a group."""

    uid: int
    user: str
    gid: int
    group: str
    files: int  # with folders, as in quotas
    bytes: int


class AreaUse(TypedDict):
    """A release, or another part of the dataset's folder."""

    kind: str  # `release`, `state`, `other`, or that of a hidden folder (`catalogue_rows.StagingRow`)
    name: str
    state: str  # of a release `current` or ""; of a hidden folder as in `StagingRow`
    files: int
    folders: int
    bytes: int  # with those shared with other areas
    unique_files: int  # that its removal alone would free
    unique_bytes: int  # likewise
    frees: Sequence[OwnedUse]  # the same by user and group, with folders
    project: int | None  # id of its project quota, 0: none; null: unreadable
    pool: str  # the storage pool; "": not known
    unreadable: int  # folders and files that this account could not read: not in the figures


class DiskUse(TypedDict):
    dataset: str
    path: str
    problem: str
    areas: Sequence[AreaUse]
    shared_files: int  # in several areas, by hard links: counted once
    shared_bytes: int
    outside_files: int  # with names outside of the dataset, too: no removal here frees them
    outside_bytes: int
    files: int
    folders: int
    bytes: int  # all, each inode once
    owners: Sequence[OwnedUse]  # all by user and group, each inode once, with folders
    last_pins: Mapping[str, PinnedBy]  # by release
    seconds: float
