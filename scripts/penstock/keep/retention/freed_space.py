"""Counts beforehand what the removal of folders frees, by user, group and project of a quota."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

from penstock.core.step_results import Frees
from penstock.fs.errno_map import storage_error
from penstock.fs.owners import group_name, user_name
from penstock.fs.safe_open import OPEN_FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


def forecast(folders: Sequence[Path], check: Callable[[], None]) -> Frees:
    """Count the bytes and inodes that removing all these folders together frees. Missing folders count as
    nothing. `check` is called now and then, and may raise. Raises by `errno_map.storage_error` if a folder
    cannot be opened."""
    from penstock.dataset.disk_use import Use  # Arrow: not where nothing is removed

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
        held_elsewhere = use.ended().outside[1]
    by: tuple[Counter[int], ...] = (Counter(), Counter(), Counter())
    for owner, size in area.bytes.items():
        for sums, number in zip(by, owner, strict=True):
            sums[number] += size
    users, groups, projects = by
    projects.pop(0, None)
    inodes = area.files.total() + area.folders.total()
    return Frees(
        area.bytes.total(),
        inodes,
        held_elsewhere,
        {user_name(uid) or str(uid): size for uid, size in sorted(users.items())},
        {group_name(gid) or str(gid): size for gid, size in sorted(groups.items())},
        {str(number): size for number, size in sorted(projects.items())},
        area.unreadable,
    )
