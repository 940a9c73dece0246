"""What the removal of folders gives back, said before: by user, group and project (`disk_use`)."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from penstock.filesystem.errno_map import storage_error
from penstock.filesystem.safe_open import OPEN_FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


class Freed(NamedTuple):
    """What comes back."""

    bytes: int
    inodes: int
    shared: int
    """Bytes of files below the folders that other names hold, and that do not come back."""
    users: Mapping[int, int]
    """Bytes by the user's number; `groups` and `projects` likewise."""
    groups: Mapping[int, int]
    projects: Mapping[int, int]
    unseen: int = 0
    """Files and folders that could not be looked at."""


def forecast(folders: Sequence[Path], check: Callable[[], None]) -> Freed:
    """What the removal of all of these folders together frees. `check` is called now and then, and may raise.
    Raises by `errno_map.storage_error` where one of them cannot be opened."""
    from penstock.retention.disk_use import Use  # Arrow: not where nothing is removed

    with Use(projects=True) as use:
        area = use.area()
        for folder in folders:
            try:
                fd = os.open(folder, OPEN_FOLDER)
            except FileNotFoundError:
                continue  # another removal was faster
            except OSError as error:
                raise storage_error(error, "what a removal frees cannot be counted", str(folder)) from None
            use.add_tree(area, fd, lambda _: check())
        shared = use.ended().outside[1]
    by: tuple[Counter[int], ...] = (Counter(), Counter(), Counter())
    for owner, size in area.bytes.items():
        for sums, number in zip(by, owner, strict=True):
            sums[number] += size
    users, groups, projects = by
    projects.pop(0, None)
    inodes = area.files.total() + area.folders.total()
    return Freed(area.bytes.total(), inodes, shared, users, groups, projects, area.unreadable)
