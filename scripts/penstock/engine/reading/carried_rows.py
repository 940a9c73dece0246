"""Which linked rows of a shard are carried over: not read back, since their bytes were read lately, and the
file is the very inode that was read.

| the linked row's file                                                   | it is                        |
|-------------------------------------------------------------------------|------------------------------|
| inode, size or time of modification is not what its release recorded    | read (`unfit`)               |
| its ctime is neither what was recorded nor where penstock moved it since| read (`unfit`)               |
| its source states a checksum now which nothing has held yet             | read (`unfit`)               |
| it was last read longest ago, or its time has run out                   | read (`due`)                 |
| it was drawn                                                            | read (`sample`)              |
| any other                                                               | carried over                 |

A stat that does not fit says nothing about the bytes: that row is read like any other.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from penstock.core.digests import XXH3
from penstock.core.linked_reading import DUE, SAMPLE
from penstock.filesystem.safe_open import OPEN_FOLDER, Folders, folders_kept
from penstock.formats.ledger_file import Ledger
from penstock.formats.ledger_segments import segments
from penstock.formats.manifest import read_between
from penstock.formats.shards import ends, numbered
from penstock.formats.tables import strings

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    import pyarrow as pa

    from penstock.core.linked_reading import LinkedReading
    from penstock.engine.records.copied_rows import CopiedRows
    from penstock.engine.tasks import RereadTask

UNFIT, ALL = "unfit", "all"
_WHOLE = float(1 << 64)


class LastReading(NamedTuple):
    """What a record says of the last reading of a file."""

    storage_grade: str
    method: str
    verified_host: str
    attempt: str
    read_at: int
    digests: str


COLUMNS = ("path", "size", "mtime_ns", "ctime_ns", "inode", *LastReading._fields)
"""Of the manifest of the release that files are linked from."""
_READ_AT, _DIGESTS = map(LastReading._fields.index, ("read_at", "digests"))


class CarriedRows:
    """The linked rows of a shard, counted, and what is known of those that are carried over."""

    def __init__(self, rows: int) -> None:
        self._then = array("I", bytes(4 * rows))
        """For each row 1 and the index in `_told`; 0: it is not carried over."""
        self._told: list[tuple[Any, ...]] = []
        self._places: dict[tuple[Any, ...], int] = {}
        self.times: dict[str, array[int]] = {
            name: array("q", bytes(8 * rows)) for name in ("mtime_ns", "ctime_ns", "inode")
        }
        self.files: Counter[str] = Counter()
        """Linked rows by what is done about them; carried ones under ""."""
        self.bytes: Counter[str] = Counter()

    def __contains__(self, row: object) -> bool:
        return isinstance(row, int) and self._then[row] > 0

    def __len__(self) -> int:
        return self.files[""]

    def last(self, row: int) -> tuple[Any, ...]:
        """The values of a `LastReading`."""
        return self._told[self._then[row] - 1]

    def count(self, why: str, size: int) -> None:
        self.files[why] += 1
        self.bytes[why] += size

    def carry(self, row: int, seen: os.stat_result, last: tuple[Any, ...]) -> None:
        place = self._places.get(last)
        if place is None:
            place = self._places[last] = len(self._told)
            self._told.append(last)
        self._then[row] = place + 1
        self.times["mtime_ns"][row] = seen.st_mtime_ns
        self.times["ctime_ns"][row] = seen.st_ctime_ns
        self.times["inode"][row] = seen.st_ino


def judge(task: RereadTask, copied: CopiedRows) -> CarriedRows:
    """Looks at every linked row's file, unless all are to be read. Raises OSError where the tree cannot be
    opened."""
    found = CarriedRows(task.shard.rows)
    links = copied.links()
    if not links:
        return found
    rule, base = task.linked, task.base_manifest
    if rule is None or base is None:
        for numbers, batch in numbered(task.rows):
            for row, size in zip(numbers, batch["size"].to_pylist(), strict=True):
                if row in links:
                    found.count(ALL, size)
        return found
    root = os.open(task.data, OPEN_FOLDER)
    folders = Folders(root, folders_kept())
    try:
        _judge(task, rule, _Tree(folders), copied, links, found)
    finally:
        folders.close()
        os.close(root)
    return found


def _judge(
    task: RereadTask,
    rule: LinkedReading,
    tree: _Tree,
    copied: CopiedRows,
    links: Container[int],
    found: CarriedRows,
) -> None:
    """Every linked row is handled here, so little may be done to each: some microseconds, most of them a
    stat."""
    ledger, recorded, turns = _Moved(task), _recorded(task), Turns(rule)
    whole = task.verify.digests == (XXH3,)
    path, last = next(recorded, _END)
    for numbers, batch in numbered(task.rows):
        names, sizes = batch["path"].to_pylist(), batch["size"].to_pylist()
        for row, name, size, checksum in zip(numbers, names, sizes, _checksums(batch), strict=True):
            while path < name:
                path, last = next(recorded, _END)
            if row not in links:
                continue
            seen = tree.look(name) if path == name else None
            if seen is None:
                found.count(UNFIT, size)
                continue
            then_size, mtime_ns, ctime_ns, inode, *reading = last
            read_at, digests = reading[_READ_AT], reading[_DIGESTS]
            if (
                inode != seen.st_ino
                or not inode
                or then_size != seen.st_size
                or mtime_ns != seen.st_mtime_ns
                or not read_at
                or not ledger.leads(inode, ctime_ns, seen.st_ctime_ns)
                or (checksum and copied[row].source_proof != checksum)
                or not (whole or digests)
            ):
                found.count(UNFIT, size)
                continue
            why = turns.of(name, read_at)
            found.count(why, size)
            if not why:
                found.carry(row, seen, tuple(reading))


class _Tree:
    """Files of the staging, looked at in the order of their paths."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._parent, self._fd = b"/", -1

    def look(self, path: bytes) -> os.stat_result | None:
        parent, _, name = path.rpartition(b"/")
        try:
            if parent != self._parent:
                self._fd = self._folders.get(os.fsdecode(parent))
                self._parent = parent
            return os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except OSError:
            return None


class Turns:
    """Whose turn has come. What the time of the last reading says alone is found out once for each time."""

    def __init__(self, rule: LinkedReading) -> None:
        self._rule = rule
        self._kinds: dict[int, str] = {}
        self._early, self._drawn = rule.salt, rule.salt ^ 1
        self._share, self._sample = int(rule.share * _WHOLE), int(rule.sample * _WHOLE)

    def of(self, path: bytes, read_at: int) -> str:
        """`due`, `sample`, or "" for a file that may be carried over."""
        kind = self._kinds.get(read_at)
        if kind is None:
            kind = self._kinds[read_at] = self._kind(read_at)
        # Two draws of the same path.
        if kind == DUE or (kind and xxhash.xxh3_64_intdigest(path, self._early) < self._share):
            return DUE
        return SAMPLE if xxhash.xxh3_64_intdigest(path, self._drawn) < self._sample else ""

    def _kind(self, read_at: int) -> str:
        if self._rule.is_due(read_at):
            return DUE
        return PARTLY if read_at == self._rule.until else ""


PARTLY = "partly"
_END: tuple[bytes, tuple[Any, ...]] = (b"\xff" * 8192, ())
"""After the last row of a manifest: above all paths."""


def _checksums(batch: pa.RecordBatch) -> Sequence[str]:
    column = batch["checksum"]
    return strings(column) if column.total_values_length else [""] * len(column)


def _recorded(task: RereadTask) -> Iterator[tuple[bytes, tuple[Any, ...]]]:
    """Of the release that files are linked from, in the order of the paths: path, and the other `COLUMNS`."""
    if task.base_manifest is None:
        return
    for batch in read_between(task.base_manifest, *ends(task.rows), COLUMNS):
        path, *others = (batch[name].to_pylist() for name in COLUMNS)
        yield from zip(path, zip(*others, strict=True), strict=True)


class _Moved:
    """The ledger: first what this run's links of the shard moved, the rest only where that does not do."""

    def __init__(self, task: RereadTask) -> None:
        own = f"{task.run}-{task.shard.index:05d}-"
        paths = segments(task.ledger) if task.ledger is not None else []
        self._own = Ledger(path for path in paths if path.name.startswith(own))
        self._paths = paths
        self._all: Ledger | None = None

    def leads(self, inode: int, recorded_ns: int, seen_ns: int) -> bool:
        if recorded_ns == seen_ns or self._own.leads(inode, recorded_ns, seen_ns):
            return True
        if self._all is None:
            self._all = Ledger(self._paths)
        return self._all.leads(inode, recorded_ns, seen_ns)
