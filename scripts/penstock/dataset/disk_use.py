"""Measures how much room folders take, and how much their removal frees, for `penstock du` and gc.

An *area* is a set of folders that are added up together, such as one release. Releases share unchanged files
by hard links, so removing a release frees only inodes that have all their names in that release:

| an inode has                         | counts as                                      |
|--------------------------------------|------------------------------------------------|
| one name                             | unique to its area                             |
| several names, all in one area       | unique to that area                            |
| several names, in more than one area | shared, once, unless a name lies outside       |
| more names than all areas have       | outside: no removal of an area frees it        |

Sizes are `st_blocks`, as quotas count them. A file has its folder's quota project (FS_IOC_FSGETXATTR): new
files inherit it, and file systems refuse hard links between projects.

A dictionary that joins the names of 10^8 inodes would take 100 bytes per inode. So only inodes with several
names become rows of 64 bytes; beyond 524,288 rows, they spill to TMPDIR. Arrow adds the rows up in passes of
at most PASS rows, chosen by bits of the inode number. Files with one name are summed at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import Counter
from itertools import compress
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc

from penstock.fs.owners import group_name, user_name
from penstock.fs.quotas import project_of
from penstock.fs.tree import BELOW, FILE, LINK, OTHER, columns, descend, look
from penstock.fs.tree import row as row_of
from penstock.tables.row_streams import SpilledRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.core.catalogue_rows import OwnedUse
    from penstock.fs.tree import Level, Looked, Row

BLOCK = 512  # bytes of one unit of `st_blocks`
PASS = 1 << 20  # most rows added up at once: 64 MiB
# A factor that makes inode numbers, wrapped, differ in the upper half even if they share a stride.
_MIXER = pa.scalar(0x9E3779B97F4A7C15, pa.uint64())
_SCHEMA = pa.schema(
    [("device", pa.uint64()), ("inode", pa.uint64())]
    + [(name, pa.int64()) for name in ("bytes", "links", "uid", "gid", "project", "area")]
)

Owner = tuple[int, int, int]  # user, group, project (0: none)


class Area:
    """Files, folders and bytes, by owner, that only this area has; complete after `Use.ended`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.files: Counter[Owner] = Counter()
        self.bytes: Counter[Owner] = Counter()
        self.folders: Counter[Owner] = Counter()
        self.unreadable = 0  # names that could not be read
        self.all_files = self.all_bytes = 0  # including what this area shares with others

    def add(self, owner: Owner, files: int, size: int) -> None:
        """Add files with one name each, and their bytes."""
        self.files[owner] += files
        self.bytes[owner] += size
        self.all_files += files
        self.all_bytes += size

    def add_folder(self, looked: Row, project: int) -> None:
        """Add a folder itself, from `tree.row` of its lstat."""
        owner, size = (looked[6], looked[7], project), looked[9] * BLOCK
        self.folders[owner] += 1
        self.bytes[owner] += size
        self.all_bytes += size


class Use:
    """Adds up areas: call `area` and `add_tree` for each, then `ended` once. Its exit removes temporary
    files."""

    def __init__(self, *, projects: bool = False, in_memory: int | None = None, most: int = PASS) -> None:
        """`projects`: count by quota project too, with one more system call per folder. `in_memory`: rows
        kept before spilling. `most`: rows added up at once."""
        self._projects = projects
        kept = {} if in_memory is None else {"in_memory": in_memory}
        self._rows = SpilledRows(_SCHEMA, **kept)
        self._most = most
        self._areas: list[Area] = []
        self.files = 0  # names seen so far, without folders
        self.bytes = 0  # bytes of those names: each name of an inode counts

    def area(self) -> Area:
        """Return a new, empty area."""
        self._areas.append(Area(len(self._areas)))
        return self._areas[-1]

    def add_tree(self, area: Area, fd: int, spend: Callable[[int], None]) -> None:
        """Add the open folder `fd` and everything below it, and close `fd`. Calls `spend(n)` before n
        metadata operations. Vanished entries are left out; unreadable entries are counted."""
        project = project_of(fd) if self._projects else 0
        area.add_folder(row_of(os.fstat(fd)), project)
        last = None
        with contextlib.closing(descend(fd)) as met:
            for kind, level, names, row, error in met:
                spend(max(1, len(names)))
                if self._projects and level is not last:
                    last, project = level, _project(level)
                if kind == FILE:
                    self._files(level.stats(names), area, project)
                elif kind in (LINK, OTHER):
                    try:
                        self.add_names(area, level.fd, names, project)
                    except OSError as gone:  # their folder vanished
                        error = gone
                elif kind == BELOW and row is not None:
                    area.add_folder(row, project)
                if error is not None and not isinstance(error, FileNotFoundError):
                    area.unreadable += 1

    def add_names(self, area: Area, folder: int, names: Sequence[str], project: int) -> None:
        """Add those `names` in an open folder that are not folders. Raises OSError."""
        self._files(columns(look(folder, names)), area, project)

    def _files(self, looked: Looked, area: Area, project: int) -> None:
        uids, gids, blocks, links = looked.uid, looked.gid, looked.blocks, looked.links
        area.unreadable += sum(number != errno.ENOENT for number in looked.errors.values())
        self.files += len(links)
        self.bytes += sum(blocks) * BLOCK
        single = [number == 1 for number in links]
        owners = Counter(compress(zip(uids, gids, strict=True), single))
        if len(owners) == 1:
            ((uid, gid), files) = owners.popitem()
            area.add((uid, gid, project), files, sum(compress(blocks, single)) * BLOCK)
        elif owners:
            for uid, gid, size in compress(zip(uids, gids, blocks, strict=True), single):
                area.add((uid, gid, project), 1, size * BLOCK)
        several = [number > 1 for number in links]
        if any(several):
            sizes = [number * BLOCK for number in blocks]
            columns_kept = [
                list(compress(column, several))
                for column in (looked.device, looked.inode, sizes, links, uids, gids)
            ]
            count = len(columns_kept[0])
            columns_kept += [[project] * count, [area.number] * count]
            arrays = [
                pa.array(values, field.type) for values, field in zip(columns_kept, _SCHEMA, strict=True)
            ]
            self._rows.add(pa.record_batch(arrays, schema=_SCHEMA))

    def ended(self) -> AreaSums:
        """Return the sums of all areas, and complete the areas."""
        self._rows.finish()
        sums = AreaSums(self._areas)
        for rows in self._passes():
            sums.add(rows)
        return sums

    def _passes(self) -> Iterator[pa.Table]:
        """Yield the rows of inodes with several names in passes. All rows of an inode are in one pass."""
        passes = 1
        while len(self._rows) > passes * self._most:
            passes *= 2
        for number in range(passes):
            batches = []
            for _, chunk in self._rows.chunks():
                mixed = pc.shift_right(pc.multiply(chunk["inode"], _MIXER), pa.scalar(32, pa.uint64()))
                remainder = pc.bit_wise_and(mixed, pa.scalar(passes - 1, pa.uint64()))
                batches.append(chunk.filter(pc.equal(remainder, pa.scalar(number, pa.uint64()))))
            if batches:
                yield pa.Table.from_batches(batches)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()


class AreaSums:
    """Sums of what the areas share. `add` also completes the areas."""

    def __init__(self, areas: Sequence[Area]) -> None:
        self._areas = areas
        # (files, bytes) that several areas share, and (files, bytes) with a name outside all areas
        self.in_several = self.outside = (0, 0)
        self._files: Counter[Owner] = Counter()
        self._bytes: Counter[Owner] = Counter()

    def add(self, rows: pa.Table) -> None:
        """Add rows of inodes with several names; all rows of an inode must come in one call."""
        inode = ["device", "inode"]
        facts = [(name, "max") for name in ("bytes", "links", "uid", "gid", "project")]
        within = rows.group_by([*inode, "area"], use_threads=False).aggregate([*facts, ("area", "count")])
        within = within.rename_columns([*inode, "area", "bytes", "links", "uid", "gid", "project", "names"])
        for area, files, size in _rows(
            within.group_by("area", use_threads=False).aggregate([("bytes", "count"), ("bytes", "sum")])
        ):
            self._areas[area].all_files += files
            self._areas[area].all_bytes += size
        every = [*facts, ("names", "sum"), ("area", "min"), ("area", "max")]
        once = within.group_by(inode, use_threads=False).aggregate(every)
        here = pc.greater_equal(once["names_sum"], once["links_max"])
        alone = pc.and_(here, pc.equal(once["area_min"], once["area_max"]))
        kind = pc.if_else(alone, once["area_min"], pc.if_else(here, -1, -2))
        once = once.append_column("kind", kind)
        by = ["kind", "uid_max", "gid_max", "project_max"]
        sums = once.group_by(by, use_threads=False).aggregate([("bytes_max", "count"), ("bytes_max", "sum")])
        for area, uid, gid, project, files, size in _rows(sums):
            owner = uid, gid, project
            if area >= 0:
                self._areas[area].files[owner] += files
                self._areas[area].bytes[owner] += size
                continue
            if area == -1:
                self.in_several = self.in_several[0] + files, self.in_several[1] + size
            else:
                self.outside = self.outside[0] + files, self.outside[1] + size
            self._files[owner] += files
            self._bytes[owner] += size

    def owners(self) -> list[OwnedUse]:
        """Return files and bytes of all areas by user and group, most bytes first. Each inode counts once."""
        files, size = self._files.copy(), self._bytes.copy()
        for area in self._areas:
            files += area.files + area.folders
            size += area.bytes
        return owned(files, size)


def _rows(table: pa.Table) -> Iterable[tuple[int, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def owned(files: Counter[Owner], size: Counter[Owner]) -> list[OwnedUse]:
    """Turn counts by user, group and project into rows by user and group, the most bytes first."""
    by: dict[tuple[int, int], list[int]] = {}
    for owner, count in files.items():
        sums = by.setdefault(owner[:2], [0, 0])
        sums[0] += count
        sums[1] += size[owner]
    return [
        {
            "uid": uid,
            "user": user_name(uid),
            "gid": gid,
            "group": group_name(gid),
            "files": count,
            "bytes": total,
        }
        for (uid, gid), (count, total) in sorted(by.items(), key=lambda row: (-row[1][1], row[0]))
        if count
    ]


def _project(level: Level) -> int:
    """Return the quota project of a folder's files; 0 if it vanished."""
    try:
        return project_of(level.fd)
    except OSError:
        return 0
