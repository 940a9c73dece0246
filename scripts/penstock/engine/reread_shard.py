"""Reads one shard back from the target, compares it with its journal, and writes its records.

Each record says how the read bypassed the caches, which host read the row, and which host wrote it. A row
carried over was read recently: it is not read again, and its record keeps the last reading's values. A row
that is missing or differs is a failure, and the shard's records are not written. The row's journal line is
taken back, so that the next copy makes the file again. If the row is linked, the file `task.damage` is
written as well.
"""

from __future__ import annotations

import contextlib
import os
from array import array
from collections import Counter
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.core import human
from penstock.core.errors import FailedError
from penstock.core.findings import SAME
from penstock.core.grades import CARRIED, source_rank
from penstock.core.model import (
    XXH3,
    Entry,
    Expected,
    Proof,
    RereadRow,
    as_giant,
    is_in_parts,
    is_plain,
    nearest_time,
)
from penstock.core.model import listed as digests_of
from penstock.core.row_codec import COLUMNS, JOURNAL, RECORDS, expecting
from penstock.engine import journal
from penstock.engine.rows_left import Amendments, lies
from penstock.engine.shard_run import PoolRun, Recall, length_of, rows_here
from penstock.engine.tasks import Failure, Outcome
from penstock.engine.work_kinds import ReadWork
from penstock.fs.safe_open import printable
from penstock.fs.store_checks import data_states

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.core.model import Copied, Surveyed
    from penstock.engine.journal import CopiedRows
    from penstock.engine.linked_rows import CarriedRows
    from penstock.engine.tasks import Batch, BatchAnswer, Report, RereadTask, StopCheck
    from penstock.fs.stores import DataState

# Fields that a record takes from the journal. `_settled` sets digest and proof after the reading.
_CARRIED = [
    column.name
    for column in COLUMNS
    if {JOURNAL, RECORDS} <= column.stands.keys()
    and column.name not in ("row", "digest", "source_grade", "source_proof")
]
_KNOWN = ("digest", "source_grade", "source_proof", *_CARRIED)
# the ways in which a read treated the caches; a row's method is kept as its index in this tuple
METHODS = ("unread", "cached", "dropped", "direct", "disk")


def storage_grade(method: str, written_host: str, host: str) -> str:
    """Return the grade of proof that a row is stored (`core.grades`).

    | method                | read on `written_host`, or `written_host` is "" | elsewhere       |
    |-----------------------|-------------------------------------------------|-----------------|
    | unread                | written                                         | written         |
    | cached                | reread                                          | reread          |
    | dropped, direct, disk | cold                                            | cold-other-node |
    """
    if method == "unread":
        return "written"
    if method == "cached":
        return "reread"
    return "cold" if written_host in ("", host) else "cold-other-node"


def reread_shard(task: RereadTask, report: Report, stop: StopCheck) -> Outcome:
    """Read back every row that is not carried over, and write `task.records` if no row failed.

    A linked row is also compared with the checksum that its source states now, unless its record shows that
    this checksum matched before. Raises InterruptedRunError after a tidy stop, and FailedError if the error
    concerns more than a row.
    """
    outcome = Outcome()
    # `engine.limit` limits only reads from the source.
    engine = replace(task.engine, limit=None)
    with contextlib.closing(PoolRun(outcome, engine, task.shard, report)) as run:
        _reread(task, run, stop)
    return outcome


class _ReadRows:
    """The workers' answers, in arrays with the row's number as index: 25 bytes a row."""

    def __init__(self, rows: int) -> None:
        self.methods = bytearray(rows)
        self.mtimes = array("q", bytes(8 * rows))
        self.ctimes = array("q", bytes(8 * rows))
        self.inodes = array("Q", bytes(8 * rows))
        # rows with further values: a giant's parts, further digests, a checksum that matched
        self.more: dict[int, RereadRow] = {}

    def add(self, readings: Iterable[RereadRow]) -> None:
        code, methods, mtimes, ctimes = METHODS.index, self.methods, self.mtimes, self.ctimes
        inodes = self.inodes
        for reading in readings:
            row = reading.row
            methods[row], mtimes[row], ctimes[row] = code(reading.method), reading.mtime_ns, reading.ctime_ns
            inodes[row] = reading.inode
            if reading.parts or reading.digests or reading.proven:
                self.more[row] = reading


class _Left:
    """Decides which linked rows are not opened because their data is behind a tier. Counts these rows.

    | the row                                             | result                                      |
    |-----------------------------------------------------|---------------------------------------------|
    | `Recall` reads it, with `task.recall`               | read                                        |
    | any other row that is a whole file with a plain     | recorded with the release's values, as      |
    | digest and needs no further digest                  | `unread`                                    |
    | any other row                                       | a failure: its record needs a reading       |
    """

    def __init__(self, task: RereadTask, reread: _ReadRows, outcome: Outcome) -> None:
        self._task, self._reread, self._outcome = task, reread, outcome
        self._recall = Recall(task.recall)
        self._files: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def __call__(self, row: int, entry: Expected, state: DataState) -> bool:
        """Return whether the row must not be opened."""
        if self._recall.reads(entry, state):
            return False
        where, further = printable(entry.path), set(self._task.verify.digests) - {XXH3}
        if entry.part >= 0 or entry.in_parts or further or not is_plain(entry.digest):
            self._fails(where, f"it must be read for its digests, and is {state.place}: {state.why}")
            return True
        try:
            stat = os.lstat(self._task.data / entry.path)
        except OSError as error:
            self._fails(where, str(error.strerror))
            return True
        if stat.st_size != entry.size:
            self._fails(where, f"{state.why}, of {stat.st_size} bytes, lies in its place")
            return True
        reading = RereadRow(
            row, "unread", nearest_time(stat.st_mtime_ns), stat.st_ctime_ns, inode=stat.st_ino
        )
        self._reread.add([reading])
        self._files[state.place] += 1
        self._bytes[state.place] += length_of(entry)
        return True

    def _fails(self, where: str, why: str) -> None:
        problem = f"it is linked from a release: {why}; have it restored, or set `plan.reuse: none`"
        self._outcome.failures.append(Failure(where, problem, FailedError.exit_code, False))

    def warnings(self) -> Iterator[str]:
        """Yield a warning for each place that holds the data of rows that were not opened."""
        for place in sorted(self._files):
            yield (
                f"{self._files[place]:,} linked files, {human.size(self._bytes[place])}, are {place}, and "
                "were not read back: they count as `written`"
            )


class _Adopted:
    """Files of an adopted tree. The survey read them before adoption, and verify reads a file again only if
    it was touched since.

    | inode and times now | the survey's read bypassed the caches | result                            |
    |---------------------|---------------------------------------|-----------------------------------|
    | as in the survey    | yes                                   | recorded with the survey's values |
    | as in the survey    | no                                    | read now                          |
    | different           | yes or no                             | read now                          |

    A read from cached pages is a weaker proof, and reading again may give a stronger one.
    """

    def __init__(self, task: RereadTask, copied: Mapping[int, Copied]) -> None:
        self.read: dict[int, Surveyed] = {}  # rows that are recorded with the survey's values
        self._rows: dict[int, Surveyed] = {}
        further = set(task.verify.digests) - {XXH3}
        if task.adopted is None or further or task.verify.whole_giants:
            return
        from penstock.tables.run_tables import ShardSurvey

        survey = ShardSurvey(task.adopted, task.shard.rows)
        numbers = [row for row, record in copied.items() if record.staging and survey.state(row) == SAME]
        survey_rows = zip(numbers, survey.rows(numbers), strict=True) if numbers else ()
        self._rows = {
            row: surveyed
            for row, surveyed in survey_rows
            if surveyed.digest == copied[row].digest and surveyed.method != "cached"
        }

    def unread(self, groups: Iterator[list[Expected]]) -> Iterator[list[Expected]]:
        """Yield the rows. A row of which only the times need a check gets no digest."""
        if not self._rows:
            yield from groups
            return
        row = 0
        for group in groups:
            numbered = enumerate(group, row)
            row += len(group)
            yield [
                entry._replace(digest="", checksum="") if number in self._rows else entry
                for number, entry in numbered
            ]

    def touched(self, reread: _ReadRows) -> set[int]:
        """Return the rows touched since the survey, which must be read, and forget them."""
        moved = {
            row
            for row, surveyed in self._rows.items()
            if (reread.inodes[row], reread.mtimes[row], reread.ctimes[row])
            != (surveyed.inode, surveyed.mtime_ns, surveyed.ctime_ns)
        }
        for row in moved:
            del self._rows[row]
        return moved

    def settle(self, reread: _ReadRows) -> None:
        """Give the rows that were not touched the method by which the survey read them."""
        for row, surveyed in self._rows.items():
            reread.methods[row] = METHODS.index(surveyed.method)
        self.read = self._rows


def _reread(task: RereadTask, run: PoolRun, stop: StopCheck) -> None:
    outcome = run.outcome
    from penstock.engine.linked_rows import judge
    from penstock.engine.rows_left import batches
    from penstock.fs import capabilities
    from penstock.fs.capabilities import direct_reads, facts
    from penstock.fs.probe_judgement import limited
    from penstock.tables.run_tables import read_shard

    if not task.data.is_dir():
        raise FailedError(
            "the folder to read back is not there",
            where=str(task.data),
            hint="see whether the file system is mounted on that node; then run the same command again",
        )
    copied = journal.replay(task.journals, task.shard.digest)
    changes = Amendments.read(task.journals, task.shard.digest, copied)
    reread = _ReadRows(task.shard.rows)
    absent: set[int] = set()
    rows = len(copied) - changes.gone
    missing = task.shard.rows - len(copied) - len(changes.voids)
    # the time before all reads below
    now = capabilities.both(task.records.parent)
    carried, adopted = judge(task, copied, now), _Adopted(task, copied)
    outcome.carried = carried.files, carried.bytes
    outcome.resumed_files, outcome.resumed_bytes = outcome.carried
    if missing:
        outcome.failures.append(Failure(str(task.journals), f"{missing} rows were not copied yet", 1, True))
    bad = _not_gone(task, changes, outcome)
    contradicted: set[int] = set()
    if rows > len(carried):
        verify = task.verify
        whole = verify.whole_giants
        storage = limited(facts(task.data), task.probe)
        # Other jobs may have read an adopted tree's files before, so their pages may be cached.
        direct = direct_reads(storage, verify.direct, published=task.adopted is not None)
        work = ReadWork(task.data, digests=verify.digests, whole=whole, direct=direct)
        left = rows - len(carried)
        run.start_reading(work, left)
        run.pool.rests, run.pool.fed = task.rests, run.counted_before(task.fed)

        def take(_: Batch, answer: BatchAnswer) -> None:
            reread.add(answer.results)
            run.fail(answer.failures)
            bad.extend(failed.row for failed in answer.failures)
            contradicted.update(failed.row for failed in answer.failures if failed.failure.contradicts)
            linked = [failed.failure for failed in answer.failures if _from_release(copied[failed.row])]
            if linked:
                _note(task)
            outcome.linked_failures += linked
            outcome.add(answer)

        shard = changes.rows(read_shard(task.rows)) if changes else _but(task.rows, carried)
        wanted = adopted.unread(_wanted(shard, copied, carried, absent))
        away = _Left(task, reread, outcome)
        try:
            links = copied.links()
            states = data_states(task.data, task.named) if links else None
            with rows_here(wanted, absent, states, away, links.__contains__) as present:

                def again() -> Iterator[Batch] | None:
                    """Return the files of an adopted tree that were touched since they were taken over."""
                    if not (touched := adopted.touched(reread)):
                        return None
                    others = set(range(task.shard.rows)) - touched
                    groups = _wanted(changes.rows(read_shard(task.rows)), copied, carried, set())
                    return batches(groups, others, len(touched), outcome.workers)

                run.go(batches(present, absent, left, outcome.workers), take, _nothing, stop, again=again)
                adopted.settle(reread)
        finally:
            _take_back(task, bad, _in_parts(contradicted, copied))
        outcome.warnings += away.warnings()
    else:
        _take_back(task, bad)
        run.rest()
    outcome.amended, outcome.gone, outcome.left_out = changes.changed, changes.gone, task.shard.rows - rows
    if not outcome.failures:
        _write(task, copied, changes, reread, carried, outcome, adopted.read, int(now.earliest))


def _note(task: RereadTask) -> None:
    """Durably write the file that says that a linked row differs from its release."""
    from penstock.fs import small_files

    if task.damage is not None:
        small_files.make_dirs(task.damage.parent)
        small_files.write_file(task.damage, b"")


def _not_gone(task: RereadTask, changes: Amendments, outcome: Outcome) -> list[int]:
    """Return the rows whose object is gone but whose path exists, since a late attempt wrote it."""
    from penstock.tables.run_tables import read_shard

    if not changes.gone:
        return []
    occupied = []
    numbered = enumerate(entry for group in read_shard(task.rows) for entry in group)
    for row, entry in numbered:
        if row in changes.pins and changes.pins[row] is None and os.path.lexists(task.data / entry.path):
            why = "its object left the source, and something lies in its place"
            outcome.failures.append(Failure(printable(entry.path), why, 1, True))
            occupied.append(row)
    return occupied


def _in_parts(rows: Iterable[int], copied: Mapping[int, Copied]) -> frozenset[int]:
    return frozenset(row for row in rows if is_in_parts(copied[row].digest))


def _take_back(task: RereadTask, bad: Sequence[int], contradicted: Container[int] = ()) -> None:
    """Take back all records of the `bad` rows, as each of several overlapping attempts may have made one."""
    journal.take_back(
        task.journals,
        task.shard.digest,
        frozenset(bad),
        run=task.run,
        host=task.host,
        contradicted=contradicted,
    )


def _from_release(record: Copied) -> bool:
    return record.linked and not record.staging


_BLANK = Expected("", 0)  # takes the place of a row that is carried over


def _nothing() -> None:
    return None


def _stronger(first: Proof, second: Proof) -> Proof:
    """Return the stronger proof, or the first if they are equally strong."""
    return first if source_rank(first.grade) >= source_rank(second.grade) else second


def _but(path: Path, carried: Container[int]) -> Iterator[Sequence[Entry]]:
    """Yield the groups of `read_shard`, with a blank row for each row carried over."""
    from penstock.tables.run_tables import as_rows, numbered

    blank = Entry("", "", 0, "", 0)
    for numbers, batch in numbered(path):
        left = [place for place, row in enumerate(numbers) if row not in carried]
        group = [blank] * len(numbers)
        for place, entry in zip(left, as_rows(batch.take(left)) if left else (), strict=True):
            group[place] = entry
        yield group


def _wanted(
    shard: Iterable[Sequence[Entry]],
    copied: Mapping[int, Copied],
    carried: Container[int],
    absent: set[int],
) -> Iterator[list[Expected]]:
    """Yield the rows, each with the digest that it must have.

    Before it yields a group, it adds its rows without a file, and its rows carried over, to `absent`.
    """
    row = 0
    for group in shard:
        rows: list[Expected] = []
        for entry in group:
            if row in carried:
                absent.add(row)
                rows.append(_BLANK)
                row += 1
                continue
            record = copied.get(row)
            if record is None or not lies(record):
                absent.add(row)
                rows.append(expecting(entry, ""))
            elif is_in_parts(record.digest):
                owed = str(record.owed) if record.owed else ""
                rows.append(
                    expecting(entry, as_giant(record.digest), entry.checksum, in_parts=True, owed=owed)
                )
            else:
                # Bytes that were fetched from the source were compared with its checksum at that time.
                linked = record.linked or entry.reuse is not None
                checksum = entry.checksum if linked and record.source_proof != entry.checksum else ""
                rows.append(expecting(entry, record.digest, checksum))
            row += 1
        yield rows


class _Settled(NamedTuple):
    """The digest and proof of a row's record, after all its bytes were read."""

    digest: str
    source_grade: str
    source_proof: str
    parts: bytes = b""
    digests: str = ""


def _settled(record: Copied, more: RereadRow) -> _Settled:
    digest, further = record.digest, more.digests
    proof = Proof(record.source_grade, record.source_proof)
    if is_in_parts(digest):
        own, *others = digests_of(further)
        digest, further = str(own), " ".join(map(str, others))
        proof = record.owed or proof
    if more.proven:
        proof = _stronger(Proof.parse(more.proven), proof)
    return _Settled(digest, proof.grade, proof.checksum, more.parts, further)


def _write(
    task: RereadTask,
    copied: CopiedRows,
    changes: Amendments,
    reread: _ReadRows,
    carried: CarriedRows,
    outcome: Outcome,
    adopted: Mapping[int, Surveyed],
    read_at: int,
) -> None:
    """Write the shard's records. `read_at`, in seconds since the epoch, is a time before all reads."""
    from penstock.tables.manifest import extend_shard
    from penstock.tables.run_tables import numbered

    host = task.host
    # With the way `copy`, files were written for this release, and are shared with no other release.
    links = copied.links() if task.way != "copy" else ()
    grades, passed = Counter[str](), Counter[str]()

    def columns(rows: Sequence[int]) -> Mapping[str, Sequence[object]]:
        count = len(rows)
        record_columns = copied.columns(rows, _KNOWN)
        methods = [METHODS[code] for code in map(reread.methods.__getitem__, rows)]
        written = record_columns["written_host"]
        # Grade each combination once, as there are few of them.
        read_by, times = [host] * count, [read_at] * count
        for place, row in enumerate(rows if adopted else ()):
            if row in adopted:
                read_by[place] = adopted[row].verified_host
                times[place] = adopted[row].seen_ns // 10**9
        how = list(zip(methods, written, read_by, strict=True))
        table = {combination: storage_grade(*combination) for combination in set(how)}
        stored = [table[combination] for combination in how]
        records: dict[str, list[Any]] = {
            "storage_grade": stored,
            "method": methods,
            "verified_host": read_by,
            "attempt": [task.attempt] * count,
            "mtime_ns": [reread.mtimes[row] for row in rows],
            "ctime_ns": [reread.ctimes[row] for row in rows],
            "inode": [reread.inodes[row] for row in rows],
            "read_at": [0 if method == "unread" else at for method, at in zip(methods, times, strict=True)],
            "carried": [0] * count,
            "shared": [int(row in links or row in adopted) for row in rows],
            "parts": [b""] * count,
            "digests": [""] * count,
            **record_columns,
        }
        for place, row in enumerate(rows) if reread.more else ():
            if (more := reread.more.get(row)) is not None:
                for name, value in _settled(copied[row], more)._asdict().items():
                    records[name][place] = value
        if carried:
            _carry(records, carried, rows)
        not_carried = [not flag for flag in records["carried"]]
        grades.update(compress(stored, not_carried))
        passed.update(compress(methods, not_carried))
        return records

    extend_shard(task.records, changes.columns(numbered(task.rows)), columns)
    outcome.grades = dict(grades)
    outcome.methods = {name: passed[name] for name in METHODS if passed[name]}
    if carried:
        outcome.grades[CARRIED] = outcome.methods[CARRIED] = len(carried)


def _carry(records: Mapping[str, list[Any]], carried: CarriedRows, rows: Sequence[int]) -> None:
    """Put the values of the last reading into the records of rows carried over."""
    from penstock.engine.linked_rows import LastReading

    names = LastReading._fields
    columns = [records[name] for name in names]
    for place, row in enumerate(rows):
        if row in carried:
            for column, value in zip(columns, carried.last(row), strict=True):
                column[place] = value
            for name, times in carried.times.items():
                records[name][place] = times[row]
            records["carried"][place] = 1
