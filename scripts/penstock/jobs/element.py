"""One element of an array: all the work on its shards, based only on the state on the target. A table has the
function of each step.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.config.settings import BandwidthConfig
from penstock.core.element_documents import ElementOutcome, ElementReceipt, ShardClaim
from penstock.core.errors import IMPOSSIBLE, STATE_ANEW, FailedError, InterruptedRunError, PenstockError
from penstock.core.human import in_quotes, printable_lines
from penstock.core.layout import DATA, MANIFEST, DatasetLayout, RunLayout
from penstock.core.run_steps import BY_NAME, IN_ELEMENTS, RUN_IN_ELEMENTS
from penstock.dataset import dataset_lock, documents, receipts, release_records, staging_notice
from penstock.dataset.documents import Run, read_run
from penstock.dataset.receipts import Reporter
from penstock.engine import journal
from penstock.engine.sizing import cpus
from penstock.fs import small_files
from penstock.fs.capabilities import facts
from penstock.host import kernel_facts
from penstock.host.kernel_facts import host_name
from penstock.jobs import shares
from penstock.jobs.bandwidth import reading
from penstock.jobs.shard_claims import ClaimLostError
from penstock.target import dataset_folders, modes, notices
from penstock.target.room_watch import RoomWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.core.element_documents import ArrayLine
    from penstock.core.run_documents import ShardInfo
    from penstock.dataset.context import Stop
    from penstock.engine.tasks import CopyTask, Outcome
    from penstock.jobs.bandwidth import LinkShare
    from penstock.jobs.shard_claims import Claim


# An element's work on a shard: a table of functions, one for each step.
#
# A step's function continues where earlier attempts stopped. It returns the outcome of the rows, and the
# receipt's fields that only this step has. For copy and verify a wrong row is a failure: they end when every
# row is right. For the other steps it is a result: they end when every row was read.


class Paces(NamedTuple):
    """Limits shared with other elements: on metadata operations below the root, on bytes from sources."""

    ops: Callable[[], float] | None
    bandwidth: LinkShare | None


class Attempt(NamedTuple):
    run: Run
    shard: ShardInfo
    claim: Claim
    reporter: Reporter
    stop: Stop
    paces: Paces
    room: Callable[[], None]  # raises NoSpaceError if there is no room for this process's writes
    fed: Callable[[], bool] | None = None  # as in `CopyTask`
    rests: Callable[[int], bool] | None = None  # as in `RereadTask`
    beside: bool = False  # whether the process copies at the same time

    @property
    def name(self) -> str:
        return self.claim.content.worker

    def look(self) -> None:
        """Raise InterruptedRunError after a signal, ClaimLostError if another process has the shard."""
        self.stop.signalled()
        self.claim.look()

    def check(self) -> None:
        """Look, and wait while the PAUSE file exists."""
        self.stop.check()
        self.look()

    def go_on(self) -> None:
        """Look, and raise NoSpaceError if the target has no room."""
        self.look()
        self.room()

    @property
    def rows(self) -> Path:
        return self.run.folder.shard(self.shard.index)

    def share_of(self, recall: int) -> int:
        """Return this shard's part of the `recall` bytes to fetch back from tiered storage."""
        return recall * self.shard.bytes // max(1, self.run.plan.bytes)


def _copy(attempt: Attempt) -> tuple[Outcome, ElementReceipt]:
    from penstock.engine.copy_shard import copy_shard
    from penstock.jobs import run_cleanup

    run, folder = attempt.run, attempt.run.folder
    data = _there(run.data, "the staging folder is not here", "plan again")
    base = run.plan.base
    task = replace(
        _copy_task(attempt, data),
        base=run.layout.release(base) / DATA if base else None,
        way=run.plan.way,
        moves=run.layout.intervals,
        moved=release_records.moves_of(run.layout, run.release),
        intervals=release_records.intervals(run.layout) if run.plan.carries else None,
        stated=folder.stated if folder.stated.exists() else None,
        stagings=run_cleanup.planned(run),
        may_change=run.config.dataset.follow_limit.allowed(run.info.files),
        fed=attempt.fed,
    )
    outcome = copy_shard(task, attempt.reporter, attempt.go_on, *attempt.paces)
    return outcome, ElementReceipt(amended=outcome.amended, gone=outcome.gone)


def _verify(attempt: Attempt) -> tuple[Outcome, ElementReceipt]:
    from penstock.engine import sizing
    from penstock.engine.reread_shard import reread_shard
    from penstock.engine.tasks import RereadTask

    run, index = attempt.run, attempt.shard.index
    folder, config = run.folder, run.config
    data = _there(run.data, "the staging folder is not here", "plan again")
    copied_by = receipts.copied_by(folder, index)
    records = folder.records(index)
    small_files.make_dirs(records.parent)
    if run.plan.giants:
        from penstock.tables.run_tables import giants
        from penstock.target import modes

        # All parts of these giants are copied. Attributes set after verify's reading would change the ctime.
        policy = config.dataset.permissions
        modes.finish_giants(data, policy, modes.group_id(policy), giants(attempt.rows))
    task = RereadTask(
        shard=attempt.shard,
        rows=attempt.rows,
        journals=folder.journals(index),
        data=data,
        records=records,
        engine=sizing.beside(config.engine) if attempt.beside else config.engine,
        verify=config.verify,
        run=run.id,
        attempt=attempt.name,
        host=host_name(),
        rests=attempt.rests,
        fed=attempt.fed,
        follow=config.dataset.changed == "follow",
        way=run.plan.way,
        probe=run.probe,
        named=config.filesystem,
        recall=attempt.share_of(config.audit.recall),
        damage=folder.linked_damage / f"{index:05d}",
    )
    # If a linked file had wrong bytes, all files are read.
    if (base := run.plan.base) and run.plan.carries and not folder.linked_damage.exists():
        from penstock.jobs import audits_and_adoptions

        task = replace(
            task,
            longest=config.verify.carries_for,
            base_manifest=run.layout.release(base) / MANIFEST,
            intervals=release_records.intervals(run.layout),
            audited=audits_and_adoptions.counted_readings(run.layout, base),
        )
    if (adopted := folder.survey(index)).is_dir():
        task = replace(task, adopted=adopted)
    outcome = reread_shard(task, attempt.reporter, attempt.look)
    if outcome.failures:
        return outcome, ElementReceipt()
    return outcome, ElementReceipt(
        copied_by=copied_by,
        records=receipts.file_digest(records),
        amended=outcome.amended,
        gone=outcome.gone,
        left_out=outcome.left_out,
        carried=outcome.carried,
    )


def _repair(attempt: Attempt) -> tuple[Outcome, ElementReceipt]:
    """Fetch a shard of a published release's damaged files. A failed fetch is no failure of the element."""
    from penstock.core import findings
    from penstock.engine.repair_shard import repair_shard

    run = attempt.run
    staging = run.layout.repair_staging(run.release) / DATA
    task = _copy_task(attempt, _there(staging, "the repair's staging is not here", "run the repair again"))
    release, named = run.layout.release(run.release) / DATA, run.config.filesystem
    outcome, result = repair_shard(
        task, release, attempt.reporter, attempt.go_on, *attempt.paces, named=named
    )
    fetched = run.folder.fetched(attempt.shard.index)
    documents.write(findings.FETCHED_FILES, fetched, result)
    left = sum(bool(file.why) for file in result.files)
    return outcome, ElementReceipt(findings=left, seen=receipts.file_digest(fetched))


def _audit(attempt: Attempt) -> tuple[Outcome, ElementReceipt]:
    """Read a shard of a published release. A finding is no failure of the element."""
    from penstock.engine.shard_readings import AuditTask, audit_shard
    from penstock.jobs import audits_and_adoptions

    run, described = attempt.run, audits_and_adoptions.described_audit(attempt.run.folder)
    task = AuditTask(
        shard=attempt.shard,
        rows=attempt.rows,
        data=run.layout.release(run.release) / DATA,
        state=run.folder.audited_rows(attempt.shard.index),
        engine=run.config.engine,
        probe=run.probe,
        named=described.filesystem,
        recall=attempt.share_of(described.recall),
        direct=described.direct,
    )
    small_files.make_dirs(task.state.parent)
    outcome, audited = audit_shard(task, attempt.reporter, attempt.look)
    return outcome, ElementReceipt(findings=len(audited.bad), seen=receipts.file_digest(task.state))


def _adopt(attempt: Attempt) -> tuple[Outcome, ElementReceipt]:
    """Compare a shard of a listing with a tree. A difference is no failure of the element."""
    from penstock.engine.shard_readings import SurveyTask, survey_shard
    from penstock.jobs import audits_and_adoptions

    run, config = attempt.run, attempt.run.config
    described = audits_and_adoptions.described_adoption(run.folder)
    task = SurveyTask(
        shard=attempt.shard,
        rows=attempt.rows,
        data=Path(described.tree),
        survey=run.folder.survey(attempt.shard.index),
        dataset=config.dataset,
        engine=config.engine,
        verify=config.verify,
        plan=config.plan,
        host=host_name(),
        read_source=described.read_source,
        named=described.filesystem,
        recall=attempt.share_of(described.recall),
    )
    small_files.make_dirs(task.survey)
    return survey_shard(task, attempt.reporter, attempt.check, attempt.paces.bandwidth), ElementReceipt()


# The functions by the names of `core.run_steps.IN_ELEMENTS`.
WORK: Mapping[str, Callable[[Attempt], tuple[Outcome, ElementReceipt]]] = {
    "copy": _copy,
    "verify": _verify,
    "audit": _audit,
    "adopt": _adopt,
    "repair": _repair,
}


def _there(data: Path, what: str, hint: str) -> Path:
    if not data.is_dir():
        raise FailedError(what, where=str(data), hint=hint)
    return data


def _copy_task(attempt: Attempt, data: Path) -> CopyTask:
    from penstock.engine.tasks import CopyTask
    from penstock.target import modes

    run, config = attempt.run, attempt.run.config
    return CopyTask(
        shard=attempt.shard,
        rows=attempt.rows,
        journals=run.folder.journals(attempt.shard.index),
        data=data,
        dataset=config.dataset,
        engine=config.engine,
        run=run.id,
        attempt=attempt.name,
        host=host_name(),
        verify=config.verify,
        probe=run.probe,
        gid=modes.group_id(config.dataset.permissions),
    )


# One element (process) of a job array: its work on its shards, based only on the state on the target.
#
# An element writes its shard's progress, receipt and outcome. The engine does the rest (`jobs.element`). A
# receipt is written only if every row of the shard is done, durably, and nothing failed. After any other end
# there is an outcome file with the failure, and the exit status is not 0.

RESTED = 0.5  # seconds between two looks at the PAUSE file before the element begins
NAMED = 1000  # most failed files that an outcome lists; the rest is only counted


class Limits(NamedTuple):
    """The limits for the processes of a step, as its controller passes them on."""

    ops: int = 0  # metadata operations a second of all runs below the root; 0 if there is no budget
    ops_holder: str = ""  # the run's holder of a share; "" if the process holds its own share
    keep_free: int = 0  # bytes to keep free on the target; copying ends with NoSpaceError before that
    bandwidth: BandwidthConfig = BandwidthConfig()  # the cap on all elements' reads from sources
    link_holder: str = ""  # the run's holder on the network link; "" if the process holds its own share


class Element:
    """A process that does shards of one step, one or two at a time.

    The context holds the process's shares of `limits` from the first shard on. Raises PreflightError if the
    dataset's folders belong to another account, and LockedError if another run claimed the dataset. In these
    cases nothing is written.

    `root` is None for the target that the run was listed for. `rests` is as in `RereadTask`. `beside` returns
    whether the process copies at the same time, with most of its CPUs and memory. If it does, `watch` is the
    copying element's PauseWatch: a process looks at PAUSE only through the last entered watch.
    """

    def __init__(
        self,
        folder: RunLayout,
        step: str,
        stop: Stop,
        root: Path | None = None,
        *,
        limits: Limits = Limits(),  # noqa: B008 (it never changes)
        rests: Callable[[int], bool] | None = None,
        beside: Callable[[], bool] = lambda: False,
        watch: notices.PauseWatch | None = None,
    ) -> None:
        if step not in IN_ELEMENTS:
            raise FailedError(
                f"there are no elements of {in_quotes(step)}",
                why=f"only of {', '.join(IN_ELEMENTS)}",
                hint=IMPOSSIBLE,
            )
        # Read the run before anything is written: a folder without a run stays unchanged.
        info = read_run(folder)
        state = Path(info.state_root) if info.state_root else None
        self.layout = DatasetLayout(root or Path(info.root), info.dataset, state)
        self.run, self.folder = Run(self.layout, info, folder), folder
        self._step, self._stop, self._limits = step, stop, limits
        self._rests, self._beside = rests, beside
        self._done_bytes = 0
        self._at_work: dict[Reporter, int] = {}  # the bytes of each shard under way
        self._room: RoomWatch | None = None
        self._counting = threading.RLock()
        self.check()
        self.watch = watch or notices.PauseWatch(self.layout.root, say)
        self._shares = contextlib.ExitStack()
        self._paces: Paces | None = None

    def __enter__(self) -> Self:
        self._shares.enter_context(notices.watching(self.watch))
        return self

    def __exit__(self, *_: object) -> None:
        self._shares.close()

    def moved(self) -> int:
        """Return the bytes that this process has done, in all its shards. Any thread may call it."""
        with self._counting:
            return self._done_bytes + sum(reporter.grown for reporter in self._at_work)

    @property
    def overlaps(self) -> bool:
        """Whether two shards may be under way at once. Not under a byte limit: each would take all of it."""
        return self.run.config.engine.limit is None and self._limits.bandwidth.folder is None

    def check(self) -> None:
        if BY_NAME[self._step].makes_change:
            dataset_folders.check_owner(self.layout)
        if self._step in RUN_IN_ELEMENTS:
            dataset_lock.check_claim(self.layout, self.run.id)

    def do(self, claim: Claim, fed: Callable[[], None] | None = None) -> int:
        """Do the shard of this claim; return the exit status.

        Calls `fed` when worker processes have all its rows, and at most half of its bytes are left. Another
        thread may then begin the next shard. If two shards began together, they would end together, and
        nothing would be copied while both wait at their barrier. Raises ClaimLostError if another worker took
        the shard; this attempt then writes no outcome.
        """
        folder, step, index = self.folder, self._step, claim.index
        reporter = Reporter(folder.progress(step, index), beat=self._beat())
        small_files.make_dirs(folder.progress(step, index).parent)
        reporter.begin()
        with self._counting:
            self._at_work[reporter] = 0
        try:
            return self._do(claim, fed, reporter)
        finally:
            with self._counting:
                self._done_bytes += reporter.grown
                del self._at_work[reporter]

    def _do(self, claim: Claim, fed: Callable[[], None] | None, reporter: Reporter) -> int:
        folder, step, stop, index = self.folder, self._step, self._stop, claim.index
        before = journal.names(folder.journals(index))
        began = time.monotonic()
        ended = ElementOutcome(claim.content.worker, claim.generation, host=host_name())
        try:
            with claim.beating():
                _rest(reporter, stop)
                shard = _shard(self.run, index)
                self._at_work[reporter] = shard.bytes

                def half_done() -> bool:
                    if fed is None or shard.bytes - reporter.bytes > shard.bytes / 2:
                        return False
                    fed()
                    return True

                paces = self._shared(reporter)
                tried = Attempt(
                    self.run, shard, claim, reporter, stop, paces, self._look_at_room,
                    fed=half_done if fed else None, rests=self._rests, beside=self._beside(),
                )  # fmt: skip
                outcome, receipt = WORK[step](tried)
        except ClaimLostError:
            reporter.settle()
            raise
        except PenstockError as error:
            reporter.settle()
            stopped, progress = "", False
            if isinstance(error, InterruptedRunError):
                copies = BY_NAME[step].copies
                progress = journal.records_more(folder.journals(index), before) if copies else reporter.grew
                stopped = "time" if stop.out_of_time else "signal"
            ended = ended._replace(stopped=stopped, progress=progress, paused=self.watch.stood_at >= began)
            # A full target may have no room even for the outcome. The exit status then reports it.
            with contextlib.suppress(PenstockError):
                documents.write_outcome(folder, step, index, _failed(ended, error))
            say(str(error))
            return error.exit_code
        for text in outcome.warnings:
            say(f"warning: {text}")
        reporter.end(outcome.files + outcome.resumed_files, outcome.bytes + outcome.resumed_bytes)
        reporter.settle()
        if outcome.failures:
            documents.write_outcome(folder, step, index, _rows_failed(ended, outcome, step))
            for failure in outcome.failures[:NAMED]:
                say(f"{failure.path}: {failure.why}")
            return outcome.exit_code
        whole = _whole(receipt, self.run, shard, step, claim.content.worker, outcome, reporter)
        claim.prove(whole, receipts.held(self.run, step))
        return 0

    def _beat(self) -> Callable[[], None] | None:
        """Return a function that touches the run's notice: a run without a controller may still write."""
        layout = self.layout
        notice = layout.repair_under_way if self._step == "repair" else layout.under_way
        return partial(staging_notice.touch, notice) if BY_NAME[self._step].copies else None

    def _shared(self, reporter: Reporter) -> Paces:
        if self._paces is None:
            run, step, limits = self.run, self._step, self._limits
            held = shares.held(self.layout, limits.ops, step, limits.ops_holder)
            link = limits.bandwidth if BY_NAME[step].fetches else BandwidthConfig()
            what = f"{step} {run.dataset}, an element"
            wait = partial(_wait, self._stop, reporter)
            with contextlib.ExitStack() as both:
                rate = both.enter_context(held) if limits.ops else None
                share = both.enter_context(reading(link, limits.link_holder, what, run.id, say, wait))
                self._shares.push(both.pop_all())
            divided = (lambda: rate() / max(1, len(self._at_work))) if rate else None
            self._paces = Paces(divided, share)
        return self._paces

    def _look_at_room(self) -> None:
        """Raise NoSpaceError if there is no room for the bytes that this process's shards still write."""
        with self._counting:
            if self._room is None:
                run, layout = self.run, self.layout
                gid = modes.group_id(run.config.dataset.permissions) if BY_NAME[self._step].copies else None
                traits, keep = facts(layout.root).traits, self._limits.keep_free
                self._room = RoomWatch(
                    layout.releases, keep, gid, reserves=traits.preallocate, local=traits.local
                )
            # With `changed: follow`, objects that grew have more bytes than planned.
            left = sum(max(0, size - reporter.bytes) for reporter, size in self._at_work.items())
            self._room(self.moved(), left)


def _rest(reporter: Reporter, stop: Stop) -> None:
    while notices.standing_pause() is not None:
        _wait(stop, reporter, RESTED)


def _wait(stop: Stop, reporter: Reporter, seconds: float) -> None:
    stop.wait(seconds)
    reporter.alive()


def say(text: str) -> None:
    """Print into the element's log, its standard output, whatever the node's locale is."""
    line = printable_lines(f"penstock: {text}")
    encoding = sys.stdout.encoding or "ascii"
    print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)  # noqa: T201


def own_claim(line: ArrayLine, number: int) -> ShardClaim:
    restarts = kernel_facts.current_job().restarts
    return ShardClaim(array=line.name, number=number, call=line.call, host=host_name(), restarts=restarts)


def attempt_name() -> str:
    """Return a name unique to this attempt, even if several elements run in one job. It consists of job,
    element and restart, or of host and process, and of random digits."""
    environment = kernel_facts.current_job()
    who = f"{os.uname().nodename}-{os.getpid()}"
    if job := environment.array or environment.job:
        who = f"{job}_{environment.element or 0}_{environment.restarts}"
    return f"{who}-{secrets.token_hex(4)}"


def _shard(run: Run, index: int) -> ShardInfo:
    shard, path = run.shards.get(index), run.folder.shard(index)
    if shard is None:
        raise FailedError(f"the plan has no shard {index}", where=str(run.folder.plan), hint=STATE_ANEW)
    try:
        digest = receipts.file_digest(path)
    except OSError as error:
        raise FailedError(
            "a shard cannot be read", where=str(path), why=str(error), hint=STATE_ANEW
        ) from error
    if digest != shard.digest:
        raise FailedError(
            "a shard is not the one that was planned",
            where=str(path),
            why=f"it has {digest}, the plan says {shard.digest}",
            hint="list again, which drops a damaged plan, and plan again (`penstock run` does)",
        )
    return shard


def _whole(
    receipt: ElementReceipt,
    run: Run,
    shard: ShardInfo,
    step: str,
    attempt: str,
    outcome: Outcome,
    reporter: Reporter,
) -> ElementReceipt:
    return replace(
        receipt,
        step=step,
        index=shard.index,
        run=run.id,
        shard=shard.digest,
        rows=shard.rows,
        files=outcome.files + outcome.resumed_files,
        bytes=outcome.bytes + outcome.resumed_bytes,
        done_files=outcome.files,
        done_bytes=outcome.bytes,
        linked=outcome.linked + outcome.taken,
        taken=outcome.taken,
        linked_bytes=outcome.linked_bytes,
        link_seconds=round(outcome.link_seconds, 3),
        retries=outcome.retries,
        retried=outcome.retried,
        slowest=outcome.slowest,
        seconds=round(outcome.seconds, 3),
        workers=outcome.workers,
        streams=outcome.streams,
        durability=outcome.durability,
        fsync_ends=outcome.fsync_ends,
        grades=outcome.grades,
        methods=outcome.methods,
        warnings=outcome.warnings,
        why=outcome.why,
        attempt=attempt,
        host=host_name(),
        cpus=cpus(kernel_facts.current_job())[0],
        started=reporter.started,
        ended=time.time(),
        samples=reporter.samples,
    )


def _rows_failed(ended: ElementOutcome, outcome: Outcome, step: str) -> ElementOutcome:
    return ended._replace(
        exit_code=outcome.exit_code,
        # Files that verify found wrong must be copied before another try.
        retry=step != "verify" and any(f.retry for f in outcome.failures),
        failed=len(outcome.failures),
        failures=[(f.path, f.why) for f in outcome.failures[:NAMED]],
        linked_failures=[(f.path, f.why) for f in outcome.linked_failures[:NAMED]],
        split=outcome.split,
    )


def _failed(ended: ElementOutcome, error: PenstockError) -> ElementOutcome:
    return ended._replace(
        exit_code=error.exit_code,
        free=bool(ended.stopped) and (ended.progress or ended.paused),
        # After a stop from outside or a transient error, another try may succeed.
        retry=bool(ended.stopped) or error.retry,
        error=str(error),
    )
