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
from penstock.filesystem.safe_open import OPEN_FOLDER, Folders, folders_kept
from penstock.formats.ledger_file import Ledger, segments
from penstock.formats.manifest import read_between
from penstock.formats.shards import numbered
from penstock.formats.tables import strings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from penstock.core.linked_reading import LinkedReading
    from penstock.engine.records.copied_rows import CopiedRows
    from penstock.engine.tasks import RereadTask

UNFIT, ALL = "unfit", "all"
_WHOLE = float(1 << 64)
COLUMNS = (
    "path", "size", "mtime_ns", "ctime_ns", "inode", "read_at", "storage_grade", "method", "verified_host",
    "attempt", "digests",
)  # fmt: skip
"""Of the manifest of the release that files are linked from."""


class LastReading(NamedTuple):
    """What a record says of the last reading of a file."""

    storage_grade: str
    method: str
    verified_host: str
    attempt: str
    read_at: int
    digests: str


class CarriedRows:
    """The linked rows of a shard, counted, and what is known of those that are carried over."""

    def __init__(self, rows: int) -> None:
        self._then = array("I", bytes(4 * rows))
        """For each row 1 and the index in `_told`; 0: it is not carried over."""
        self._told: list[LastReading] = []
        self._places: dict[LastReading, int] = {}
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

    def last(self, row: int) -> LastReading:
        return self._told[self._then[row] - 1]

    def count(self, why: str, size: int) -> None:
        self.files[why] += 1
        self.bytes[why] += size

    def carry(self, row: int, seen: os.stat_result, last: LastReading) -> None:
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
        ledger = _Moved(task)
        recorded = _Recorded(task)
        for numbers, batch in numbered(task.rows):
            paths = strings(batch["path"])
            for row, path, size, checksum in zip(
                numbers, paths, batch["size"].to_pylist(), _checksums(batch), strict=True
            ):
                if row not in links:
                    continue
                seen = _look(folders, path)
                last = recorded.of(path)
                if (
                    seen is None
                    or last is None
                    or (checksum and copied[row].source_proof != checksum)
                    or not _fits(last, seen, ledger)
                    or (task.verify.digests != (XXH3,) and not last.values[_DIGESTS])
                ):
                    found.count(UNFIT, size)
                    continue
                why = _why(rule, path, last.values[_READ_AT])
                found.count(why, size)
                if not why:
                    found.carry(row, seen, last.reading())
    finally:
        folders.close()
        os.close(root)
    return found


def _checksums(batch: pa.RecordBatch) -> Sequence[str]:
    column = batch["checksum"]
    return strings(column) if column.total_values_length else [""] * len(column)


def _why(rule: LinkedReading, path: str, read_at: int) -> str:
    name = os.fsencode(path)
    # Two draws of the same path.
    early = xxhash.xxh3_64_intdigest(name, rule.salt) / _WHOLE
    drawn = xxhash.xxh3_64_intdigest(name, rule.salt ^ 1) / _WHOLE
    return rule.why_read(read_at, early, drawn)


def _look(folders: Folders, path: str) -> os.stat_result | None:
    parent, _, name = path.rpartition("/")
    try:
        return os.stat(name, dir_fd=folders.get(parent), follow_symlinks=False)
    except OSError:
        return None


_SIZE, _MTIME, _CTIME, _INODE, _READ_AT, _DIGESTS = map(
    COLUMNS.index, ("size", "mtime_ns", "ctime_ns", "inode", "read_at", "digests")
)


class _Row(NamedTuple):
    """A row of the manifest, by `COLUMNS`."""

    values: tuple[Any, ...]

    def reading(self) -> LastReading:
        """What it says of the file's last reading."""
        by_name = dict(zip(COLUMNS, self.values, strict=True))
        return LastReading(*(by_name[name] for name in LastReading._fields))


class _Recorded:
    """The manifest of the release that files are linked from, as a stream beside the shard."""

    def __init__(self, task: RereadTask) -> None:
        self._rows = self._read(task)
        self._next = next(self._rows, None)

    @staticmethod
    def _read(task: RereadTask) -> Iterator[tuple[bytes, tuple[Any, ...]]]:
        first, last = _ends(task)
        if task.base_manifest is None:
            return
        for batch in read_between(task.base_manifest, first, last, COLUMNS):
            columns = [batch[name].to_pylist() for name in COLUMNS]
            yield from zip(columns[0], zip(*columns, strict=True), strict=True)

    def of(self, path: str) -> _Row | None:
        """The row of this path, None where there is none; paths come in the order of their bytes."""
        name = os.fsencode(path)
        while self._next is not None and self._next[0] < name:
            self._next = next(self._rows, None)
        return _Row(self._next[1]) if self._next is not None and self._next[0] == name else None


def _ends(task: RereadTask) -> tuple[bytes, bytes]:
    """The first and the last path of the shard."""
    first = last = b""
    for numbers, batch in numbered(task.rows):
        paths = batch["path"]
        if numbers[0] == 0:
            first = paths[0].as_py()
        last = paths[len(paths) - 1].as_py()
    return first, last


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


def _fits(last: _Row, seen: os.stat_result, ledger: _Moved) -> bool:
    """Whether the file is the one that was recorded: its ctime is as penstock left it, and all else as it
    was."""
    values = last.values
    return (
        values[_INODE] == seen.st_ino != 0
        and values[_SIZE] == seen.st_size
        and values[_MTIME] == seen.st_mtime_ns
        and values[_READ_AT] != 0
        and ledger.leads(seen.st_ino, values[_CTIME], seen.st_ctime_ns)
    )
