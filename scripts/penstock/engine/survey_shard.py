"""Compares one shard of a listing with a tree that penstock did not write, for adopt.

Results are saved durably every few seconds, so that a killed element resumes there. A row that differs is a
result; a row whose source cannot be reached now is a failure.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.differences import AWAY, READ, STALE
from penstock.core.model import Surveyed
from penstock.engine.credential_renewal import Credentials
from penstock.engine.reading.rows_here import length_of
from penstock.engine.resumable_reading import ResumableReading
from penstock.engine.shard_run import PoolRun
from penstock.engine.tasks import Outcome
from penstock.engine.workers.work_kinds import SurveyWork
from penstock.fs.kinds import AUTO

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.config.settings import DatasetConfig, EngineConfig, PlanConfig, VerifyConfig
    from penstock.core.model import Entry
    from penstock.core.run_documents import ShardInfo
    from penstock.engine.tasks import BatchAnswer, Report, StopCheck
    from penstock.engine.workers.pool import Pool
    from penstock.fs.stores import DataState
    from penstock.host.pacing import Allowances


@dataclass(frozen=True)
class SurveyTask:
    shard: ShardInfo
    rows: Path
    data: Path  # the tree
    survey: Path  # the folder of results
    dataset: DatasetConfig
    engine: EngineConfig
    verify: VerifyConfig
    plan: PlanConfig
    host: str
    read_source: bool = False
    named: str = AUTO  # see `RereadTask`
    recall: int = 0  # bytes of tiered files of the tree that may be fetched back to be read


def survey_shard(
    task: SurveyTask, report: Report, stop: StopCheck, share: Allowances | None = None
) -> Outcome:
    """Compare every row that no earlier attempt compared. `share`: see `copy_shard`.

    Raises InterruptedRunError after a tidy stop, and FailedError for what concerns more than a row. What was
    seen until then is kept.
    """
    from penstock.tables.shards import ShardSurvey, read_shard

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
    """Return the rows and bytes done before."""
    from penstock.tables.shards import read_shard

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
        from penstock.tables import shards

        shards.add(self._task.survey, self._waiting, host=self._task.host, seen_ns=time.time_ns())
        self._waiting.clear()

    def tend(self) -> None:
        self._credentials.tend(self._pool)
