"""One element of an array: the whole work of one shard, from the state on the target alone.

`penstock element` calls it, in a process that the controller started on this machine or SLURM on a node. It
reads the run's folder and writes there progress, receipt and outcome of its shard; the rest, with sources,
files and worker processes, is the engine's (`jobs.elements.element_work`). While PAUSE stands at the root it
rests.

Guarantee: a receipt is written only when every row of the shard is done, durably, and nothing
failed. Any other end leaves an outcome file that says what failed, and exits non-zero.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.documents import element_usage
from penstock.core.documents.element_outcome import ElementOutcome
from penstock.core.documents.promise import of_repair
from penstock.core.errors import IMPOSSIBLE, STATE_ANEW, FailedError, InterruptedRunError, PenstockError
from penstock.core.layout import DatasetLayout, RunLayout
from penstock.core.step_table import BY_NAME, IN_ELEMENTS, RUN_IN_ELEMENTS
from penstock.core.text import in_quotes, printable_lines
from penstock.dataset import outcomes, receipts, run_claims
from penstock.dataset.element_progress import Reporter, usage_of
from penstock.dataset.run import Run, read_run
from penstock.engine.records import journal
from penstock.engine.workers.sizing import cpus
from penstock.fs import durable
from penstock.host import cgroups, job_environment
from penstock.host.job_environment import host_name
from penstock.host.resource_usage import Meter
from penstock.jobs.arrays.shard_assignment import shard_for
from penstock.jobs.elements.element_account import AttemptUsage
from penstock.jobs.elements.element_work import WORK, Attempt, Paces
from penstock.jobs.ownership.ops_share import OpsShare
from penstock.jobs.ownership.promises import OwnPromise
from penstock.target import dataset_folders, pause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.documents.element_receipt import ElementReceipt
    from penstock.core.run_documents import ShardInfo
    from penstock.dataset.context import Stop
    from penstock.engine.tasks import Outcome
    from penstock.jobs.bandwidth.cap_file import Cap
    from penstock.jobs.bandwidth.share import Share


class BandwidthCap(NamedTuple):
    """What bounds the bytes that all runs read over one network link (`bandwidth` of the configuration)."""

    folder: Path
    cap: Cap


RESTED = 0.5
"""Seconds between two looks of an element that rests before it begins."""
NAMED = 1000
"""Failed files that an outcome names; the rest is counted."""


def run_element(
    run_folder: Path,
    step: str,
    index: int,
    attempt: str,
    stop: Stop,
    root: Path | None = None,
    *,
    ops: int = 0,
    at_once: int = 1,
    meter: Meter | None = None,
    bandwidth: BandwidthCap | None = None,
) -> int:
    """Do one shard (see `shard_assignment`: not always that of this number); returns the exit status.
    `attempt`: the name of this attempt; "auto" makes one that is unique. `root` is the configured target;
    None: the one that the run was listed for. `ops`: metadata operations a second of all runs below the root,
    0 without a budget; `at_once`: how many elements of this step share it. `meter`: measures what the element
    uses; None: one that begins here. `bandwidth`: what bounds the bytes that all elements read from their
    sources; None: nothing but `engine.limit`. Raises PreflightError where the dataset's folders are not this
    account's own, LockedError where another run claimed the dataset: nothing is written then."""
    folder = RunLayout(run_folder)
    attempt = attempt_name() if attempt == "auto" else attempt
    if step not in IN_ELEMENTS:
        raise FailedError(
            f"there are no elements of {in_quotes(step)}",
            why=f"only of {', '.join(IN_ELEMENTS)}",
            hint=IMPOSSIBLE,
        )
    # Before anything is written: a folder that is no run's stays as it is.
    info = read_run(folder)
    state = Path(info.state_root) if info.state_root else None
    layout = DatasetLayout(root or Path(info.root), info.dataset, state)
    run = Run(layout, info, folder)
    if BY_NAME[step].makes_change:
        dataset_folders.check_owner(layout)
    if step in RUN_IN_ELEMENTS:
        run_claims.check(layout, run.id)
    index = shard_for(folder, step, index, host_name(), job_environment.current())
    # A run whose controller is gone still writes: others see that by its promise.
    promised = of_repair(run.release) if step == "repair" else run.id
    beat = OwnPromise(layout, promised).beat if BY_NAME[step].copies else None
    account = AttemptUsage(meter or Meter(cgroup=job_environment.current().cgroup), attempt)
    reporter = Reporter(folder.progress(step, index), beat=beat, usage=account.so_far)
    for path in (folder.progress(step, index), folder.receipt(step, index), folder.outcome(step, index)):
        durable.make_dirs(path.parent)
    account.earlier = element_usage.after(usage_of(folder.progress(step, index)), account.array)
    reporter.begin()
    before = journal.names(folder.journals(index))
    watch = pause.PauseWatch(layout.root, _say)
    try:
        with pause.watching(watch):
            _rest(reporter, stop)
            shard = _shard(run, index)
            ops_share = OpsShare(layout, promised, ops, at_once) if ops else None
            with _bandwidth_share(run, shard, step, bandwidth, reporter, stop) as share, account.measuring():
                paces = Paces(ops_share, share)
                outcome, receipt = WORK[step](Attempt(run, shard, attempt, reporter, stop, paces))
    except PenstockError as error:
        reporter.settle()
        stopped, progress = "", False
        if isinstance(error, InterruptedRunError):
            # The other steps begin a shard anew.
            progress = BY_NAME[step].copies and journal.records_more(folder.journals(index), before)
            stopped = "time" if stop.out_of_time else "signal"
        _failed(folder, step, index, attempt, error, stopped=stopped, progress=progress, paused=watch.stood)
        _say(str(error))
        return error.exit_code
    for text in outcome.warnings:
        _say(f"warning: {text}")
    reporter.end(outcome.files + outcome.resumed_files, outcome.bytes + outcome.resumed_bytes)
    reporter.settle()
    if outcome.failures:
        _outcome(folder, step, index, attempt, outcome)
        for failure in outcome.failures[:NAMED]:
            _say(f"{failure.path}: {failure.why}")
        return outcome.exit_code
    whole = _whole(receipt, run, shard, step, attempt, outcome, reporter)
    receipts.write_element(folder, replace(whole, usage=account.so_far()))
    return 0


def _rest(reporter: Reporter, stop: Stop) -> None:
    """Return when no PAUSE stands. Raises InterruptedRunError."""
    while pause.standing() is not None:
        stop.wait(RESTED)
        reporter.alive()


@contextlib.contextmanager
def _bandwidth_share(
    run: Run, shard: ShardInfo, step: str, bandwidth: BandwidthCap | None, reporter: Reporter, stop: Stop
) -> Iterator[Share | None]:
    """The share of the bandwidth, held from before the first byte to the end of the work."""
    if bandwidth is None or not BY_NAME[step].fetches:
        yield None
        return
    from penstock.jobs.bandwidth.share import Share

    what = f"{step} {run.dataset}, shard {shard.index}"
    with Share(bandwidth.folder, bandwidth.cap, run.config.engine.limit, what, run.id, _say) as share:

        def wait(seconds: float) -> None:
            stop.wait(seconds)
            reporter.alive()

        share.first(wait)
        yield share


def _say(text: str) -> None:
    """Into the element's log, which is its standard output; whatever locale the node has."""
    line = printable_lines(f"penstock: {text}")
    encoding = sys.stdout.encoding or "ascii"
    print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)  # noqa: T201


def attempt_name() -> str:
    """The job, element and restart, or host and process, and then random digits: unique to this attempt also
    where several elements run in one job."""
    environment = job_environment.current()
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
    """The receipt with what it says of every step."""
    environment = job_environment.current()
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
        cpu_seconds=round(outcome.cpu_seconds, 3),
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
        cpus=cpus(environment)[0],
        granted=cgroups.granted(),
        job=attempt if environment.job else "",
        restarts=environment.restarts,
        started=reporter.started,
        ended=time.time(),
        samples=reporter.samples,
    )


def _outcome(run: RunLayout, step: str, index: int, attempt: str, outcome: Outcome) -> None:
    ended = ElementOutcome(
        attempt=attempt,
        host=host_name(),
        exit_code=outcome.exit_code,
        retry=any(f.retry for f in outcome.failures),
        failed=len(outcome.failures),
        failures=[(f.path, f.why) for f in outcome.failures[:NAMED]],
        linked_failures=[(f.path, f.why) for f in outcome.linked_failures[:NAMED]],
        split=outcome.split,
    )
    outcomes.write(run, step, index, ended)


def _failed(
    run: RunLayout,
    step: str,
    index: int,
    attempt: str,
    error: PenstockError,
    *,
    stopped: str,
    progress: bool,
    paused: bool,
) -> None:
    outcome = ElementOutcome(
        attempt=attempt,
        host=host_name(),
        exit_code=error.exit_code,
        # A stop from outside, or something that may pass, is worth another try.
        retry=bool(stopped) or error.retry,
        error=str(error),
        stopped=stopped,
        progress=progress,
        paused=paused,
    )
    # On a full target there may be no room even for this: the exit status tells it then.
    with contextlib.suppress(PenstockError):
        outcomes.write(run, step, index, outcome)
