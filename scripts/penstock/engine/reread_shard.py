"""Reads one shard back from the target, compares it with its journal, writes its records.

An element of verify calls `reread_shard`. It reads staging (the tree in which the release grows), the shard's
journals, the manifest of the release that files were linked from, and what was seen of an adopted tree. It
takes lines of the journal back, writes the shard's records (`task.records`: what each file became) and, for
linked rows that differ, the note `task.damage`. It starts worker processes, which are gone when it returns,
and for linked rows the vendor's command of the file system, where there is one.

Each record says how the caches were passed, on which host, and which host had written the row; of a row that
is carried over (not read again, since it was read lately), it says this of the last reading. A row that is
missing or differs is a failure: its journal line is taken back so that the next copy makes the file anew, and
the shard's records do not appear.
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
from penstock.core.columns import COLUMNS, JOURNAL, RECORDS
from penstock.core.digests import XXH3, Proof, as_giant, is_in_parts, is_plain
from penstock.core.digests import listed as digests_of
from penstock.core.documents.differences import SAME
from penstock.core.errors import FailedError
from penstock.core.grades import CARRIED, source_rank
from penstock.core.model import Entry, Expected, RereadRow, nearest_time
from penstock.core.row_codec import expecting
from penstock.engine.reading.rows_here import Recall, length_of, rows_here
from penstock.engine.records import journal
from penstock.engine.records.amendments import Amendments, lies
from penstock.engine.shard_run import PoolRun
from penstock.engine.tasks import Failure, Outcome
from penstock.engine.workers.work_kinds import ReadWork
from penstock.fs.errno_map import printable
from penstock.fs.store_checks import data_states

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.core.model import Copied, Surveyed
    from penstock.engine.reading.carried_rows import CarriedRows
    from penstock.engine.records.copied_rows import CopiedRows
    from penstock.engine.tasks import Batch, BatchAnswer, Report, RereadTask, StopCheck
    from penstock.fs.stores.facts import DataState

_CARRIED = [
    column.name
    for column in COLUMNS
    if {JOURNAL, RECORDS} <= column.stands.keys()
    and column.name not in ("row", "digest", "source_grade", "source_proof")
]
"""What a record has as the journal says it. Digest and proof are settled by reading (`_settled`)."""
_KNOWN = ("digest", "source_grade", "source_proof", *_CARRIED)
METHODS = ("unread", "cached", "dropped", "direct", "disk")
"""How the caches were passed when a row was read; a row's method is kept as its index in here."""


def storage_grade(method: str, written_host: str, host: str) -> str:
    """How strongly a row is proven to be stored (`core.grades`), by how it was read and on which hosts it was
    written ("": not known) and read. Pure.

    | method                | read where it was written, or that is not known | elsewhere       |
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
    """Read back every row that is not carried over, and write `task.records` when no row failed; rows that
    did are in the outcome's `failures`. A linked row is also compared with the checksum that its source
    states now, unless the copy's record shows that this checksum held before.

    Raises InterruptedRunError after a tidy stop, and FailedError for what concerns more than a row.
    """
    outcome = Outcome()
    # The limit is on what is read from the source.
    engine = replace(task.engine, limit=None)
    with contextlib.closing(PoolRun(outcome, engine, task.shard, report)) as run:
        _reread(task, run, stop)
    return outcome


class _ReadRows:
    """The workers' answers, by row, in a few flat arrays: 25 bytes a row."""

    def __init__(self, rows: int) -> None:
        self.methods = bytearray(rows)
        self.mtimes = array("q", bytes(8 * rows))
        self.ctimes = array("q", bytes(8 * rows))
        self.inodes = array("Q", bytes(8 * rows))
        self.more: dict[int, RereadRow] = {}
        """Rows with more than that: a giant's parts, further digests, a checksum that held."""

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
    """Decides which rows of a release are not opened, since their data is not here, and counts them.

    | the row                                             | is                                          |
    |-----------------------------------------------------|---------------------------------------------|
    | one that `Recall` has read, with `task.recall`      | read                                        |
    | any other, a whole file with the plain digest alone | recorded as the release has it, `unread`    |
    | any other                                           | a failure: without reading it has no record |
    """

    def __init__(self, task: RereadTask, reread: _ReadRows, outcome: Outcome) -> None:
        self._task, self._reread, self._outcome = task, reread, outcome
        self._recall = Recall(task.recall)
        self._files: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def __call__(self, row: int, entry: Expected, state: DataState) -> bool:
        """Whether the row is left out."""
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
        """A warning for each kind."""
        for place in sorted(self._files):
            yield (
                f"{self._files[place]:,} linked files, {human.size(self._bytes[place])}, are {place}, and "
                "were not read back: they count as `written`"
            )


class _Adopted:
    """Files of an adopted tree: they were read before they were taken over, and are not read again while
    nobody has touched them since.

    | the row's times         | read then, past the caches | it is                        |
    |-------------------------|----------------------------|------------------------------|
    | those that it had then  | yes                        | recorded as it was read then |
    | those that it had then  | no                         | read now                     |
    | others                  | any                        | read now                     |

    A reading that met a page in memory is the weaker proof, which a second one may raise.
    """

    def __init__(self, task: RereadTask, copied: Mapping[int, Copied]) -> None:
        self.read: dict[int, Surveyed] = {}
        """The rows that are recorded as they were read then."""
        self._rows: dict[int, Surveyed] = {}
        further = set(task.verify.digests) - {XXH3}
        if task.adopted is None or further or task.verify.whole_giants:
            return
        from penstock.tables.survey_file import ShardSurvey

        survey = ShardSurvey(task.adopted, task.shard.rows)
        numbers = [row for row, known in copied.items() if known.staging and survey.state(row) == SAME]
        found = zip(numbers, survey.rows(numbers), strict=True) if numbers else ()
        self._rows = {
            row: one for row, one in found if one.digest == copied[row].digest and one.method != "cached"
        }

    def unread(self, groups: Iterator[list[Expected]]) -> Iterator[list[Expected]]:
        """The rows, without a digest where they need not be read: only their times are looked at."""
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
        """Rows that have to be read after all. They are not unread any more."""
        moved = {
            row
            for row, one in self._rows.items()
            if (reread.inodes[row], reread.mtimes[row], reread.ctimes[row])
            != (one.inode, one.mtime_ns, one.ctime_ns)
        }
        for row in moved:
            del self._rows[row]
        return moved

    def settle(self, reread: _ReadRows) -> None:
        """Record the others as they were read then."""
        for row, one in self._rows.items():
            reread.methods[row] = METHODS.index(one.method)
        self.read = self._rows


def _reread(task: RereadTask, run: PoolRun, stop: StopCheck) -> None:
    outcome = run.outcome
    from penstock.engine.batches import batches
    from penstock.engine.reading.carried_rows import judge
    from penstock.fs import clock
    from penstock.fs.capabilities import direct_reads, facts
    from penstock.fs.probe.judgement import limited
    from penstock.tables.shards import read_shard

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
    # What is read below is read from here on.
    now = clock.both(task.records.parent)
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
        seen = limited(facts(task.data), task.probe)
        # Jobs may have read the files of an adopted tree before it became this staging.
        direct = direct_reads(seen, verify.direct, published=task.adopted is not None)
        work = ReadWork(task.data, digests=verify.digests, whole=whole, direct=direct)
        left = rows - len(carried)
        run.start_reading(work, left)
        run.pool.rests, run.pool.fed = task.rests, run.counted_before(task.fed)

        def take(_: Batch, answer: BatchAnswer) -> None:
            reread.add(answer.results)
            run.fail(answer.failures)
            bad.extend(one.row for one in answer.failures)
            contradicted.update(one.row for one in answer.failures if one.failure.contradicts)
            linked = [one.failure for one in answer.failures if _from_release(copied[one.row])]
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
                    """Files of an adopted tree that were touched since they were taken over."""
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
    """Durably note that a linked row is not as its release states."""
    from penstock.fs import durable

    if task.damage is not None:
        durable.make_dirs(task.damage.parent)
        durable.write_file(task.damage, b"")


def _not_gone(task: RereadTask, changes: Amendments, outcome: Outcome) -> list[int]:
    """Rows whose object is gone, and in whose place something lies all the same: a late attempt wrote it."""
    from penstock.tables.shards import read_shard

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
    """Those that were copied in parts."""
    return frozenset(row for row in rows if is_in_parts(copied[row].digest))


def _take_back(task: RereadTask, bad: Sequence[int], contradicted: Container[int] = ()) -> None:
    """Of attempts that ran at once each may have recorded such a row. `contradicted`: by their source."""
    journal.take_back(
        task.journals,
        task.shard.digest,
        frozenset(bad),
        run=task.run,
        host=task.host,
        contradicted=contradicted,
    )


def _from_release(known: Copied) -> bool:
    return known.linked and not known.staging


_BLANK = Expected("", 0)
"""In place of a row that is carried over."""


def _nothing() -> None:
    return None


def _stronger(one: Proof, other: Proof) -> Proof:
    """The first of equals."""
    return one if source_rank(one.grade) >= source_rank(other.grade) else other


def _but(path: Path, carried: Container[int]) -> Iterator[Sequence[Entry]]:
    """The groups of `read_shard`, in which one and the same row stands for all that are `carried` over:
    nothing is asked of it."""
    from penstock.tables.shards import as_rows, numbered

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
    """The rows with the digest that each must have, "" where it need not be read. Rows that no journal has,
    and those that are `carried` over, are noted in `absent` before their group is handed on."""
    row = 0
    for group in shard:
        rows: list[Expected] = []
        for entry in group:
            if row in carried:
                absent.add(row)
                rows.append(_BLANK)
                row += 1
                continue
            known = copied.get(row)
            if known is None or not lies(known):
                absent.add(row)
                rows.append(expecting(entry, ""))
            elif is_in_parts(known.digest):
                owed = str(known.owed) if known.owed else ""
                rows.append(
                    expecting(entry, as_giant(known.digest), entry.checksum, in_parts=True, owed=owed)
                )
            else:
                # Bytes that came by the wire were compared with it then.
                linked = known.linked or entry.reuse is not None
                checksum = entry.checksum if linked and known.source_proof != entry.checksum else ""
                rows.append(expecting(entry, known.digest, checksum))
            row += 1
        yield rows


class _Settled(NamedTuple):
    """The digest and proof of a row's record, after all its bytes were read."""

    digest: str
    source_grade: str
    source_proof: str
    parts: bytes = b""
    digests: str = ""


def _settled(known: Copied, more: RereadRow) -> _Settled:
    digest, further = known.digest, more.digests
    proof = Proof(known.source_grade, known.source_proof)
    if is_in_parts(digest):
        own, *others = digests_of(further)
        digest, further = str(own), " ".join(map(str, others))
        proof = known.owed or proof
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
    """The shard's records. What was read was read at `read_at`, in seconds since the epoch, or later."""
    from penstock.tables.records import extend_shard
    from penstock.tables.shards import numbered

    host = task.host
    # What was copied on the target was written for this release.
    links = copied.links() if task.way != "copy" else ()
    grades, passed = Counter[str](), Counter[str]()

    def columns(rows: Sequence[int]) -> Mapping[str, Sequence[object]]:
        count = len(rows)
        known = copied.columns(rows, _KNOWN)
        methods = [METHODS[code] for code in map(reread.methods.__getitem__, rows)]
        written = known["written_host"]
        # Few combinations: the table is asked once for each.
        read_by, times = [host] * count, [read_at] * count
        for place, row in enumerate(rows if adopted else ()):
            if row in adopted:
                read_by[place] = adopted[row].verified_host
                times[place] = adopted[row].seen_ns // 10**9
        how = list(zip(methods, written, read_by, strict=True))
        table = {one: storage_grade(*one) for one in set(how)}
        stored = [table[one] for one in how]
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
            **known,
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
    """Put the last reading of the rows that are carried over into their records."""
    from penstock.engine.reading.carried_rows import LastReading

    names = LastReading._fields
    columns = [records[name] for name in names]
    for place, row in enumerate(rows):
        if row in carried:
            for column, value in zip(columns, carried.last(row), strict=True):
                column[place] = value
            for name, times in carried.times.items():
                records[name][place] = times[row]
            records["carried"][place] = 1
