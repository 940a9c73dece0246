"""Reads one shard of a published release back and names the rows that are not as published.

An element of audit calls `audit_shard`; the audit's end reads what it kept (`AuditedRows`). It starts worker
processes, which read the release; it writes its own small file, and nothing of the release.

What was seen is kept in a small durable file every few seconds, so a killed audit goes on where it stopped. A
damaged row is a finding and not a failure: the shard is done when every row was looked at.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.core.documents.probe_report import ProbeReport
from penstock.core.model import AuditedRow
from penstock.engine.resumable_reading import ResumableReading
from penstock.engine.shard_run import PoolRun
from penstock.engine.tasks import Outcome
from penstock.engine.workers.work_kinds import ReadWork
from penstock.fs import durable
from penstock.fs.kinds import AUTO

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penstock.config.settings import EngineConfig
    from penstock.core.model import Expected
    from penstock.core.run_documents import ShardInfo
    from penstock.engine.tasks import BatchAnswer, Report, StopCheck
    from penstock.fs.stores.facts import DataState


@dataclass(frozen=True)
class AuditTask:
    """One shard of an audit."""

    shard: ShardInfo
    rows: Path
    data: Path
    """The release's `data` folder."""
    state: Path
    """Where the state of the work lies: what was read, what was found."""
    engine: EngineConfig
    probe: ProbeReport = field(default_factory=ProbeReport)
    """What the file system did when the release was planned."""
    named: str = AUTO
    """The kind of file system whose rules hold, as in `target.filesystem`."""
    recall: int = 0
    """Bytes of tiered files that may be fetched back to be read."""
    direct: str = "unshared"
    """`verify.direct`."""


@dataclass
class AuditedRows:
    """What the attempts so far saw of a shard."""

    shard: str
    rows: bytearray
    """1 for each row that was looked at."""
    bad: list[AuditedRow] = field(default_factory=list)
    """Those that are not as they were published, or could not be read."""
    methods: Counter[str] = field(default_factory=Counter)
    files: int = 0
    bytes: int = 0
    away: dict[tuple[str, str], bytearray] = field(default_factory=dict)
    """1 for each row that was not opened, since its data is not here; by its place and, in words, why."""

    @property
    def left(self) -> int:
        return self.rows.count(0)

    def add(self, answer: BatchAnswer) -> None:
        """Note the rows that were looked at."""
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
        """Write what was seen into this file, durable on return."""
        away = [[*told, _ranges(rows)] for told, rows in self.away.items()]
        durable.write_json(
            path,
            {
                "shard": self.shard,
                "ranges": _ranges(self.rows),
                "bad": [[one.row, one.why, one.unread] for one in self.bad],
                "methods": self.methods,
                "files": self.files,
                "bytes": self.bytes,
                **({"away": away} if away else {}),
            },
        )

    @classmethod
    def read(cls, path: Path, shard: ShardInfo) -> AuditedRows:
        """What the file holds of this very shard; rows that count as not seen where it holds another one's,
        or nothing."""
        audited = cls(shard.digest, bytearray(shard.rows))
        try:
            raw = durable.read_json(path)
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
    """Look at every row that no earlier attempt saw. Returns the counts, and what all attempts saw.

    Raises InterruptedRunError after a tidy stop and FailedError for what concerns more than a
    row; what was seen until then is kept.
    """
    outcome = Outcome()
    audited = AuditedRows.read(task.state, task.shard)
    outcome.resumed_files, outcome.resumed_bytes = audited.files, audited.bytes
    if audited.left:
        with contextlib.closing(PoolRun(outcome, task.engine, task.shard, report)) as run:
            # Imported while the workers start.
            from penstock.fs.capabilities import direct_reads, facts
            from penstock.fs.probe.judgement import limited
            from penstock.tables.shards import read_expected

            seen = limited(facts(task.data), task.probe)
            work = ReadWork(task.data, audit=True, direct=direct_reads(seen, task.direct, published=True))
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
    """The runs of ones: [start, end)."""
    out = []
    start = rows.find(1)
    while start >= 0:
        end = rows.find(0, start)
        end = len(rows) if end < 0 else end
        out.append((start, end))
        start = rows.find(1, end)
    return out
