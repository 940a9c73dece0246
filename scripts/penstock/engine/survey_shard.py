"""Compares one shard of a listing with a tree that penstock did not write.

What was seen is kept durably every few seconds, so a killed element goes on where it stopped. A row that
differs is a result and not a failure; a row whose source cannot be reached for now is one.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.documents.differences import AWAY, READ, STALE
from penstock.core.model import Surveyed
from penstock.engine.credential_renewal import Credentials
from penstock.engine.reading.rows_here import rows_here
from penstock.engine.reread_shard import COLD_STREAMS
from penstock.engine.shard_run import PoolRun
from penstock.engine.tasks import Outcome
from penstock.engine.workers.messages import SurveyWork
from penstock.filesystem.kinds import AUTO
from penstock.filesystem.store_checks import data_states

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.config.settings import DatasetConfig, EngineConfig, PlanConfig, VerifyConfig
    from penstock.core.model import Entry
    from penstock.core.run_documents import ShardInfo
    from penstock.engine.batch import Batch
    from penstock.engine.pacing import Allowances
    from penstock.engine.tasks import BatchAnswer, Report, StopCheck
    from penstock.filesystem.stores.facts import DataState

EVERY = 3.0
"""Seconds between two writings of what was seen: what a kill can cost."""
SHARE = 20
"""A writing that takes long is followed by this many times its duration."""


@dataclass(frozen=True)
class SurveyTask:
    """One shard of a comparison."""

    shard: ShardInfo
    rows: Path
    data: Path
    """The tree."""
    survey: Path
    """The folder of what was seen."""
    dataset: DatasetConfig
    engine: EngineConfig
    verify: VerifyConfig
    plan: PlanConfig
    host: str
    read_source: bool = False
    named: str = AUTO
    """As of `RereadTask`."""
    recall: int = 0
    """Bytes of tiered files of the tree that may be fetched back to be read."""


def survey_shard(
    task: SurveyTask, report: Report, stop: StopCheck, share: Allowances | None = None
) -> Outcome:
    """Compare every row that no earlier attempt compared. `share`: what may be read of the source; None:
    `engine.limit` alone holds.

    Raises InterruptedRunError after a tidy stop and FailedError for what concerns more than a row; what was
    seen until then is kept.
    """
    from penstock.formats.survey_file import Survey

    outcome = Outcome()
    known = Survey(task.survey, task.shard.rows)
    states = list(map(known.state, range(task.shard.rows)))
    done = {row for row, state in enumerate(states) if state not in ("", STALE)}
    differed = known.differed(row for row, state in enumerate(states) if state == STALE)
    del known
    left = task.shard.rows - len(done)
    if done:
        outcome.resumed_files, outcome.resumed_bytes = _amount(task, done)
    if left:
        run = PoolRun(outcome, task.engine, task.shard, report)
        try:
            _survey(task, done, differed, left, run, stop, share)
        finally:
            run.close()
    else:
        report(outcome.resumed_files, outcome.resumed_bytes, 0)
    return outcome


def _amount(task: SurveyTask, rows: set[int]) -> tuple[int, int]:
    """Rows and bytes of what was done before."""
    from penstock.formats.shards import read_shard

    numbered = enumerate(entry for group in read_shard(task.rows) for entry in group)
    return len(rows), sum(_length(entry) for row, entry in numbered if row in rows)


def _length(entry: Entry) -> int:
    return entry.length if entry.part >= 0 else entry.size


def _survey(
    task: SurveyTask,
    done: set[int],
    differed: frozenset[int],
    left: int,
    run: PoolRun,
    stop: StopCheck,
    share: Allowances | None,
) -> None:
    from penstock.engine.batches import batches
    from penstock.filesystem.capabilities import facts
    from penstock.formats import survey_file
    from penstock.formats.shards import read_shard

    outcome, credentials = run.outcome, Credentials(task.dataset)
    work = SurveyWork(
        data=task.data,
        dataset=task.dataset,
        credentials=credentials.current,
        timeout=task.engine.timeout,
        policy=task.verify.source_checksum,
        read_source=task.read_source,
        differed=differed,
        giant_bytes=task.plan.giant_bytes,
        part_bytes=task.plan.part_bytes,
        direct=facts(task.data).traits.direct,
    )
    total = task.shard.bytes - outcome.resumed_bytes
    # A cold read waits for the device, on this machine or over a network.
    run.start(work, rows=left, total=total, local=False, each=COLD_STREAMS, share=share)
    waiting: list[Surveyed] = []

    def take(_: Batch, answer: BatchAnswer) -> None:
        waiting.extend(answer.results)
        run.fail(answer.failures)
        outcome.files += answer.rows
        outcome.bytes += answer.bytes
        outcome.retries += answer.retries

    def write() -> None:
        survey_file.add(task.survey, waiting, host=task.host, seen_ns=time.time_ns())
        waiting.clear()

    due = time.monotonic() + EVERY

    def idle() -> None:
        nonlocal due
        credentials.tend(run.pool)
        begun = time.monotonic()
        if begun >= due:
            write()
            now = time.monotonic()
            due = now + max(EVERY, SHARE * (now - begun))

    rows = read_shard(task.rows)
    with contextlib.ExitStack() as asking:
        states = data_states(task.data, task.named)
        if states is not None:
            asking.callback(states.close)
            leave = _leaving(task.recall, differed, waiting)
            rows = asking.enter_context(contextlib.closing(rows_here(rows, done, states, leave)))
        try:
            run.go(batches(rows, done, left, outcome.workers), take, idle, stop)
        finally:
            write()
        if states is not None and states.silence:
            told = f"the vendor's command did not say which files' data is not here: {states.silence}"
            outcome.warnings.append(f"{told}; their blocks were looked at")


def _leaving(
    recall: int, differed: frozenset[int], waiting: list[Surveyed]
) -> Callable[[int, Entry, DataState], bool]:
    """Says of a row whose data is not here whether it is left out: tiered rows are read as long as `recall`
    lasts."""

    def leave(row: int, entry: Entry, state: DataState) -> bool:
        nonlocal recall
        length = _length(entry)
        if not length or (state.place == "tiered" and length <= recall):
            recall -= length
            return False
        how = READ if row in differed else ""
        waiting.append(Surveyed(row, AWAY, how, f"{state.place}: {state.why}"))
        return True

    return leave
