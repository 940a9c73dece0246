"""How much room a dataset takes, and how much the removal of each of its releases would free.

Releases share unchanged files by hard links. So the sizes of releases cannot be added up, and a release frees
less than its size: only those inodes all of whose names lie in it.

| an inode has                         | counts as                                      |
|--------------------------------------|------------------------------------------------|
| one name                             | unique to its area                             |
| several, all of them in one area     | unique to that area                            |
| several, seen in more than one area  | shared, once; unless a name lies outside       |
| more than were seen here             | outside: no removal of an area frees it        |

The problem: of 10^8 files that all have several names, each inode has to be met with itself. A dictionary of
them takes 100 bytes each. So only inodes with several names are noted, as rows of 48 bytes that lie in TMPDIR
beyond 524,288 of them, and are added up by Arrow, so many at a time as fit PASS, by the lowest bits of the
inode's number. What has one name, all of a first release, is added up on the way and noted nowhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections import Counter
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from penstock.catalogue.spilled_rows import SpilledRows
from penstock.filesystem.kernel_quotas import project_known
from penstock.filesystem.owners import group_name, user_name
from penstock.filesystem.safe_open import OPEN_FOLDER, open_beneath
from penstock.filesystem.tree import BELOW, FILE, LINK, descend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.core.documents.disk_use import AreaUse, OwnedUse
    from penstock.filesystem.dir_stat import Looked
    from penstock.filesystem.tree import Met

BLOCK = 512
PASS = 1 << 20
"""Rows that are added up at once."""
_MIXER = pa.scalar(0x9E3779B97F4A7C15, pa.uint64())
"""An inode's number times it, wrapped, differs in its upper half also where numbers have a stride in common,
as of a file system that hands them out by turns."""
_SCHEMA = pa.schema(
    [("device", pa.uint64()), ("inode", pa.uint64())]
    + [(name, pa.int64()) for name in ("bytes", "links", "uid", "gid", "area")]
)
_NAMES = _SCHEMA.names

Owner = tuple[int, int]
"""uid and gid."""


class Place(NamedTuple):
    """One area: what is added up together."""

    kind: str
    name: str
    state: str
    folder: int
    """A descriptor of the folder in which `names` lie; closed by the caller."""
    names: Sequence[str]
    """Paths below it that belong to the area."""
    pool: str = ""
    tops: Sequence[str] = ()
    """Folders below it of which only they themselves belong to the area; "" is the folder itself."""


class Tally:
    """Files, folders and bytes of one area, of what is known to be its alone; by owner."""

    def __init__(self) -> None:
        self.files: Counter[Owner] = Counter()
        self.bytes: Counter[Owner] = Counter()
        self.folders: Counter[Owner] = Counter()
        self.unreadable = 0
        self.all_files = self.all_bytes = 0
        """Also of what is shared."""

    def add(self, owner: Owner, files: int, size: int) -> None:
        self.files[owner] += files
        self.bytes[owner] += size
        self.all_files += files
        self.all_bytes += size

    def add_folder(self, owner: Owner, size: int) -> None:
        self.folders[owner] += 1
        self.bytes[owner] += size
        self.all_bytes += size


class Use:
    """Adds up areas one after the other; `ended` gives the sums. A context manager."""

    def __init__(self, *, in_memory: int | None = None, most: int = PASS) -> None:
        kept = {} if in_memory is None else {"in_memory": in_memory}
        self._rows = SpilledRows(_SCHEMA, **kept)
        self._most = most
        self._areas: list[tuple[Place, Tally, int | None]] = []
        self.files = 0
        """Met so far."""
        self.bytes = 0

    def add(self, place: Place, spend: Callable[[int], None]) -> None:
        """Walk an area; `spend(n)` is called before n calls to the file system. What vanishes meanwhile is
        left out, what cannot be looked at is counted."""
        tally, number, project = Tally(), len(self._areas), None
        for name in place.tops:
            with contextlib.suppress(OSError):
                top = os.stat(name or ".", dir_fd=place.folder, follow_symlinks=False)
                tally.add_folder((top.st_uid, top.st_gid), top.st_blocks * BLOCK)
        for name in place.names:
            try:
                fd = open_beneath(place.folder, name, OPEN_FOLDER)
            except NotADirectoryError:
                self._single(place, name, tally)
                continue
            except FileNotFoundError:
                continue
            except OSError:
                tally.unreadable += 1
                continue
            project = project_known(fd) if project is None else project
            own = os.fstat(fd)
            tally.add_folder((own.st_uid, own.st_gid), own.st_blocks * BLOCK)
            with contextlib.closing(descend(fd)) as met:
                for one in met:
                    spend(max(1, len(one.names)))
                    self._meet(one, number, tally)
        self._areas.append((place, tally, project))

    def _single(self, place: Place, name: str, tally: Tally) -> None:
        with contextlib.suppress(OSError):
            seen = os.stat(name, dir_fd=place.folder, follow_symlinks=False)
            tally.add((seen.st_uid, seen.st_gid), 1, seen.st_blocks * BLOCK)

    def _meet(self, met: Met, area: int, tally: Tally) -> None:
        kind, level, names, row, error = met
        if kind == FILE:
            self._files(level.found(names), area, tally)
        elif kind == LINK:
            for name in names:
                with contextlib.suppress(OSError):
                    seen = os.stat(name, dir_fd=level.fd, follow_symlinks=False)
                    tally.add((seen.st_uid, seen.st_gid), 1, seen.st_blocks * BLOCK)
        elif kind == BELOW and row is not None:
            tally.add_folder((row[6], row[7]), row[9] * BLOCK)
        if error is not None and not isinstance(error, FileNotFoundError):
            tally.unreadable += 1

    def _files(self, looked: Looked, area: int, tally: Tally) -> None:
        inodes, links, devices, blocks = looked.inode, looked.links, looked.device, looked.blocks
        uids, gids = looked.uid, looked.gid
        tally.unreadable += sum(number != errno.ENOENT for number in looked.errors.values())
        self.files += len(links)
        self.bytes += sum(blocks) * BLOCK
        single = [number == 1 for number in links]
        if any(single):
            owners = list(compress(zip(uids, gids, strict=True), single))
            sizes = compress(blocks, single)
            if len(set(owners)) == 1:
                tally.add(owners[0], len(owners), sum(sizes) * BLOCK)
            else:
                for owner, size in zip(owners, sizes, strict=True):
                    tally.add(owner, 1, size * BLOCK)
        several = [number > 1 for number in links]
        if any(several):
            kept = [
                list(compress(column, several)) for column in (devices, inodes, blocks, links, uids, gids)
            ]
            kept[2] = [number * BLOCK for number in kept[2]]
            kept.append([area] * len(kept[0]))
            arrays = [pa.array(one, field.type) for one, field in zip(kept, _SCHEMA, strict=True)]
            self._rows.add(pa.record_batch(arrays, schema=_SCHEMA))

    def ended(self) -> Sums:
        """The sums of all areas."""
        self._rows.finish()
        sums = Sums([tally for _, tally, _ in self._areas])
        for rows in self._passes():
            sums.add(rows)
        return sums

    def areas(self) -> Iterator[AreaUse]:
        """Each area as it is printed, after `ended`."""
        for place, tally, project in self._areas:
            yield {
                "kind": place.kind,
                "name": place.name,
                "state": place.state,
                "files": tally.all_files,
                "folders": tally.folders.total(),
                "bytes": tally.all_bytes,
                "unique_files": tally.files.total(),
                "unique_bytes": tally.bytes.total(),
                "frees": owned(tally.files + tally.folders, tally.bytes),
                "project": project,
                "pool": place.pool,
                "unreadable": tally.unreadable,
            }

    def _passes(self) -> Iterator[pa.Table]:
        """The rows of inodes with several names, in parts that hold all rows of each inode in them."""
        passes = 1
        while len(self._rows) > passes * self._most:
            passes *= 2
        for number in range(passes):
            found = []
            for _, chunk in self._rows.chunks():
                mixed = pc.shift_right(pc.multiply(chunk["inode"], _MIXER), pa.scalar(32, pa.uint64()))
                part = pc.bit_wise_and(mixed, pa.scalar(passes - 1, pa.uint64()))
                found.append(chunk.filter(pc.equal(part, pa.scalar(number, pa.uint64()))))
            if found:
                yield pa.Table.from_batches(found)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()


class Sums:
    """What all areas have in common; `add` also completes the areas' own tallies."""

    def __init__(self, tallies: Sequence[Tally]) -> None:
        self._tallies = tallies
        self.shared = self.outside = (0, 0)
        """Files and bytes."""
        self._files: Counter[Owner] = Counter()
        self._bytes: Counter[Owner] = Counter()

    def add(self, rows: pa.Table) -> None:
        """Rows of inodes with several names, all rows of each of these inodes."""
        inode = ["device", "inode"]
        facts = [(name, "max") for name in ("bytes", "links", "uid", "gid")]
        within = rows.group_by([*inode, "area"], use_threads=False).aggregate([*facts, ("area", "count")])
        within = within.rename_columns([*inode, "area", "bytes", "links", "uid", "gid", "names"])
        for area, files, size in _rows(
            within.group_by("area", use_threads=False).aggregate([("bytes", "count"), ("bytes", "sum")])
        ):
            self._tallies[area].all_files += files
            self._tallies[area].all_bytes += size
        every = [*facts, ("names", "sum"), ("area", "min"), ("area", "max")]
        once = within.group_by(inode, use_threads=False).aggregate(every)
        here = pc.greater_equal(once["names_sum"], once["links_max"])
        alone = pc.and_(here, pc.equal(once["area_min"], once["area_max"]))
        kind = pc.if_else(alone, once["area_min"], pc.if_else(here, -1, -2))
        once = once.append_column("kind", kind)
        by = ["kind", "uid_max", "gid_max"]
        found = once.group_by(by, use_threads=False).aggregate([("bytes_max", "count"), ("bytes_max", "sum")])
        for area, uid, gid, files, size in _rows(found):
            if area >= 0:
                self._tallies[area].files[uid, gid] += files
                self._tallies[area].bytes[uid, gid] += size
                continue
            if area == -1:
                self.shared = self.shared[0] + files, self.shared[1] + size
            else:
                self.outside = self.outside[0] + files, self.outside[1] + size
            self._files[uid, gid] += files
            self._bytes[uid, gid] += size

    def owners(self) -> list[OwnedUse]:
        """All, by owner."""
        files, size = self._files.copy(), self._bytes.copy()
        for tally in self._tallies:
            files += tally.files + tally.folders
            size += tally.bytes
        return owned(files, size)


def _rows(table: pa.Table) -> Iterable[tuple[int, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def owned(files: Counter[Owner], size: Counter[Owner]) -> list[OwnedUse]:
    """By user and group, the largest first."""
    return [
        {
            "uid": uid,
            "user": user_name(uid),
            "gid": gid,
            "group": group_name(gid),
            "files": files[uid, gid],
            "bytes": size[uid, gid],
        }
        for uid, gid in sorted(files, key=lambda one: (-size[one], one))
        if files[uid, gid]
    ]


def elapsed(since: float) -> float:
    return round(time.monotonic() - since, 3)
