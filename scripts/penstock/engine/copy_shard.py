"""Copies one shard into staging: every row whole and checked, or named with the reason.

A row is in the journal only when its bytes are durable, so any end of this process (kill -9, a
power cut) costs at most the rows of the last seconds, and the next attempt goes on from there.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from penstock.core.errors import IMPOSSIBLE, FailedError
from penstock.core.model import Pin
from penstock.engine.credential_renewal import Credentials
from penstock.engine.linking import link_rows
from penstock.engine.records import journal
from penstock.engine.records.amendments import Amendments
from penstock.engine.shard_run import PoolRun
from penstock.engine.tasks import Outcome
from penstock.engine.transfer.multipart import Multipart
from penstock.engine.workers import sizing
from penstock.engine.workers.work_kinds import CopyWork

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence

    from penstock.core.model import Entry
    from penstock.engine.linking import LinkedRows
    from penstock.engine.records.journal_flusher import Keeper
    from penstock.engine.tasks import Batch, BatchAnswer, CopyTask, Report, StopCheck
    from penstock.fs.capabilities import StorageFacts
    from penstock.host.pacing import Allowances

VIEW = 128
"""How many pending batches are searched for one in a folder where no other stream writes (some MiB of
memory)."""


def copy_shard(
    task: CopyTask,
    report: Report,
    stop: StopCheck,
    ops: Callable[[], float] | None = None,
    share: Allowances | None = None,
) -> Outcome:
    """Copy what the journals do not have yet. Rows that fail are in the outcome's `failures`;
    the others are done. `ops` is called several times a second for the metadata operations a second that
    the workers may make on the target; None: there is no budget. `share`: what they may read of the source;
    None: `engine.limit` alone holds.

    Raises NoSpaceError at once when the target is full, InterruptedRunError after a tidy stop,
    FailedError for what concerns more than a row (fenced, a failed barrier, dying workers); what
    was done until then is durable and recorded.
    """
    outcome = Outcome()
    multipart = Multipart(task, outcome)
    units = multipart.units(task.shard.rows, task.shard.bytes)
    with closing(PoolRun(outcome, task.engine, task.shard, report, units)) as run:
        _copy(task, run, multipart, stop, ops, share)
    return outcome


def _copy(
    task: CopyTask,
    run: PoolRun,
    multipart: Multipart,
    stop: StopCheck,
    ops: Callable[[], float] | None,
    share: Allowances | None,
) -> None:
    outcome = run.outcome
    with ExitStack() as stack:
        # Imported and opened while the workers start.
        from penstock.engine.records.journal_flusher import Keeper
        from penstock.tables.shards import numbered
        from penstock.target.barrier import Barrier

        storage = _target(task, outcome)
        barrier = stack.enter_context(Barrier(task.data)) if outcome.durability == "syncfs" else None
        left = _Left(task, multipart, outcome)
        credentials = Credentials(task.dataset)
        work = _work(task, outcome.durability, storage.traits.preallocate, credentials.current)
        if not left.rows:
            outcome.why = "nothing is left to do"
            run.report(outcome.resumed_files, outcome.resumed_bytes, 0)
            return
        book = journal.Journal(
            task.journals,
            shard_digest=task.shard.digest,
            run=task.run,
            attempt=task.attempt,
            host=task.host,
        )
        stack.callback(book.close)
        keeper = stack.enter_context(Keeper(book, barrier))
        run.total = outcome.resumed_bytes + left.bytes
        linked = link_rows(
            task, work, numbered(task.rows), left.unlinked, keeper, outcome, run.tell, stop, ops
        )
        left.drop(linked)
        if not left.rows:
            keeper.close()
            run.rest()
            outcome.why = "what was left to do was linked"
            return
        units = multipart.units(left.rows, left.bytes)
        large = units > left.rows
        run.start(
            work,
            rows=units,
            total=left.bytes,
            local=outcome.durability != "fsync" and storage.traits.local and _local_sources(task),
            each=sizing.EACH_LARGE if large else sizing.EACH,
            ahead=share is None and _ahead(task, left.rows, left.bytes),
            ops=ops,
            share=share,
            before=linked.bytes,
        )
        run.tuner.probing = large
        multipart.waiting = lambda: keeper.waiting
        try:
            _fetch(task, run, multipart, left, keeper, credentials, work, stop)
        finally:
            # Also on the way out with an error: what was done is made durable and recorded.
            keeper.close()
    changes = left.changes
    outcome.amended, outcome.gone = changes.changed, changes.gone
    missing = left.rows + linked.count - outcome.files - len(outcome.failures)
    if missing:
        raise FailedError(
            "rows are missing at the end of a shard",
            where=str(task.rows),
            why=f"{missing} rows",
            hint=IMPOSSIBLE,
        )


def _target(task: CopyTask, outcome: Outcome) -> StorageFacts:
    """What staging's file system does, without what plan saw refused; how its files become durable is in the
    outcome. Raises FailedError where staging is not there."""
    from penstock.fs.capabilities import facts
    from penstock.fs.probe.judgement import limited

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


class _Left:
    """The rows that are left to be copied, as the shard's journals have it; each in the version of its object
    that was pinned last."""

    def __init__(self, task: CopyTask, multipart: Multipart, outcome: Outcome) -> None:
        """Counts in the outcome what earlier attempts did. Raises as `journal.replay`."""
        journal.settle(task.journals, task.shard.digest, run=task.run, host=task.host)
        done = journal.replay(task.journals, task.shard.digest, outcome.warnings, multipart.unfinished)
        self._path, self._taken_back = task.rows, multipart.unfinished.taken_back
        self.changes = Amendments.read(task.journals, task.shard.digest, done)
        self.ended = settled(done, self.changes.voids)
        self.rows, self.bytes = task.shard.rows, task.shard.bytes
        if done or self.changes or multipart.unfinished.parts:
            self.rows, self.bytes = _count_done(self.groups(), self.ended, multipart, outcome)
        # Who copies a giant whole says of which version, also where it is the planned one.
        wholes = {row for row in self.changes.wholes if row not in self.ended}
        self.joined = {row: Pin.planned(entry) for row, entry in self.entries(wholes).items()}
        """The versions of giants that this attempt copies whole: they have to be recorded first."""
        self.changes.pins |= self.joined
        outcome.amended, outcome.gone = self.changes.changed, self.changes.gone
        self.unlinked = _Either(self.ended, self.changes.pins.keys() | self._taken_back)
        """The rows that need not, or may not, be linked."""

    def groups(self) -> Iterator[Sequence[Entry]]:
        """All rows of the shard. What was linked and did not read back as it should is to be copied, or it
        would be linked for ever."""
        from penstock.tables.shards import read_shard

        return _without_links(self.changes.rows(read_shard(self._path)), self._taken_back)

    def entries(self, rows: Collection[int]) -> dict[int, Entry]:
        """Of these rows, by their number."""
        if not rows:
            return {}
        numbered = enumerate(entry for group in self.groups() for entry in group)
        return {row: entry for row, entry in numbered if row in rows}

    def drop(self, linked: LinkedRows) -> None:
        """These are done now."""
        if linked.count:
            self.ended = _Either(self.ended, linked)
            self.rows, self.bytes = self.rows - linked.count, self.bytes - linked.bytes


def _fetch(
    task: CopyTask,
    run: PoolRun,
    multipart: Multipart,
    left: _Left,
    keeper: Keeper,
    credentials: Credentials,
    work: CopyWork,
    stop: StopCheck,
) -> None:
    """Have the workers, which were started, copy what is left; `keeper` gets the lines of what was done."""
    from penstock.engine.batches import batches

    outcome, follow = run.outcome, None
    if task.dataset.changed == "follow":
        from penstock.engine.change_following import Following

        follow = Following(task, outcome, credentials, work.writer, left.changes)

    def take(batch: Batch, answer: BatchAnswer) -> None:
        of_parts = multipart.take(batch, answer)
        if answer.rows:
            keeper.add(answer.results, 0 if of_parts is None else answer.bytes)
        failures = answer.failures if of_parts is None else of_parts
        run.fail(follow.sort(failures) if follow else failures)
        if of_parts is None:
            outcome.add(answer)

    def idle() -> None:
        keeper.check()
        if follow:
            follow.check()
        credentials.tend(run.pool)

    def again() -> Iterator[Batch] | None:
        """The rows of a further round, of the version that they have now."""
        if not follow or not follow.waiting:
            return None
        chosen, lines = follow.round(left.entries(follow.waiting), run.fail, stop)
        keeper.add(lines)
        return batches(left.groups(), _AllBut(chosen), len(chosen), outcome.workers, multipart)

    keeper.add("".join(journal.amend_line(row, pin) for row, pin in left.joined.items()).encode())
    jobs = batches(left.groups(), left.ended, left.rows, outcome.workers, multipart)
    run.go(jobs, take, idle, stop, view=VIEW, first=multipart, again=again)


def _count_done(
    shard: Iterable[Sequence[Entry]], done: Container[int], multipart: Multipart, outcome: Outcome
) -> tuple[int, int]:
    """How many rows are left, and their bytes."""
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


def settled(done: Container[int], voids: Collection[int]) -> Container[int]:
    """The rows that need no copy: those that are done, and those that stand for nothing. It takes no memory
    of its own: a set of all would be 70 bytes a row."""
    return _Either(done, voids) if voids else done


class _Either:
    """The rows of both."""

    def __init__(self, done: Container[int], voids: Container[int]) -> None:
        self._done, self._voids = done, voids

    def __contains__(self, row: object) -> bool:
        return row in self._done or row in self._voids


class _AllBut:
    """Every row but these."""

    def __init__(self, rows: Iterable[int]) -> None:
        self._rows = frozenset(rows)

    def __contains__(self, row: object) -> bool:
        return row not in self._rows


def _without_links(shard: Iterator[Sequence[Entry]], rows: Collection[int]) -> Iterator[Sequence[Entry]]:
    """The shard's rows, of which these are copied whatever lies on the target."""
    if not rows:
        yield from shard
        return
    row = 0
    for group in shard:
        numbered = enumerate(group, row)
        row += len(group)
        yield [entry._replace(reuse=None) if number in rows else entry for number, entry in numbered]


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
        timeout=task.engine.timeout,
        policy=task.verify.source_checksum,
        later=task.verify.digests if task.verify.whole_giants else (),
        base=task.base,
        way=task.way,
        stagings=dict(task.stagings),
    )


def _ahead(task: CopyTask, rows: int, total: int) -> bool:
    """Whether streams ask for small objects before their turn: of sources that can be asked so. Not under
    a limit, where bytes are granted one by one, nor where the number of streams is configured: then it is
    the number of requests too."""
    from penstock.config.source_kinds import kind

    engine = task.engine
    if total > rows * sizing.SMALL or engine.limit is not None or engine.streams is not None:
        return False
    return all(kind(source.url, source.storage_options) == "s3" for source in task.dataset.sources)


def _local_sources(task: CopyTask) -> bool:
    """Whether no source leaves this machine: where the target does not either, more streams than CPUs only
    get in the way."""
    from penstock.fs.capabilities import facts

    for source in task.dataset.sources:
        scheme, mark, rest = source.url.partition("://")
        if mark and scheme != "file":
            return False
        from pathlib import Path

        if not facts(Path(rest if mark else source.url)).traits.local:
            return False
    return True
