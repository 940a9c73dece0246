"""Copies one shard into staging. Every row is copied whole and checked, or reported as a failure.

The journal records a row only when its bytes are durable. So any end of this process (kill -9, a power cut)
costs at most the rows of the last seconds. The next attempt continues from there. When `copy_shard` returns,
no worker process is left.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from penstock.core.errors import IMPOSSIBLE, FailedError
from penstock.engine import journal, sizing
from penstock.engine.credential_renewal import Credentials
from penstock.engine.linked_rows import link_rows
from penstock.engine.rows_left import Multipart, RowsLeft
from penstock.engine.shard_run import PoolRun
from penstock.engine.tasks import Outcome, is_spare
from penstock.engine.work_kinds import CopyWork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.engine.journal_flusher import Keeper
    from penstock.engine.linked_rows import LinkedRows
    from penstock.engine.tasks import Batch, BatchAnswer, CopyTask, Report, StopCheck
    from penstock.fs.capabilities import StorageFacts
    from penstock.host.pacing import Allowances

BATCHES_SEARCHED = 128  # batches searched for a folder in which no other stream writes; they take some MiB


def copy_shard(
    task: CopyTask,
    report: Report,
    stop: StopCheck,
    ops: Callable[[], float] | None = None,
    share: Allowances | None = None,
) -> Outcome:
    """Copy the rows that the journals do not have yet. The outcome's `failures` lists the rows that failed.

    `ops` returns the metadata operations a second that the workers may make on the target (None: any number).
    It is called several times a second. `share` limits the bytes that the workers read from the source. If it
    is None, only `engine.limit` limits them.

    Raises NoSpaceError as soon as the target is full, and InterruptedRunError after a tidy stop. Raises
    FailedError if the error concerns more than a row (fenced, a failed barrier, dying workers). The rows
    finished until then are durable and recorded.
    """
    outcome = Outcome()
    multipart = Multipart(task, outcome)
    units = multipart.units(task.shard.rows, task.shard.bytes)
    with closing(PoolRun(outcome, task.engine, task.shard, report, units)) as run:
        _Attempt(task, run, multipart, stop, ops, share).copy()
    return outcome


class _Attempt:
    """The phases of one call: find the rows left, link, let the workers copy, check for missing rows."""

    def __init__(
        self,
        task: CopyTask,
        run: PoolRun,
        multipart: Multipart,
        stop: StopCheck,
        ops: Callable[[], float] | None,
        share: Allowances | None,
    ) -> None:
        self._task, self._run, self._multipart, self._stop = task, run, multipart, stop
        self._ops, self._share, self._outcome = ops, share, run.outcome

    def copy(self) -> None:
        # These imports are made, and the journal is opened, while the workers start.
        from penstock.engine.journal_flusher import Keeper
        from penstock.target.staging_folder import Barrier

        task, run, outcome = self._task, self._run, self._outcome
        with ExitStack() as stack:
            storage = _target(task, outcome)
            barrier = stack.enter_context(Barrier(task.data)) if outcome.durability == "syncfs" else None
            left = RowsLeft(task, self._multipart, outcome)
            credentials = Credentials(task.dataset)
            work = _work(task, outcome.durability, storage.traits.preallocate, credentials.current)
            if not left.rows:
                outcome.why = "nothing is left to do"
                run.report(outcome.resumed_files, outcome.resumed_bytes, 0)
                return
            keeper = stack.enter_context(Keeper(_journal(task, stack), barrier))
            linked = self._link(left, work, keeper)
            if not left.rows:
                keeper.close()
                run.rest()
                outcome.why = "what was left to do was linked"
                return
            self._start(left, work, storage, linked.bytes)
            try:
                self._fetch(left, work, keeper, credentials)
            finally:
                # Even after an error, the finished rows are made durable and recorded.
                keeper.close()
        outcome.amended, outcome.gone = left.amendments.changed, left.amendments.gone
        _require_every_row(task, outcome, left.rows + linked.count)

    def _link(self, left: RowsLeft, work: CopyWork, keeper: Keeper) -> LinkedRows:
        from penstock.tables.run_tables import numbered

        task, run, outcome = self._task, self._run, self._outcome
        run.total = outcome.resumed_bytes + left.bytes
        linked = link_rows(
            task, work, numbered(task.rows), left.unlinked, keeper, outcome, run.tell, self._stop, self._ops
        )
        left.remove(linked)
        return linked

    def _start(self, left: RowsLeft, work: CopyWork, storage: StorageFacts, before: int) -> None:
        """Set up the number of workers that suits the rows left. `before` is the number of linked bytes."""
        task, run, share = self._task, self._run, self._share
        units = self._multipart.units(left.rows, left.bytes)
        large = units > left.rows
        run.start(
            work,
            rows=units,
            total=left.bytes,
            local=self._outcome.durability != "fsync" and storage.traits.local and _local_sources(task),
            each=sizing.EACH_LARGE if large else sizing.EACH,
            ahead=share is None and _ahead(task, left.rows, left.bytes),
            ops=self._ops,
            share=share,
            before=before,
        )
        run.tuner.probing = large

    def _fetch(self, left: RowsLeft, work: CopyWork, keeper: Keeper, credentials: Credentials) -> None:
        """Let the workers copy the rows left. With `changed: follow`, repeat while objects change."""
        from penstock.engine.rows_left import batches

        task, run, multipart, outcome = self._task, self._run, self._multipart, self._outcome
        follow = None
        if task.dataset.changed == "follow":
            from penstock.engine.change_following import Following

            follow = Following(task, outcome, credentials, work.writer, left.amendments)

        def take(batch: Batch, answer: BatchAnswer) -> None:
            """Record a worker's answer. `part_failures` is None for a batch of rows not copied in parts."""
            part_failures = multipart.take(batch, answer)
            if answer.rows:
                keeper.add(answer.results, 0 if part_failures is None else answer.bytes)
            failures = answer.failures if part_failures is None else part_failures
            run.fail(follow.sort(failures) if follow else failures)
            if part_failures is None:
                outcome.add(answer)

        def idle() -> None:
            keeper.check()
            if follow:
                follow.check()
            credentials.tend(run.pool)

        def next_round() -> Iterator[Batch] | None:
            """Return the rows whose object changed, pinned to its current version, or None if none did."""
            if not follow or not follow.waiting:
                return None
            chosen, lines = follow.round(left.entries(follow.waiting), run.fail, self._stop)
            keeper.add(lines)
            return batches(left.groups(), _AllBut(chosen), len(chosen), outcome.workers, multipart)

        def record(line: bytes, size: int, then: Callable[[], None]) -> None:
            """Record a mark. The stream that sent it continues at once if few enough bytes are at risk."""
            spare = is_spare(keeper.waiting + size, run.pool.streams)
            keeper.add(line, size, None if spare else then)
            if spare:
                then()

        multipart.waiting, multipart.streams = (lambda: keeper.waiting), (lambda: run.pool.streams)
        run.pool.record, run.pool.fed = record, run.counted_before(task.fed)
        keeper.add("".join(journal.amend_line(row, pin) for row, pin in left.whole_giants.items()).encode())
        jobs = batches(left.groups(), left.done, left.rows, outcome.workers, multipart)
        run.go(jobs, take, idle, self._stop, view=BATCHES_SEARCHED, first=multipart, again=next_round)


def _target(task: CopyTask, outcome: Outcome) -> StorageFacts:
    """Return the facts of staging's file system, and set in the outcome how files become durable.

    Raises FailedError if the staging folder is missing.
    """
    from penstock.fs.capabilities import facts
    from penstock.fs.probe_judgement import limited

    if not task.data.is_dir():
        raise FailedError(
            "the staging folder is not there",
            where=str(task.data),
            hint="the same command makes it anew; see whether the file system is mounted on that node",
        )
    storage = limited(facts(task.data), task.probe)
    outcome.fsync_ends = storage.proof.fsync_ends
    outcome.durability = storage.durability if task.engine.durability == "auto" else task.engine.durability
    return storage


def _journal(task: CopyTask, stack: ExitStack) -> journal.Journal:
    book = journal.Journal(
        task.journals, shard_digest=task.shard.digest, run=task.run, attempt=task.attempt, host=task.host
    )
    stack.callback(book.close)
    return book


def _work(task: CopyTask, durability: str, preallocate: bool, credentials: list[Any]) -> CopyWork:
    from penstock.target import modes

    permissions = task.dataset.permissions
    return CopyWork(
        data=task.data,
        writer={
            "file_mode": permissions.file_mode,
            "dir_mode": permissions.dir_mode,
            "gid": task.gid,
            "durability": durability,
            "attempt": task.attempt,
            "keep_mtime": permissions.mtime == "keep",
            "rules": modes.access_rules(permissions),
            "preallocate": preallocate,
        },
        dataset=task.dataset,
        credentials=credentials,
        policy=task.verify.source_checksum,
        later=task.verify.digests if task.verify.whole_giants else (),
        base=task.base,
        way=task.way,
        stagings=dict(task.stagings),
    )


def _ahead(task: CopyTask, rows: int, total: int) -> bool:
    """Return whether streams may prefetch small objects.

    They may not under `engine.limit`, which grants bytes for one object at a time. Nor may they with
    `engine.streams`, which then limits the pending requests too.
    """
    from penstock.config.source_kinds import kind

    engine = task.engine
    if total > rows * sizing.SMALL or engine.limit is not None or engine.streams is not None:
        return False
    return all(kind(source.url, source.storage_options).prefetched for source in task.dataset.sources)


def _local_sources(task: CopyTask) -> bool:
    """Return whether all sources are on this machine. If the target is too, more streams than CPUs only
    compete."""
    from penstock.fs.capabilities import facts

    for source in task.dataset.sources:
        scheme, mark, rest = source.url.partition("://")
        if mark and scheme != "file":
            return False
        from pathlib import Path

        if not facts(Path(rest if mark else source.url)).traits.local:
            return False
    return True


def _require_every_row(task: CopyTask, outcome: Outcome, wanted: int) -> None:
    missing = wanted - outcome.files - len(outcome.failures)
    if missing:
        raise FailedError(
            "rows are missing at the end of a shard",
            where=str(task.rows),
            why=f"{missing} rows",
            hint=IMPOSSIBLE,
        )


class _AllBut:
    def __init__(self, rows: Iterable[int]) -> None:
        self._rows = frozenset(rows)

    def __contains__(self, row: object) -> bool:
        return row not in self._rows
