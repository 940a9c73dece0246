"""Links the unchanged rows of a shard, before its workers copy the others.

A link takes three calls and moves no byte, so sending rows to workers would cost more. The workers' parent
links a folder at a time, with threads if the file system is slow (`Calls`). A linked row is journaled when
its name is durable.

A link changes the ctime of all names of a file, so the ctime is compared before the link. It is accounted for
if it is in the release's manifest, or in an interval of penstock's own links (`tables.json_files`). A
ctime that this attempt caused by linking another name is accounted for, too. Any other row is marked
`touched`, and so is a row that a killed attempt linked but did not record. Verify reads `touched` rows even
if it carries linked rows over.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from penstock.core.layout import MANIFEST
from penstock.core.row_codec import reused_line
from penstock.fs.tree import Calls
from penstock.host import waits
from penstock.host.pacing import unlimited

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence

    import pyarrow as pa

    from penstock.core.model import Reuse
    from penstock.engine.journal_flusher import Keeper
    from penstock.engine.tasks import CopyTask, Outcome, StopCheck
    from penstock.engine.work_kinds import CopyWork
    from penstock.target.links import Linked


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
    the target according to `errno_map.storage_error`.
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
        from penstock.engine.carried_rows import recorded

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
