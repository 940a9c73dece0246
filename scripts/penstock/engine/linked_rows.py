"""Links the unchanged rows of a shard, before its workers copy the others; and decides which linked rows are
carried over: such rows are not read back, since verify or an audit read them recently.
"""

from __future__ import annotations

import os
import threading
import time
from array import array
from contextlib import ExitStack
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from penstock.core.grades import due_fraction, is_soon
from penstock.core.layout import MANIFEST
from penstock.core.model import XXH3
from penstock.core.row_codec import reused_line
from penstock.fs.safe_open import OPEN_FOLDER, Folders, folders_kept
from penstock.fs.tree import Calls
from penstock.host import waits
from penstock.host.pacing import unlimited
from penstock.tables.json_files import CtimeIntervals
from penstock.tables.manifest import read_between
from penstock.tables.run_tables import ends, numbered
from penstock.tables.tables import strings

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from penstock.core.grades import Now
    from penstock.core.model import Reuse
    from penstock.engine.journal import CopiedRows
    from penstock.engine.journal_flusher import Keeper
    from penstock.engine.tasks import CopyTask, Outcome, RereadTask, StopCheck
    from penstock.engine.work_kinds import CopyWork
    from penstock.target.links import Linked


# Decides which linked rows of a shard (files that the release shares with an earlier one) are carried over.
# Carried rows are not read back, since verify or an audit read them recently.
#
# The file must still be the inode that was read. No data file is opened. The first line that applies decides:
#
# | the linked row's file                                                    | result       |
# |--------------------------------------------------------------------------|--------------|
# | its inode, size or modification time differs from its release's record   | read         |
# | its ctime before the link was not accounted for (`Copied.touched`)       | read         |
# | its ctime now is neither recorded, nor inside an interval in which       | read         |
# | penstock linked or unlinked files                                        |              |
# | its source now states a checksum that does not yet prove its record      | read         |
# | it is due to be read again (`core.grades`)                               | read         |
# | any other                                                                | carried over |
#
# A stat that differs proves nothing about the bytes, so the row is read like any other.

_WHOLE = float(1 << 64)


class LastReading(NamedTuple):
    """The fields of a manifest's record about the last reading of a file."""

    storage_grade: str
    method: str
    verified_host: str
    attempt: str
    read_at: int  # time of that reading, in seconds since the epoch; 0 if unknown
    digests: str  # further digests besides the compared digest, separated by blanks


# the columns needed from the manifest of the linked release
COLUMNS = ("path", "size", "mtime_ns", "ctime_ns", "inode", "shared", *LastReading._fields)
_READ_AT, _DIGESTS = map(LastReading._fields.index, ("read_at", "digests"))


class CarriedRows:
    """The carried rows of a shard, by number, with last readings and file times, in packed columns."""

    def __init__(self, rows: int) -> None:
        # for each carried row, 1 + the index of its last reading in `_readings`; 0 for other rows
        self._then = array("I", bytes(4 * rows))
        self._readings: list[tuple[Any, ...]] = []
        self._places: dict[tuple[Any, ...], int] = {}
        # the current times (in ns) and the inode of each carried row's file; 0 for other rows
        self.times: dict[str, array[int]] = {
            name: array(code, bytes(8 * rows))
            for name, code in (("mtime_ns", "q"), ("ctime_ns", "q"), ("inode", "Q"))
        }
        self.files = self.bytes = 0  # number and bytes of the rows carried over

    def __contains__(self, row: object) -> bool:
        return isinstance(row, int) and self._then[row] > 0

    def __len__(self) -> int:
        return self.files

    def last(self, row: int) -> tuple[Any, ...]:
        """Return the values of a carried row's `LastReading`."""
        return self._readings[self._then[row] - 1]

    def carry(self, row: int, stat: os.stat_result, last: tuple[Any, ...]) -> None:
        """Add a row, once, with its file's current stat and the values of its `LastReading`."""
        self.files += 1
        self.bytes += stat.st_size
        place = self._places.get(last)
        if place is None:
            place = self._places[last] = len(self._readings)
            self._readings.append(last)
        self._then[row] = place + 1
        self.times["mtime_ns"][row] = stat.st_mtime_ns
        self.times["ctime_ns"][row] = stat.st_ctime_ns
        self.times["inode"][row] = stat.st_ino


def judge(task: RereadTask, copied: CopiedRows, now: Now) -> CarriedRows:
    """Return the rows of the task's shard that are carried over, according to the table above.

    Raises OSError if the tree cannot be opened, and the FailedError of `recorded`.
    """
    carried = CarriedRows(task.shard.rows)
    links = copied.links(untouched=True)
    if not links or task.longest is None or task.base_manifest is None:
        return carried
    root = os.open(task.data, OPEN_FOLDER)
    folders = Folders(root, folders_kept())
    try:
        _judge(task, Dues(task.longest, now), _Tree(folders), copied, links, carried)
    finally:
        folders.close()
        os.close(root)
    return carried


def _judge(
    task: RereadTask, dues: Dues, tree: _Tree, copied: CopiedRows, links: Container[int], carried: CarriedRows
) -> None:
    """Handle every linked row in some microseconds, most of them a stat."""
    assert task.base_manifest is not None
    moved = CtimeIntervals(()) if task.intervals is None else task.intervals
    rows = recorded(task.base_manifest, task.rows, COLUMNS[1:])
    whole = task.verify.digests == (XXH3,)
    path, last = next(rows)
    for numbers, batch in numbered(task.rows):
        names, sizes = batch["path"].to_pylist(), batch["size"].to_pylist()
        records: list[tuple[Any, ...] | None] = []
        for name in names:
            while path < name:
                path, last = next(rows)
            records.append(last if path == name else None)
        audited: Iterable[int] = repeat(0, len(names))
        if task.audited is not None:
            audited = task.audited(
                names, sizes, [record is not None and _is_soon(*record) for record in records]
            )
        for row, name, record, checksum, then in zip(
            numbers, names, records, _checksums(batch), audited, strict=True
        ):
            if row not in links or record is None or (stat := tree.look(name)) is None:
                continue
            size, mtime_ns, ctime_ns, inode, _, *reading = record
            if (
                inode != stat.st_ino
                or not inode
                or size != stat.st_size
                or mtime_ns != stat.st_mtime_ns
                or not (ctime_ns == stat.st_ctime_ns or stat.st_ctime_ns in moved)
                or (checksum and copied[row].source_proof != checksum)
                or not (whole or reading[_DIGESTS])
            ):
                continue
            reading[_READ_AT] = max(reading[_READ_AT], then)
            if not dues.include(name, reading[_READ_AT]):
                carried.carry(row, stat, tuple(reading))


def _is_soon(size: int, _: int, ctime_ns: int, __: int, shared: int, *reading: Any) -> bool:
    return is_soon(size, ctime_ns, reading[_READ_AT], shared)


class _Tree:
    """The files of the staging, whose stats are read in the order of the paths."""

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


class Dues:
    """Decides which files are due to be read again.

    The longer ago the last reading, the larger the fraction of files that are due. A hash of the path decides
    which files are in that fraction. After `longest` seconds every file is due.
    """

    def __init__(self, longest: float, now: Now) -> None:
        self._longest, self._now = longest, now
        self._limits: dict[int, int] = {}

    def include(self, path: bytes, read_at: int) -> bool:
        """Return whether the file at this path, last read at `read_at`, is due."""
        limit = self._limits.get(read_at)
        if limit is None:
            fraction = due_fraction(read_at, self._now, self._longest)
            limit = self._limits[read_at] = int(fraction * _WHOLE)
        return limit > 0 and xxhash.xxh3_64_intdigest(path) < limit


# comes after the last row of a manifest, with a path above all paths
_END: tuple[bytes, tuple[Any, ...]] = (b"\xff" * 8192, ())


def recorded(manifest: Path, shard: Path, names: Sequence[str]) -> Iterator[tuple[bytes, tuple[Any, ...]]]:
    """Yield path and columns of a release's files, in order, from a shard's first path to its last. Then
    yield _END for ever.

    Raises FailedError if the manifest cannot be read.
    """
    for batch in read_between(manifest, *ends(shard), ("path", *names)):
        path, *others = (batch[name].to_pylist() for name in ("path", *names))
        yield from zip(path, zip(*others, strict=True), strict=True)
    yield from repeat(_END)


def _checksums(batch: pa.RecordBatch) -> Sequence[str]:
    column = batch["checksum"]
    return strings(column) if column.total_values_length else [""] * len(column)


# Links the unchanged rows of a shard, before its workers copy the others.
#
# A link takes three calls and moves no byte, so sending rows to workers would cost more. The workers' parent
# links a folder at a time, with threads if the file system is slow (`Calls`). A linked row is journaled when
# its name is durable.
#
# A link changes the ctime of all names of a file, so the ctime is compared before the link. It is accounted
# for if it is in the release's manifest, or in an interval of penstock's own links (`tables.json_files`). A
# ctime that this attempt caused by linking another name is accounted for, too. Any other row is marked
# `touched`, and so is a row that a killed attempt linked but did not record. Verify reads `touched` rows even
# if it carries linked rows over.


class LinkedRows:
    """The rows of a shard that were linked: a byte for each row."""

    def __init__(self, rows: int) -> None:
        self._flags = bytearray(rows)
        self.count = self.bytes = 0

    def add(self, row: int, size: int) -> None:
        self._flags[row] = 1
        self.count += 1
        self.bytes += size

    def __contains__(self, row: object) -> bool:
        return isinstance(row, int) and bool(self._flags[row])


def link_rows(
    task: CopyTask,
    work: CopyWork,
    shard: Iterable[tuple[Sequence[int], pa.RecordBatch]],
    skip: Container[int],
    keeper: Keeper,
    outcome: Outcome,
    report: Callable[[], None],
    stop: StopCheck,
    ops: Callable[[], float] | None = None,
) -> LinkedRows:
    """Link the rows that the base release has under the same names, except `skip`. Counts them in `outcome`.

    Rows that cannot be linked are left to be copied. `shard` comes from `tables.run_tables.numbered`.
    `keeper` gets a row's journal line once the name is durable, or if the keeper's barrier will make it so.
    `stop` is called before each group, `report` after each group with rows to link. `ops` returns the
    metadata operations allowed a second; without `ops` any number is allowed.

    Raises the errors of `stop` and `keeper.check`, FailedError if the manifest cannot be read, and errors of
    the target according to `safe_open.storage_error`.
    """
    linked = LinkedRows(task.shard.rows)
    base = task.base
    if base is None or task.way != "link" or not task.shard.reused:
        return linked
    from penstock.host.pacing import spending
    from penstock.tables.json_files import CtimeRecorder
    from penstock.tables.run_tables import count_reused
    from penstock.target.staging_writer import StagingWriter

    began = time.monotonic()
    with ExitStack() as stack:
        spend = stack.enter_context(spending(ops, waits.pause)) if ops else unlimited
        own = threading.local()
        writers: list[StagingWriter] = []

        def writer() -> StagingWriter:
            """Return this thread's writer."""
            if not hasattr(own, "writer"):
                own.writer = stack.enter_context(StagingWriter(work.data, spend, **work.writer))
                writers.append(own.writer)
            thread_writer: StagingWriter = own.writer
            return thread_writer

        def some(files: Sequence[tuple[str, int, int]]) -> list[Linked | None]:
            return writer().link_many(base, files)

        calls = stack.enter_context(Calls())
        moved = CtimeRecorder(task.moves, task.moved) if task.moves and task.moved else None
        if moved is not None:
            stack.callback(moved.close)
        explained = _KnownTimes(task)
        for numbers, batch in shard:
            stop()
            if not count_reused(batch):
                continue
            rows, files = _of_release(numbers, batch, skip)
            if not rows:
                continue
            made = list(calls.each(some, files))
            if moves := [link.after_ns for link in made if link is not None]:
                explained.moved(min(moves), max(moves))
                if moved is not None:
                    moved(min(moves))
                    moved(max(moves))
            lines = []
            for (row, reuse, name), (_, size, _), link in zip(rows, files, made, strict=True):
                if link is not None:
                    linked.add(row, size)
                    outcome.bytes += size
                    lines.append(reused_line(row, reuse, touched=not explained(name, link.before_ns)))
            for each in writers:
                each.settle()
            outcome.files += len(lines)
            outcome.linked += len(lines)
            keeper.add("".join(lines).encode())
            keeper.check()
            report()
    outcome.linked_bytes = linked.bytes
    outcome.link_seconds = time.monotonic() - began
    return linked


def _of_release(
    numbers: Sequence[int], batch: pa.RecordBatch, skip: Container[int]
) -> tuple[list[tuple[int, Reuse, bytes]], list[tuple[str, int, int]]]:
    """Return the rows whose file the base release has under the same name, except those in `skip`.

    The first list has each row's number, reuse and stored path. The second has each file's path, size and
    time. Renamed files are left out: workers link these few files.
    """
    from penstock.tables.tables import values

    rows, files = [], []
    columns = values(batch.select(["reuse", "held_as", "path", "size", "modified_ns"]))
    names = batch["path"].to_pylist()
    for row, name, reuse, held_as, path, size, listed_ns in zip(
        numbers, names, *columns.values(), strict=True
    ):
        if reuse and not reuse.staging and not held_as and row not in skip:
            rows.append((row, reuse, name))
            files.append((path, size, listed_ns if reuse.mtime_ns is None else reuse.mtime_ns))
    return rows, files


class _KnownTimes:
    """Decides whether a ctime is accounted for (see the module). Names must come in ascending order."""

    def __init__(self, task: CopyTask) -> None:

        self._intervals = task.intervals
        self._recorded: Iterator[tuple[bytes, tuple[Any, ...]]] | None = None
        if task.intervals is not None and task.base is not None:
            self._recorded = recorded(task.base.parent / MANIFEST, task.rows, ("ctime_ns",))
        self._path = b""
        self._ctime: tuple[Any, ...] = (0,)
        self._first = self._last = 0

    def moved(self, first_ns: int, last_ns: int) -> None:
        """Note that this attempt changed ctimes to values in this range."""
        self._first, self._last = min(self._first or first_ns, first_ns), max(self._last, last_ns)

    def __call__(self, name: bytes, before_ns: int) -> bool:
        if self._recorded is None or self._intervals is None:
            return True
        while self._path < name:
            self._path, self._ctime = next(self._recorded)
        return (
            (self._path == name and self._ctime[0] == before_ns)
            or before_ns in self._intervals
            or self._first <= before_ns <= self._last
        )
