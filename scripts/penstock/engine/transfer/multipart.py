"""Rows that are copied in parts: which parts are done, under way or to come.

`copy_shard` makes one `Multipart` in the element's process, which feeds the workers, and `batches` asks it
for jobs. It moves no bytes and writes nothing: of the target it reads only whether a temporary file of an
earlier attempt still stands; it counts in the attempt's `Outcome`. For one thread.

A store often gives each connection only so much (S3 some 80 to 100 MB/s), and a GET that is cut off begins at
the first byte again. So a large object's parts go to all streams, one conditional GET each, and the journal
holds each part that is durable: the next attempt fetches only what is missing. No row is opened before a
stream has nothing else to do: as many files grow at once as there are streams, and one that is alone is
fetched by all of them.

A folder's large file is one job (`part.in_order`), which goes on at the last mark that earlier attempts left.

An object that cannot be copied in parts (a web server without ranges, parts that contradict the source
together, here or when verify reads them in order, a temporary file that another attempt has renamed) is
fetched whole by one stream, which reports the error, if there is one.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING

from penstock.config.source_kinds import of_url
from penstock.core.row_codec import parts_of
from penstock.engine.part import (
    BEGIN,
    BEGUN,
    DROP,
    DROPPED,
    FETCH,
    FINISH,
    STEP,
    WHOLE,
    Unfinished,
    doing,
    fetching,
    in_order,
    most_lost,
    part_bytes,
    temporary_name,
)
from penstock.engine.tasks import Batch
from penstock.sources.registry import pinned, same_bytes
from penstock.target import part_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.core.model import Entry, PartLine
    from penstock.engine.tasks import BatchAnswer, CopyTask, FailedRow, Outcome


UNDER_WAY = 384 << 20
"""Bytes of parts for which streams are started, or an eighth of all if that is more."""


class OpenRow:
    """One row, copied in parts of `size` bytes (the last one may be smaller): its temporary file, and which
    parts of it are done, on their way, or to come."""

    def __init__(self, row: int, entry: Entry, size: int) -> None:
        self.row, self.entry, self.size = row, entry, size
        self.count = -(-entry.size // size)
        self.temporary = temporary_name()
        self.lines: dict[int, PartLine] = {}
        """The parts that are done, by number."""
        self.bytes = self.resumed = 0
        """Bytes of the parts that this attempt has done, and of those that earlier attempts had done."""
        self.under_way = 0
        """Jobs of the row that were made and are not answered yet."""
        self.stopped = False
        """No further part of it is fetched: it failed, or it is to be fetched whole."""
        self.whole = False
        """Once no job of the row is under way, its temporary file is removed and one stream fetches the
        row."""
        self._next = 0

    def part(self) -> int | None:
        """The number of the next part that is to be fetched, given once; None where there is no further one,
        or the row is stopped."""
        while self._next < self.count and self._next in self.lines:
            self._next += 1
        if self.stopped or self._next == self.count:
            return None
        self._next += 1
        return self._next - 1

    @property
    def complete(self) -> bool:
        """Whether all parts are done: the file may be finished."""
        return len(self.lines) == self.count


class Multipart:
    """Cuts rows into jobs and follows them: `open` begins a row, `next` gives what an open row needs, `take`
    gets the answers."""

    def __init__(self, task: CopyTask, outcome: Outcome) -> None:
        self._task, self._outcome = task, outcome
        self._urls = [source.url for source in task.dataset.sources]
        self.unfinished = Unfinished()
        """What the journals say of rows without a record; filled by `rows_left`."""
        self.numbers = count()
        """Numbers of all jobs (batches) of this attempt, also of those that are not of parts."""
        self._open: deque[OpenRow] = deque()
        self._ready: deque[tuple[OpenRow, int]] = deque()
        self._jobs: dict[int, tuple[OpenRow, int, int]] = {}
        """By the batch's number: its row, its work (`engine.part`) and the number of its part."""
        self._resumed: dict[tuple[int, str], int] = {}
        self.waiting: Callable[[], int] = int
        """Bytes of parts that are done and not recorded yet."""
        self._handed: dict[int, int] = {}
        """Bytes of the parts that `next` gave and that did not come back: only these are known to be on
        their way, others may wait to be given."""
        self._fetching = 0
        self.streams: Callable[[], int] = int
        """How many streams work now."""

    def units(self, rows: int, total: int) -> int:
        """How many streams could be busy with `rows` rows of `total` bytes in all; at least `rows`."""
        mean = total // rows if rows else 0
        if mean < self._task.large_bytes or not any(of_url(url).pins for url in self._urls):
            return rows
        part = self._task.part_bytes or part_bytes(mean)
        return max(rows, min(total, max(UNDER_WAY, total // 8)) // part)

    def goes_in_parts(self, row: int, entry: Entry) -> bool:
        """Whether the row is copied in parts: it is large enough, may not be linked, and its token tells any
        two versions of the object apart, so that bytes of two versions never become one file."""
        return (
            entry.part < 0
            and entry.size >= self._task.large_bytes
            and not entry.reuse
            and row not in self.unfinished.contradicted
            and same_bytes(self._urls[entry.source], entry.token)
        )

    def open(self, row: int, entry: Entry) -> Batch:
        """The first job of a row; of a folder's file the only one."""
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
        """Bytes of a row that need not be fetched again. They are added to the outcome's `resumed_bytes`,
        once for each version of the row."""
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
        """How far earlier attempts came with a folder's file, whose temporary file is still there, or has the
        final name already and all its bytes before the mark; None where they did nothing that counts. The
        stream that goes on compares the bytes there with the mark first."""
        marks = self.unfinished.parts.get(row, ()) if self.goes_in_parts(row, entry) else ()
        dropped = {line.temporary for line in marks if line.number == DROPPED}
        for mark in sorted(marks, key=attrgetter("part_bytes"), reverse=True):
            names = [mark.temporary]
            if row not in self.unfinished.taken_back and mark.part_bytes == entry.size:
                names.append(entry.path.rpartition("/")[2])
            if mark.token != entry.token or mark.temporary in dropped:
                continue
            if any(
                part_files.multipart_stands(self._task.data, entry.path, name, entry.size) for name in names
            ):
                return mark
        return None

    def _met(self, row: int, entry: Entry) -> Sequence[PartLine]:
        """What earlier attempts did of a row, of one temporary file that is still there; () for nothing.

        Where all parts are done the file may have its name already, and only the record is missing; a
        file whose record was taken back is not met again."""
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
                or part_files.multipart_stands(self._task.data, entry.path, temporary, entry.size)
            ):
                longest = lines
        return longest

    @property
    def goes_on(self) -> bool:
        """Whether further parts are to be fetched, of rows that were begun."""
        return bool(self._open) or any(work == BEGIN for _, work, _ in self._jobs.values())

    @property
    def full(self) -> bool:
        """Whether so much is on its way, or done and not recorded, that nothing more is begun. Then
        something is on its way: the question is asked again when it comes."""
        return (
            self._fetching > 0
            and self._fetching + self.waiting() >= most_lost(self.streams())
            and not self._ready
        )

    def next(self) -> Batch | None:
        """The next job of an open row; None where none can be done now."""
        if self._ready:
            return self._job(*self._ready.popleft())
        while self._open:
            opened = self._open.popleft()
            number = opened.part()
            if number is not None:
                # In turn: streams that write to one file wait for one another in the kernel.
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
        """Count a part's result, and advance its row. The failures to be reported; None for a job of other
        rows, which the caller counts."""
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
            # The row's first failure decides: it is reported, or the row is fetched whole; never both.
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
