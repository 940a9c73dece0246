"""One element (process) of a job array: its work on its shards, based only on the state on the target.

An element writes its shard's progress, receipt and outcome. The engine does the rest (`jobs.element_work`). A
receipt is written only if every row of the shard is done, durably, and nothing failed. After any other end
there is an outcome file with the failure, and the exit status is not 0.
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
from penstock.core.element_documents import ElementOutcome, ShardClaim
from penstock.core.errors import IMPOSSIBLE, STATE_ANEW, FailedError, InterruptedRunError, PenstockError
from penstock.core.human import in_quotes, printable_lines
from penstock.core.layout import DatasetLayout, RunLayout
from penstock.core.run_steps import BY_NAME, IN_ELEMENTS, RUN_IN_ELEMENTS
from penstock.dataset import (
    dataset_lock,
    documents,
    receipts,
    staging_notice,
)
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
from penstock.jobs.element_work import WORK, Attempt, Paces
from penstock.jobs.shard_claims import ClaimLostError
from penstock.target import dataset_folders, modes, notices
from penstock.target.room_watch import RoomWatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.element_documents import ArrayLine, ElementReceipt
    from penstock.core.run_documents import ShardInfo
    from penstock.dataset.context import Stop
    from penstock.engine.tasks import Outcome
    from penstock.jobs.shard_claims import Claim


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
