"""What the removal of folders gives back, said before: by user, group and project.

Releases share unchanged files as hard links. A file's blocks come back when its last name goes; so of each
inode the names below the folders are counted, and its blocks count where that is all the names that it has
(`st_nlink`). Folders count always. Blocks are `st_blocks`, which quotas count, too.

A project is that of the folder that holds the name (FS_IOC_FSGETXATTR): a file whose folder hands its project
on has the same, and links between projects are refused by the file systems that have them.

Memory: some 40 bytes for each name of a file that has several (55 MB for a million of them, 15 MB of these
before the first); some hundred million of them are not meant.
"""

from __future__ import annotations

import contextlib
import os
import stat
from array import array
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from penstock.filesystem.adaptive_threads import Calls
from penstock.filesystem.errno_map import storage_error
from penstock.filesystem.kernel_quotas import project_of
from penstock.filesystem.safe_open import OPEN_FOLDER
from penstock.filesystem.tree import BELOW, BROKEN, descend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

BLOCK = 512
"""Bytes of `st_blocks`, on Linux."""
_PARTS = 64
"""Inodes are counted in so many parts, one after the other: no table of all of them is made."""

Owner = tuple[int, int, int]
"""User, group, project (0: none)."""


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
    """Folders that could not be looked into."""


class _Linked:
    """Files with several names: one entry a name."""

    def __init__(self) -> None:
        self.inodes = [array("Q") for _ in range(_PARTS)]
        self.links = [array("L") for _ in range(_PARTS)]
        self.blocks = [array("Q") for _ in range(_PARTS)]
        self.owners = [array("L") for _ in range(_PARTS)]


def forecast(folders: Sequence[Path], check: Callable[[], None]) -> Freed:
    """What the removal of all of these folders together frees. `check` is called now and then, and may raise.
    The folders are of one file system. Raises by `errno_map.storage_error` where one of them cannot be
    opened."""
    known: dict[Owner, int] = {}
    blocks: Counter[int] = Counter()
    linked = _Linked()
    counts = Counter[str]()

    def add(seen: os.stat_result, project: int) -> None:
        owner = known.setdefault((seen.st_uid, seen.st_gid, project), len(known))
        if stat.S_ISDIR(seen.st_mode) or seen.st_nlink == 1:
            blocks[owner] += seen.st_blocks
            counts["inodes"] += 1
            return
        part = seen.st_ino % _PARTS
        linked.inodes[part].append(seen.st_ino)
        linked.links[part].append(seen.st_nlink)
        linked.blocks[part].append(seen.st_blocks)
        linked.owners[part].append(owner)

    for folder in folders:
        counts["unseen"] += _walk(folder, add, check)
    shared = 0
    for part in range(_PARTS):
        here = Counter(linked.inodes[part])
        rows = zip(
            linked.inodes[part], linked.links[part], linked.blocks[part], linked.owners[part], strict=True
        )
        for inode, links, size, owner in rows:
            if inode in here:  # its first row
                if here.pop(inode) >= links:
                    blocks[owner] += size
                    counts["inodes"] += 1
                else:
                    shared += size
    by: tuple[Counter[int], ...] = (Counter(), Counter(), Counter())
    for owner_of, index in known.items():
        for which, number in zip(by, owner_of, strict=True):
            which[number] += blocks[index] * BLOCK
    users, groups, projects = by
    projects.pop(0, None)
    total = sum(blocks.values()) * BLOCK
    return Freed(total, counts["inodes"], shared * BLOCK, users, groups, projects, counts["unseen"])


def _walk(folder: Path, add: Callable[[os.stat_result, int], None], check: Callable[[], None]) -> int:
    """All that lies below, and the folder itself; returns how many folders could not be looked into."""
    unseen = 0
    try:
        root = os.open(folder, OPEN_FOLDER)
    except FileNotFoundError:
        return 0  # another removal was faster
    except OSError as refused:
        raise storage_error(refused, "what a removal frees cannot be counted", str(folder)) from None
    try:
        add(os.fstat(root), project_of(root))
    except BaseException:
        os.close(root)
        raise
    last, project = None, 0
    with Calls() as calls, contextlib.closing(descend(root, names_only=True)) as met:
        for kind, level, names, _, error in met:
            check()
            if error is not None or kind == BROKEN:
                unseen += 1
                if kind != BELOW:
                    continue
            try:
                if level is not last:
                    last, project = level, project_of(level.fd)
                for seen in calls.each(partial(_look, level.fd), list(names)):
                    if seen is not None:
                        add(seen, project)
            except OSError:
                unseen += 1
    return unseen


def _look(fd: int, names: Sequence[str]) -> list[os.stat_result | None]:
    found: list[os.stat_result | None] = []
    for name in names:
        try:
            found.append(os.stat(name, dir_fd=fd, follow_symlinks=False))
        except FileNotFoundError:
            found.append(None)
    return found
