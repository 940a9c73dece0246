"""Reads one shard for an audit or for adopt. An audit finds rows of a release that differ from the published
rows. Adopt compares a listing with a tree that penstock did not write.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.core.findings import AWAY, READ, STALE
from penstock.core.model import AuditedRow, Surveyed
from penstock.core.run_documents import ProbeReport
from penstock.engine.credential_renewal import Credentials
from penstock.engine.shard_run import PoolRun, ResumableReading, length_of
from penstock.engine.tasks import Outcome
from penstock.engine.work_kinds import ReadWork, SurveyWork
from penstock.fs import small_files
from penstock.fs.kinds import AUTO

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penstock.config.settings import DatasetConfig, EngineConfig, PlanConfig, VerifyConfig
    from penstock.core.model import Entry, Expected
    from penstock.core.run_documents import ShardInfo
    from penstock.engine.pool import Pool
    from penstock.engine.tasks import BatchAnswer, Report, StopCheck
    from penstock.fs.stores import DataState
    from penstock.host.pacing import Allowances


# An audit saves its results durably every few seconds, so that it can resume after a kill. A damaged row is a
# finding, not a failure: the shard is done when every row was checked.


@dataclass(frozen=True)
class AuditTask:
    shard: ShardInfo
    rows: Path
    data: Path  # the release's `data` folder
    state: Path  # the file of results, from which the next attempt resumes
    engine: EngineConfig
    # plan's measurements of the file system before the release was copied
    probe: ProbeReport = field(default_factory=ProbeReport)
    named: str = AUTO  # the kind of file system whose rules apply, as in `target.filesystem`
    recall: int = 0  # bytes of tiered files that may be recalled to be read
    direct: str = "unshared"  # the setting `verify.direct`


@dataclass
class AuditedRows:
    """The results of all attempts at a shard so far."""

    shard: str
    rows: bytearray  # 1 for each row that was checked
    # rows that differ from the published bytes, or could not be read
    bad: list[AuditedRow] = field(default_factory=list)
    methods: Counter[str] = field(default_factory=Counter)
    files: int = 0
    bytes: int = 0
    # for each place of data and reason: 1 for each row that was not opened, since its data is in that place
    away: dict[tuple[str, str], bytearray] = field(default_factory=dict)

    @property
    def left(self) -> int:
        return self.rows.count(0)

    def add(self, answer: BatchAnswer) -> None:
        """Note the rows that were checked."""
        for audited in answer.results:
            self.rows[audited.row] = 1
            if audited.why:
                self.bad.append(audited)
            else:
                self.methods[audited.method] += 1
        self.files += answer.rows
        self.bytes += answer.bytes

    def leave(self, row: int, state: DataState) -> None:
        """Note a row that is not opened."""
        self.rows[row] = 1
        self.away.setdefault((state.place, state.why), bytearray(len(self.rows)))[row] = 1

    def write(self, path: Path) -> None:
        """Write the results into this file, durable on return."""
        away = [[*kind, _ranges(rows)] for kind, rows in self.away.items()]
        small_files.write_json(
            path,
            {
                "shard": self.shard,
                "ranges": _ranges(self.rows),
                "bad": [[damaged.row, damaged.why, damaged.unread] for damaged in self.bad],
                "methods": self.methods,
                "files": self.files,
                "bytes": self.bytes,
                **({"away": away} if away else {}),
            },
        )

    @classmethod
    def read(cls, path: Path, shard: ShardInfo) -> AuditedRows:
        """Read the results of this shard. Without a file, or with another shard's, every row is unchecked."""
        audited = cls(shard.digest, bytearray(shard.rows))
        try:
            raw = small_files.read_json(path)
            if raw["shard"] != shard.digest:
                return audited
            _set(audited.rows, raw["ranges"])
            audited.bad = [
                AuditedRow(int(row), why=str(why), unread=bool(unread)) for row, why, unread in raw["bad"]
            ]
            audited.methods = Counter(raw["methods"])
            audited.files, audited.bytes = int(raw["files"]), int(raw["bytes"])
            for place, why, ranges in raw.get("away", ()):
                _set(audited.away.setdefault((str(place), str(why)), bytearray(shard.rows)), ranges)
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return cls(shard.digest, bytearray(shard.rows))
        return audited


def audit_shard(task: AuditTask, report: Report, stop: StopCheck) -> tuple[Outcome, AuditedRows]:
    """Check every row that no earlier attempt checked. Returns the counts, and the results of all attempts.

    Raises InterruptedRunError after a tidy stop, and FailedError if the error concerns more than a row. The
    results until then are kept.
    """
    outcome = Outcome()
    audited = AuditedRows.read(task.state, task.shard)
    outcome.resumed_files, outcome.resumed_bytes = audited.files, audited.bytes
    if audited.left:
        with contextlib.closing(PoolRun(outcome, task.engine, task.shard, report)) as run:
            # These imports are made while the workers start.
            from penstock.fs.capabilities import direct_reads, facts
            from penstock.fs.probe_judgement import limited
            from penstock.tables.run_tables import read_expected

            storage = limited(facts(task.data), task.probe)
            work = ReadWork(task.data, audit=True, direct=direct_reads(storage, task.direct, published=True))
            _Audit(task, audited).read(run, work, read_expected(task.rows), stop)
    outcome.methods = dict(audited.methods)
    return outcome, audited


class _Audit(ResumableReading["Expected"]):
    def __init__(self, task: AuditTask, audited: AuditedRows) -> None:
        done = {row for row, looked in enumerate(audited.rows) if looked}
        super().__init__(task.data, task.named, task.recall, done)
        self._path, self._audited = task.state, audited

    def add(self, answer: BatchAnswer) -> None:
        self._audited.add(answer)

    def leave(self, row: int, entry: Expected, state: DataState) -> bool:
        if self.recall.reads(entry, state):
            return False
        self._audited.leave(row, state)
        return True

    def write(self) -> None:
        self._audited.write(self._path)


def _set(rows: bytearray, ranges: Iterable[tuple[int, int]]) -> None:
    for start, end in ranges:
        rows[start:end] = b"\x01" * (end - start)


def _ranges(rows: bytearray) -> list[tuple[int, int]]:
    """Return the ranges [start, end) in which all bytes are 1."""
    out = []
    start = rows.find(1)
    while start >= 0:
        end = rows.find(0, start)
        end = len(rows) if end < 0 else end
        out.append((start, end))
        start = rows.find(1, end)
    return out


# Adopt saves its results durably every few seconds, so that an element can resume after a kill. A row that
# differs is a result. A row whose source cannot be reached is a failure.


@dataclass(frozen=True)
class SurveyTask:
    shard: ShardInfo
    rows: Path
    data: Path  # the tree's folder
    survey: Path  # the folder for the results
    dataset: DatasetConfig
    engine: EngineConfig
    verify: VerifyConfig
    plan: PlanConfig
    host: str
    read_source: bool = False
    named: str = AUTO  # the kind of file system whose rules apply, as in `target.filesystem`
    recall: int = 0  # bytes of tiered files of the tree that may be recalled to be read


def survey_shard(
    task: SurveyTask, report: Report, stop: StopCheck, share: Allowances | None = None
) -> Outcome:
    """Compare every row that no earlier attempt compared. `share` is explained at `copy_shard`.

    Raises InterruptedRunError after a tidy stop, and FailedError if the error concerns more than a row. The
    results until then are kept.
    """
    from penstock.tables.run_tables import ShardSurvey, read_shard

    outcome = Outcome()
    earlier = ShardSurvey(task.survey, task.shard.rows)
    states = list(map(earlier.state, range(task.shard.rows)))
    done = {row for row, state in enumerate(states) if state not in ("", STALE)}
    differed = earlier.differed(row for row, state in enumerate(states) if state == STALE)
    del earlier
    if done:
        outcome.resumed_files, outcome.resumed_bytes = _amount(task, done)
    if len(done) == task.shard.rows:
        report(outcome.resumed_files, outcome.resumed_bytes, 0)
        return outcome
    with contextlib.closing(PoolRun(outcome, task.engine, task.shard, report)) as run:
        survey = _Survey(task, done, differed, run.pool)
        survey.read(run, survey.work(), read_shard(task.rows), stop, share)
    return outcome


def _amount(task: SurveyTask, rows: set[int]) -> tuple[int, int]:
    """Return the number of these rows, and their bytes."""
    from penstock.tables.run_tables import read_shard

    numbered = enumerate(entry for group in read_shard(task.rows) for entry in group)
    return len(rows), sum(length_of(entry) for row, entry in numbered if row in rows)


class _Survey(ResumableReading["Entry"]):
    def __init__(self, task: SurveyTask, done: set[int], differed: frozenset[int], pool: Pool) -> None:
        super().__init__(task.data, task.named, task.recall, done)
        self._task, self._differed, self._pool = task, differed, pool
        self._credentials = Credentials(task.dataset)
        self._waiting: list[Surveyed] = []

    def work(self) -> SurveyWork:
        from penstock.fs.capabilities import direct_reads, facts

        task = self._task
        return SurveyWork(
            data=task.data,
            dataset=task.dataset,
            credentials=self._credentials.current,
            policy=task.verify.source_checksum,
            read_source=task.read_source,
            differed=self._differed,
            giant_bytes=task.plan.giant_bytes,
            part_bytes=task.plan.part_bytes,
            direct=direct_reads(facts(task.data), task.verify.direct, published=True),
        )

    def add(self, answer: BatchAnswer) -> None:
        self._waiting.extend(answer.results)

    def leave(self, row: int, entry: Entry, state: DataState) -> bool:
        if not length_of(entry) or self.recall.fetches(entry, state):
            return False
        how = READ if row in self._differed else ""
        self._waiting.append(Surveyed(row, AWAY, how, f"{state.place}: {state.why}"))
        return True

    def write(self) -> None:
        from penstock.tables import run_tables

        run_tables.add(self._task.survey, self._waiting, host=self._task.host, seen_ns=time.time_ns())
        self._waiting.clear()

    def tend(self) -> None:
        self._credentials.tend(self._pool)
