"""The rows of a shard that an attempt must still copy, each with the version of its object to read: divided
into batches, and followed by their parts where a row is copied in parts. Also the rows as they were copied,
without those whose object left the source.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import count, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Self

from penstock.config.source_kinds import of_url
from penstock.core.model import Entry, Pin
from penstock.core.row_codec import parts_of
from penstock.engine import journal
from penstock.engine.journal import CopiedRows
from penstock.engine.tasks import (
    BEGIN,
    BEGUN,
    DROP,
    DROPPED,
    FETCH,
    FINISH,
    STEP,
    WHOLE,
    Batch,
    Unfinished,
    doing,
    fetching,
    in_order,
    most_lost,
    part_bytes,
    temporary_name,
)
from penstock.sources.port import pinned, same_bytes
from penstock.target import staging_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from penstock.core.model import Copied, Expected, PartLine
    from penstock.engine.linked_rows import LinkedRows
    from penstock.engine.tasks import BatchAnswer, CopyTask, FailedRow, Outcome


# Divides a shard's rows into batches. Also follows the rows that are copied in parts: which parts are done,
# under way, or still to be fetched.

# A worker receives and answers a batch as a unit. Small rows share a batch of up to BATCH_ROWS rows or
# BATCH_BYTES. Batches shrink towards the shard's end, so that no worker is busy long after the others. A
# large row, or a giant's part, is a batch of its own.

BATCH_ROWS = 256  # the most rows of a batch
BATCH_BYTES = 8 << 20  # the most bytes of a batch of small rows
LARGE = 4 << 20  # bytes from which a row is a batch of its own
FEWEST = 8  # rows that a batch may always have, however few are left
BATCHES_LEFT = 4  # batches that each worker should still get, unless they would become too small


def batches(
    shard: Iterable[Sequence[Entry | Expected]],
    done: Container[int],
    left: int,
    workers: int,
    multipart: Multipart | None = None,
) -> Iterator[Batch]:
    """Divide the `left` rows that are not `done` into batches, in the shard's order.

    For a row copied in parts, it yields only the first job, and `multipart` makes the other jobs.
    """
    numbers = multipart.numbers if multipart else count()
    row = 0
    rows: list[int] = []
    entries: list[Entry | Expected] = []
    total = 0
    room = _room(left, workers)
    for group in shard:
        for entry in group:
            row += 1
            if row - 1 in done:
                continue
            is_part = entry.part >= 0
            length = entry.length if is_part else entry.size
            large = length >= LARGE or is_part
            if rows and (large or total + length > BATCH_BYTES or len(rows) >= room):
                yield Batch(next(numbers), rows, entries, total, False)
                left -= len(rows)
                rows, entries, total, room = [], [], 0, _room(left, workers)
            if large:
                if multipart and isinstance(entry, Entry) and multipart.goes_in_parts(row - 1, entry):
                    yield multipart.open(row - 1, entry)
                else:
                    yield Batch(next(numbers), [row - 1], [entry], length, True)
                left -= 1
            else:
                rows.append(row - 1)
                entries.append(entry)
                total += length
    if rows:
        yield Batch(next(numbers), rows, entries, total, False)


class Ahead:
    """A queue of batches that prefers batches in folders where no other stream works.

    The kernel locks a folder during each create and rename. On a network file system, it holds the lock while
    it waits for the server. So two streams in one folder are hardly faster than a single stream.
    """

    def __init__(self, jobs: Iterator[Batch], view: int, first: Multipart | None = None) -> None:
        """`view` is the number of batches to search; 1 keeps their order. `first` makes the jobs of rows
        copied in parts, which `take` returns first."""
        self._jobs, self.view, self._first = jobs, view, first
        self._window: list[Batch] = []
        self._ended = False

    @property
    def empty(self) -> bool:
        """Whether all batches were taken, and no row copied in parts needs further parts."""
        return self._ended and not self._window and not (self._first and self._first.goes_on)

    def take(self, taken: set[str]) -> Batch | None:
        """Return the first batch outside the folders `taken`, or else the first batch.

        Returns None if no batch is ready now. `first` may have another batch when a job is done.
        """
        if self._first:
            if self._first.full:
                return None
            if (job := self._first.next()) is not None:
                return job
        window = self._window
        window += islice(self._jobs, wanted := self.view - len(window))
        self._ended = self._ended or (wanted > 0 and len(window) < self.view)
        if not window:
            return None
        for place, job in enumerate(window):
            if taken.isdisjoint(job.folders):
                return window.pop(place)
        return window.pop(0)


def _room(left: int, workers: int) -> int:
    return max(FEWEST, min(BATCH_ROWS, left // (workers * BATCHES_LEFT)))


# A store often limits each connection (S3: 80 to 100 MB/s). So all streams fetch parts of a large object,
# each part with a conditional GET. The journal records each durable part, and the next attempt fetches only
# the others. At no time do more files grow than there are streams. A large file of a folder source is one job
# (`tasks.in_order`), which resumes at the last mark of earlier attempts.
#
# If parts do not work, one stream fetches the whole object, and reports its errors. Parts fail if the server
# has no ranges, they contradict the source together, or another attempt renamed the temporary file.

UNDER_WAY = 384 << 20  # bytes of parts for which streams are started; an eighth of the total if that is more


class OpenRow:
    """A row that is copied in parts of `size` bytes into its temporary file. The last part may be smaller."""

    def __init__(self, row: int, entry: Entry, size: int) -> None:
        self.row, self.entry, self.size = row, entry, size
        self.count = -(-entry.size // size)
        self.temporary = temporary_name()
        self.lines: dict[int, PartLine] = {}  # the parts that are done, by number
        self.bytes = self.resumed = 0  # bytes of the parts done by this attempt, and of those done earlier
        self.under_way = 0  # jobs of the row without an answer
        self.stopped = False  # whether no further part is fetched: the row failed, or will be fetched whole
        # whether one stream fetches the row whole, once no job is under way and the temporary file is dropped
        self.whole = False
        self._next = 0

    def part(self) -> int | None:
        """Return the next part to fetch. Returns None after the last part, or if the row is stopped."""
        while self._next < self.count and self._next in self.lines:
            self._next += 1
        if self.stopped or self._next == self.count:
            return None
        self._next += 1
        return self._next - 1

    @property
    def complete(self) -> bool:
        """Whether all parts are done, so that the file may be finished."""
        return len(self.lines) == self.count


class Multipart:
    """Cuts rows into jobs and follows them, for one thread. `open` begins a row, `next` makes its jobs, and
    `take` handles their answers."""

    def __init__(self, task: CopyTask, outcome: Outcome) -> None:
        self._task, self._outcome = task, outcome
        self._urls = [source.url for source in task.dataset.sources]
        # what the journals say about rows without a record; `rows_left` fills it
        self.unfinished = Unfinished()
        self.numbers = count()  # numbers of all jobs (batches) of this attempt, not only of parts
        self._open: deque[OpenRow] = deque()
        self._ready: deque[tuple[OpenRow, int]] = deque()
        # row, work (a constant of `engine.tasks`) and part of each job, by the job's number
        self._jobs: dict[int, tuple[OpenRow, int, int]] = {}
        self._resumed: dict[tuple[int, str], int] = {}
        self.waiting: Callable[[], int] = int  # bytes of parts that are done but not recorded
        # Bytes of each part that `next` returned and no worker has answered. Jobs that `open` returned are
        # not counted, as they may still be waiting in the queue.
        self._handed: dict[int, int] = {}
        self._fetching = 0
        self.streams: Callable[[], int] = int  # the number of active streams

    def units(self, rows: int, total: int) -> int:
        """Return the number of streams that `rows` rows of `total` bytes could keep busy, at least `rows`."""
        mean = total // rows if rows else 0
        if mean < self._task.large_bytes or not any(of_url(url).pins for url in self._urls):
            return rows
        part = self._task.part_bytes or part_bytes(mean)
        return max(rows, min(total, max(UNDER_WAY, total // 8)) // part)

    def goes_in_parts(self, row: int, entry: Entry) -> bool:
        """Return whether the row is copied in parts.

        It must be large and must not be reused. Its token must identify the object's version, so that bytes
        of two versions never become one file.
        """
        return (
            entry.part < 0
            and entry.size >= self._task.large_bytes
            and not entry.reuse
            and row not in self.unfinished.contradicted
            and same_bytes(self._urls[entry.source], entry.token)
        )

    def open(self, row: int, entry: Entry) -> Batch:
        """Return the first job of a row. For a folder source's file, it is the only job."""
        if not pinned(self._urls[entry.source], entry.token):
            mark = self._mark(row, entry)
            temporary = mark.temporary if mark else temporary_name()
            job = in_order(entry, temporary, self._task.part_bytes or STEP, mark)
            return Batch(next(self.numbers), [row], [job], job.length, True)
        opened = OpenRow(row, entry, self._size(entry))
        lines = self._met(row, entry)
        if not lines:
            return self._job(opened, BEGIN)
        opened.temporary = lines[0].temporary
        opened.lines = {line.number: line for line in lines if line.number >= 0}
        opened.resumed = self.resume(row, entry)
        if opened.complete:
            return self._job(opened, FINISH)
        self._open.append(opened)
        number = opened.part()
        assert number is not None
        return self._job(opened, FETCH, number)

    def resume(self, row: int, entry: Entry) -> int:
        """Return the number of a row's bytes that earlier attempts fetched. Adds it to `resumed_bytes`, but
        only once for each version of the row."""
        place = row, entry.token
        if place not in self._resumed:
            if pinned(self._urls[entry.source], entry.token):
                numbers = {line.number for line in self._met(row, entry)} - {BEGUN}
                size = self._size(entry)
                self._resumed[place] = sum(min(size, entry.size - number * size) for number in numbers)
            else:
                mark = self._mark(row, entry)
                self._resumed[place] = mark.part_bytes if mark else 0
            self._outcome.resumed_bytes += self._resumed[place]
        return self._resumed[place]

    def _size(self, entry: Entry) -> int:
        return self._task.part_bytes or part_bytes(entry.size)

    def _mark(self, row: int, entry: Entry) -> PartLine | None:
        """Return the last usable mark that earlier attempts left for a folder source's file, or None.

        The temporary file must exist, or already have its final name and all its bytes. The stream that
        continues the file compares its bytes with the mark first.
        """
        marks = self.unfinished.parts.get(row, ()) if self.goes_in_parts(row, entry) else ()
        dropped = {line.temporary for line in marks if line.number == DROPPED}
        for mark in sorted(marks, key=attrgetter("part_bytes"), reverse=True):
            names = [mark.temporary]
            if row not in self.unfinished.taken_back and mark.part_bytes == entry.size:
                names.append(entry.path.rpartition("/")[2])
            if mark.token != entry.token or mark.temporary in dropped:
                continue
            if any(
                staging_writer.multipart_stands(self._task.data, entry.path, name, entry.size)
                for name in names
            ):
                return mark
        return None

    def _met(self, row: int, entry: Entry) -> Sequence[PartLine]:
        """Return earlier attempts' lines about one temporary file of the row that still exists, or ().

        If all parts are done, the file may already have its final name, and lack only its record. A file
        whose record was taken back is not resumed.
        """
        size = self._size(entry)
        files: dict[str, list[PartLine]] = {}
        for line in self.unfinished.parts.get(row, ()) if self.goes_in_parts(row, entry) else ():
            if line.token == entry.token and line.part_bytes == size:
                files.setdefault(line.temporary, []).append(line)
        longest: list[PartLine] = []
        for temporary, lines in files.items():
            numbers = {line.number for line in lines}
            complete = len(numbers - {BEGUN}) == -(-entry.size // size)
            if DROPPED in numbers:
                continue
            if len(lines) > len(longest) and (
                (complete and row not in self.unfinished.taken_back)
                or staging_writer.multipart_stands(self._task.data, entry.path, temporary, entry.size)
            ):
                longest = lines
        return longest

    @property
    def goes_on(self) -> bool:
        """Whether rows that were begun still need further parts."""
        return bool(self._open) or any(work == BEGIN for _, work, _ in self._jobs.values())

    @property
    def full(self) -> bool:
        """Whether no job may begin until an answer comes. This is so if the bytes in transit, and those
        fetched but not recorded, reach `most_lost`."""
        return (
            self._fetching > 0
            and self._fetching + self.waiting() >= most_lost(self.streams())
            and not self._ready
        )

    def next(self) -> Batch | None:
        """Return the next job of an open row, or None if no open row has a job to begin now."""
        if self._ready:
            return self._job(*self._ready.popleft())
        while self._open:
            opened = self._open.popleft()
            number = opened.part()
            if number is not None:
                # The rows take turns, as streams that write to one file wait for one another in the kernel.
                self._open.append(opened)
                job = self._job(opened, FETCH, number)
                self._handed[job.number] = job.bytes
                self._fetching += job.bytes
                return job
        return None

    def _job(self, opened: OpenRow, work: int, part: int = 0) -> Batch:
        number = next(self.numbers)
        if work == WHOLE:
            return Batch(number, [opened.row], [opened.entry], opened.entry.size, True)
        if work == FETCH:
            entry = fetching(opened.entry, opened.temporary, part, opened.size)
        else:
            lines = tuple(opened.lines[n] for n in range(opened.count)) if work == FINISH else ()
            entry = doing(opened.entry, opened.temporary, work, opened.size, lines)
        self._jobs[number] = opened, work, part
        opened.under_way += 1
        return Batch(number, [opened.row], [entry], entry.length, True)

    def take(self, job: Batch, answer: BatchAnswer) -> Sequence[FailedRow] | None:
        """Count the answer to a part's job, advance its row, and return the failures to report.

        Returns None for a job of rows not copied in parts, which the caller counts.
        """
        assignment = self._jobs.pop(job.number, None)
        if assignment is None:
            return None
        opened, work, number = assignment
        self._fetching -= self._handed.pop(job.number, 0)
        done, failures = answer.rows, answer.failures
        self._outcome.retries += answer.retries
        opened.under_way -= 1
        reported: Sequence[FailedRow] = ()
        if work == DROP:
            if done:
                self._ready.append((opened, WHOLE))
            return failures
        if failures or (done and not answer.results):
            # The row's first failure decides: either it is reported, or the row is fetched whole. Further
            # failures of the row change nothing.
            if not opened.stopped:
                opened.whole = not (failures and failures[0].failure.retry)
                reported = () if opened.whole else failures
            opened.stopped = True
        elif done:
            self._done(opened, work, number, answer.results, answer.bytes)
        if opened.whole and not opened.under_way:
            self._outcome.bytes -= opened.bytes
            self._outcome.resumed_bytes -= opened.resumed
            self._ready.append((opened, DROP))
        return reported

    def _done(self, opened: OpenRow, work: int, number: int, lines: bytes, size: int) -> None:
        self._outcome.bytes += size
        opened.bytes += size
        if work == BEGIN:
            self._open.append(opened)
        elif work == FINISH:
            self._outcome.files += 1
        else:
            (opened.lines[number],) = parts_of(lines)
            if opened.complete and not opened.stopped:
                self._ready.append((opened, FINISH))


# The rows of a shard that an attempt must still copy, each with the version of its object to read. Also the
# rows as they were copied, without those whose object left the source.

# The shard's file is never rewritten. Its journals amend it, and each row keeps its number.
#
# A giant is an object whose parts are rows of several shards. If it changes at the source, it is copied
# whole. Then the row of its first part is the whole object, and its other rows are void.


@dataclass
class Amendments:
    """The changes to a shard's rows that its journals record."""

    wholes: frozenset[int] = frozenset()  # rows of a giant's first part that now are the whole object
    voids: frozenset[int] = frozenset()  # rows of such a giant's other parts, which have no file
    # Rows copied in another version of their object than planned, with that version (size, token, time,
    # version id); None if the object is gone.
    pins: dict[int, Pin | None] = field(default_factory=dict)

    @classmethod
    def read(cls, journals: Path, shard_digest: str, copied: Mapping[int, Copied]) -> Self:
        """Read a shard's amendments from its journals, and from the records `copied` replayed from them.

        Raises the errors of `journal.replay`.
        """
        rows = copied.odd() if isinstance(copied, CopiedRows) else copied
        pins = {row: record.pin for row, record in rows.items() if record.pin is not None or not lies(record)}
        return cls(*journal.joined(journals, shard_digest), pins)

    def __bool__(self) -> bool:
        return bool(self.pins or self.wholes or self.voids)

    @property
    def gone(self) -> int:
        """The number of rows whose object left its source."""
        return sum(pin is None for pin in self.pins.values())

    @property
    def changed(self) -> int:
        """The number of rows copied in another version than planned."""
        return len(self.pins) - self.gone

    def left_out(self, row: int) -> bool:
        """Return whether the row has no file in the release: it is void, or its object is gone."""
        return row in self.voids or (row in self.pins and self.pins[row] is None)

    def of(self, row: int, entry: Entry) -> Entry:
        """Return the row as it was copied, or an entry of 0 bytes if it is left out."""
        if self.left_out(row):
            return entry._replace(part=-1, offset=0, size=0, length=0, reuse=None)
        if row in self.wholes:
            entry = entry._replace(part=-1, offset=0, length=entry.size, reuse=None)
        pin = self.pins.get(row)
        return entry if pin is None else pin.of(entry)

    def rows(self, shard: Iterable[Sequence[Entry]]) -> Iterator[Sequence[Entry]]:
        """Yield the groups of `run_tables.read_shard`, with each row as `of` returns it."""
        if not self:
            yield from shard
            return
        start = 0
        for group in shard:
            yield [self.of(row, entry) for row, entry in enumerate(group, start)]
            start += len(group)

    def columns(
        self, shard: Iterable[tuple[Sequence[int], pa.RecordBatch]]
    ) -> Iterator[tuple[Sequence[int], pa.RecordBatch]]:
        """Yield the groups of `run_tables.numbered`, with each row as `of` returns it, without rows left
        out."""
        from penstock.tables.run_tables import as_columns, as_rows

        touched = self.pins.keys() | self.wholes | self.voids
        for numbers, batch in shard:
            if touched.isdisjoint(numbers):
                yield numbers, batch
                continue
            kept = [row for row in numbers if not self.left_out(row)]
            entries = as_rows(batch)
            amended = [self.of(row, entries[row - numbers[0]]) for row in kept]
            for batch in as_columns(amended):
                yield kept[: batch.num_rows], batch
                kept = kept[batch.num_rows :]


def lies(copied: Copied) -> bool:
    """Return whether staging has a file for the row, as its object did not leave the source."""
    return copied.digest != journal.GONE


class RowsLeft:
    """The rows that must still be copied according to a shard's journals.

    It writes to the journals only to take back records on which attempts disagree (`journal.settle`).
    """

    def __init__(self, task: CopyTask, multipart: Multipart, outcome: Outcome) -> None:
        """Count the rows that earlier attempts did, and give `multipart` the parts of unfinished files.
        Raises the errors of `journal.replay`."""
        journal.settle(task.journals, task.shard.digest, run=task.run, host=task.host)
        copied = journal.replay(task.journals, task.shard.digest, outcome.warnings, multipart.unfinished)
        self._path, self._taken_back = task.rows, multipart.unfinished.taken_back
        self.amendments = Amendments.read(task.journals, task.shard.digest, copied)
        self.done = need_no_copy(copied, self.amendments.voids)  # rows that need no copy
        self.rows, self.bytes = task.shard.rows, task.shard.bytes  # rows left, and their bytes
        if copied or self.amendments or multipart.unfinished.parts:
            self.rows, self.bytes = _count_done(self.groups(), self.done, multipart, outcome)
        # A giant that is copied whole is recorded with its version, even if that is the planned version.
        wholes = {row for row in self.amendments.wholes if row not in self.done}
        # giants that this attempt copies whole, and their versions, which must be recorded first
        self.whole_giants = {row: Pin.planned(entry) for row, entry in self.entries(wholes).items()}
        self.amendments.pins |= self.whole_giants
        outcome.amended, outcome.gone = self.amendments.changed, self.amendments.gone
        # rows that need not, or may not, be linked
        self.unlinked = _Union(self.done, self.amendments.pins.keys() | self._taken_back)

    def groups(self) -> Iterator[Sequence[Entry]]:
        """Return all rows of the shard. A linked row that did not read back is returned without its link, or
        it would be linked again and again."""
        from penstock.tables.run_tables import read_shard

        return _without_links(self.amendments.rows(read_shard(self._path)), self._taken_back)

    def entries(self, rows: Collection[int]) -> dict[int, Entry]:
        if not rows:
            return {}
        numbered = enumerate(entry for group in self.groups() for entry in group)
        return {row: entry for row, entry in numbered if row in rows}

    def remove(self, linked: LinkedRows) -> None:
        """Count linked rows as done."""
        if linked.count:
            self.done = _Union(self.done, linked)
            self.rows, self.bytes = self.rows - linked.count, self.bytes - linked.bytes


def need_no_copy(copied: Container[int], voids: Collection[int]) -> Container[int]:
    """Return the rows copied and the void rows (`Amendments.voids`).

    The result is no set, as a set takes 70 bytes a row.
    """
    return _Union(copied, voids) if voids else copied


class _Union:
    """The rows of two collections, without a copy of either."""

    def __init__(self, first: Container[int], second: Container[int]) -> None:
        self._first, self._second = first, second

    def __contains__(self, row: object) -> bool:
        return row in self._first or row in self._second


def _count_done(
    shard: Iterable[Sequence[Entry]], done: Container[int], multipart: Multipart, outcome: Outcome
) -> tuple[int, int]:
    """Count the done rows in the outcome, and return the number of rows left and their bytes."""
    row = rows = total = 0
    begun = multipart.unfinished.parts
    for group in shard:
        for entry in group:
            size = entry.length if entry.part >= 0 else entry.size
            if row in done:
                outcome.resumed_files += 1
                outcome.resumed_bytes += size
            else:
                rows += 1
                total += size - (multipart.resume(row, entry) if row in begun else 0)
            row += 1
    return rows, total


def _without_links(shard: Iterator[Sequence[Entry]], rows: Collection[int]) -> Iterator[Sequence[Entry]]:
    """Yield the shard's rows, with `rows` marked to be copied even if the target has their files."""
    if not rows:
        yield from shard
        return
    row = 0
    for group in shard:
        numbered = enumerate(group, row)
        row += len(group)
        yield [entry._replace(reuse=None) if number in rows else entry for number, entry in numbered]
