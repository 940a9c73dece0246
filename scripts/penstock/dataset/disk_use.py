"""How much room folders take, and how much their removal frees: for `penstock du`, and for gc before it
removes. Reads only: it walks trees as this account may, and spills rows into temporary files in TMPDIR.

An *area* is a set of folders whose room is added up together, such as one release.

Releases share unchanged files by hard links. So the sizes of releases cannot be added up, and a release frees
less than its size: only those inodes all of whose names lie in it.

| an inode has                         | counts as                                      |
|--------------------------------------|------------------------------------------------|
| one name                             | unique to its area                             |
| several, all of them in one area     | unique to that area                            |
| several, in more than one area       | shared, once; unless a name lies outside       |
| more than were met in all areas      | outside: no removal of an area frees it        |

Sizes are `st_blocks`, which quotas count, too. Folders count always. A project is that of the folder that
holds the name (FS_IOC_FSGETXATTR): a file whose folder hands its project on has the same, and links between
projects are refused by the file systems that have them.

The problem: of 10^8 files that all have several names, each inode has to be met with itself. A dictionary of
them takes 100 bytes each. So only inodes with several names are noted, as rows of 64 bytes that lie in TMPDIR
beyond 524,288 of them, and are added up by Arrow, so many at a time as fit PASS, by the lowest bits of the
inode's number. What has one name, all of a first release, is added up on the way and noted nowhere.
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

from penstock.fs.dir_stat import columns, look
from penstock.fs.dir_stat import row as row_of
from penstock.fs.kernel_quotas import project_of
from penstock.fs.owners import group_name, user_name
from penstock.fs.tree import BELOW, FILE, LINK, OTHER, descend
from penstock.tables.spilled_rows import SpilledRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.core.documents.disk_use import OwnedUse
    from penstock.fs.dir_stat import Looked, Row
    from penstock.fs.tree import Level

BLOCK = 512
"""Bytes of one unit of `st_blocks`."""
PASS = 1 << 20
"""Rows that are added up at once: 64 MiB of them."""
_MIXER = pa.scalar(0x9E3779B97F4A7C15, pa.uint64())
"""An inode's number times it, wrapped, differs in its upper half also where numbers have a stride in common,
as of a file system that hands them out by turns."""
_SCHEMA = pa.schema(
    [("device", pa.uint64()), ("inode", pa.uint64())]
    + [(name, pa.int64()) for name in ("bytes", "links", "uid", "gid", "project", "area")]
)

Owner = tuple[int, int, int]
"""User, group, project (0: none)."""


class Area:
    """What is added up together: files, folders and bytes, by owner, of what lies in it alone. Complete once
    `Use.ended` was called. Made by `Use.area`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.files: Counter[Owner] = Counter()
        self.bytes: Counter[Owner] = Counter()
        self.folders: Counter[Owner] = Counter()
        self.unreadable = 0
        """Names that could not be looked at."""
        self.all_files = self.all_bytes = 0
        """Files, and bytes, also of what this area shares with others."""

    def add(self, owner: Owner, files: int, size: int) -> None:
        """Add files with one name each, and their bytes."""
        self.files[owner] += files
        self.bytes[owner] += size
        self.all_files += files
        self.all_bytes += size

    def add_folder(self, looked: Row, project: int) -> None:
        """A folder itself, without what lies below it; `dir_stat.row` of its lstat."""
        owner, size = (looked[6], looked[7], project), looked[9] * BLOCK
        self.folders[owner] += 1
        self.bytes[owner] += size
        self.all_bytes += size


class Use:
    """Adds up areas: `area` and `add_tree` for each, then `ended`, once. A context manager, whose end removes
    the temporary files."""

    def __init__(self, *, projects: bool = False, in_memory: int | None = None, most: int = PASS) -> None:
        """`projects`: count by the quota's project, too, which costs a call for each folder; else it is 0.
        `in_memory`: rows that are kept before they spill; `most`: rows that are added up at once."""
        self._projects = projects
        kept = {} if in_memory is None else {"in_memory": in_memory}
        self._rows = SpilledRows(_SCHEMA, **kept)
        self._most = most
        self._areas: list[Area] = []
        self.files = 0
        """Names met so far, of no folders; and the bytes of all of them (each name of an inode counts)."""
        self.bytes = 0

    def area(self) -> Area:
        """A new area, with nothing in it yet."""
        self._areas.append(Area(len(self._areas)))
        return self._areas[-1]

    def add_tree(self, area: Area, fd: int, spend: Callable[[int], None]) -> None:
        """A folder and all below it; its descriptor is closed. `spend(n)` is called before n calls to the
        file system. What vanishes meanwhile is left out, what cannot be looked at is counted."""
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
                    except OSError as gone:  # their folder, meanwhile
                        error = gone
                elif kind == BELOW and row is not None:
                    area.add_folder(row, project)
                if error is not None and not isinstance(error, FileNotFoundError):
                    area.unreadable += 1

    def add_names(self, area: Area, folder: int, names: Sequence[str], project: int) -> None:
        """Names of an open folder (a descriptor) that are no folders. Raises OSError."""
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
        """The sums of all areas; what was added to areas themselves is complete from then on."""
        self._rows.finish()
        sums = AreaSums(self._areas)
        for rows in self._passes():
            sums.add(rows)
        return sums

    def _passes(self) -> Iterator[pa.Table]:
        """The rows of inodes with several names, in parts that hold all rows of each inode in them."""
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
    """What all areas have in common; `Use.ended` makes it. `add` also completes the areas."""

    def __init__(self, areas: Sequence[Area]) -> None:
        self._areas = areas
        self.in_several = self.outside = (0, 0)
        """Files and bytes: shared by several areas; and with names outside of all areas."""
        self._files: Counter[Owner] = Counter()
        self._bytes: Counter[Owner] = Counter()

    def add(self, rows: pa.Table) -> None:
        """Rows of inodes with several names, all rows of each of these inodes."""
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
        """Files and bytes of all areas, by user and group, the largest first; each inode counts once."""
        files, size = self._files.copy(), self._bytes.copy()
        for area in self._areas:
            files += area.files + area.folders
            size += area.bytes
        return owned(files, size)


def _rows(table: pa.Table) -> Iterable[tuple[int, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def owned(files: Counter[Owner], size: Counter[Owner]) -> list[OwnedUse]:
    """Counts by user, group and project as rows by user and group, the most bytes first."""
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
    """Of the files of a folder; 0 where the folder has vanished."""
    try:
        return project_of(level.fd)
    except OSError:
        return 0
