"""The state of a dataset (a word, the cause, and what helps), read from its small files once; whether a run
may still be alive; and the dataset's lock and claim, held during one step.
"""

from __future__ import annotations

import contextlib
import os
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.port import State, abilities_of
from penstock.core import human, run_steps
from penstock.core.errors import FailedError, InterruptedRunError, LockedError, PenstockError, PreflightError
from penstock.core.human import SECOND, nanoseconds
from penstock.core.run_steps import BY_NAME, OF_RUN, RUN_IN_ELEMENTS
from penstock.core.step_results import RunState
from penstock.dataset import dataset_lock, gate, receipts, run_store, staging_notice, submitted_arrays
from penstock.dataset import holder as holders
from penstock.dataset.dataset_lock import HeldDataset
from penstock.dataset.documents import load_run, read_plan, read_run
from penstock.dataset.receipts import Progress
from penstock.dataset.staging_notice import SUBMITTED, Notice, touch
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.fs import small_files
from penstock.host.pacing import unlimited
from penstock.host.waits import PATIENCE
from penstock.jobs.array_runner import still_alive
from penstock.target import dataset_folders, notices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.core.dataset_documents import ClaimFile, LastEnd
    from penstock.core.layout import DatasetLayout, RunLayout
    from penstock.core.step_results import Counts
    from penstock.dataset.context import Context
    from penstock.dataset.dataset_lock import DatasetLock
    from penstock.dataset.documents import Run
    from penstock.dataset.gate import Judgement
    from penstock.dataset.holder import Holder
    from penstock.dataset.staging_notice import StagingNotice


# The state of a dataset (a word, the cause, and what helps), read from its small files once. Also whether
# a run may still be alive.

# Whether a run may still be alive: its arrays, its elements on this host or another, its controller.
#
# While any of these functions reports something, no other run takes over the dataset, and nothing of the run
# is removed. They query the cluster (and may wait for it), and only record which arrays have ended.


def arrays_of(
    context: Context,
    dataset: str,
    folder: RunLayout,
    *,
    steps: Iterable[str] = RUN_IN_ELEMENTS,
    patient: bool = True,
) -> str:
    """Return a phrase naming a run's or repair's arrays that may still write; "" if all are known to be over.

    With `patient`, waits until the cluster answers; otherwise raises TransientError if it does not. Raises
    LockedError if only another cluster or backend could answer.
    """
    phrases = []
    for step in steps:
        alive = still_alive(context, dataset, folder, step, patient=patient)
        if alive:
            phrases.append(f"array {', '.join(alive)} of {step} has not ended")
    return "; ".join(phrases)


def of_claim(context: Context, layout: DatasetLayout, claim: ClaimFile) -> str:
    """Return a phrase naming what may still work for the run that made the claim; "" if nothing does.

    Waits for the cluster. Raises the errors of `arrays_of`.

    | its arrays   | publish's receipt | its controller                       | lives |
    |--------------|-------------------|--------------------------------------|-------|
    | may write    | any               | any                                  | yes   |
    | ended        | exists            | any                                  | no    |
    | ended        | none              | lives on this host                   | yes   |
    | ended        | none              | its scheduler reports a live job     | yes   |
    | ended        | none              | dead, none, or not visible from here | no    |

    No step of that run can be at work: the caller holds the lock, and a lock is never taken over while its
    heartbeat changes.
    """
    if not claim.run:
        return ""
    folder = layout.run(claim.run)
    if arrays := arrays_of(context, layout.dataset, folder):
        return arrays
    if folder.receipt("publish").exists() or not folder.run_file.exists():
        return ""
    return controller_of(context, claim)


def controller_of(context: Context, claim: ClaimFile) -> str:
    """Return a phrase naming the claim's workflow if it is alive, except this process's own; otherwise ""."""
    by = holders.from_json(claim.by)
    if by is None or claim.controller == context.controller:
        return ""
    pid, _, start = claim.controller.partition(".")
    if pid.isdecimal() and holders.is_here(by):
        if holders.start_time(int(pid)) == start:
            return f"its workflow is at work: process {pid} on {by.host}, of {by.user}"
        return ""
    if claim.controller and by.job and scheduler(context, by.job, by.cluster) is False:
        return f"its controller is at work: SLURM job {by.job} of cluster {by.cluster}, of {by.user}"
    return ""


def scheduler(context: Context, job: str, cluster: str) -> bool | None:
    """Return whether the scheduler reports the job as ended; None if that is unknown. It is always unknown
    for a job of another cluster, whose number may belong to a different job here."""
    try:
        if not cluster or context.cluster.name() != cluster:
            return None
    except PenstockError:
        return None
    return context.cluster.holder_ended(job)


# The state of a dataset (a word, the cause, and what helps), read once from its small files (`read`).
#
# The state follows from the gate, from the last run if this account may read it, and from the owner's public
# notice (`composed`):
#
# | the gate                 | the last run              | the notice | the state     |
# |--------------------------|---------------------------|------------|---------------|
# | held, damaged, ...       | any                       | any        | the gate's    |
# | published, nothing       | known, not `unknown`      | any        | the run's     |
# | published, nothing       | none, `unknown`           | is alive   | the notice's  |
# | published, nothing       | `unknown`                 | none       | `unknown`     |
# | published, nothing       | none                      | none       | the gate's    |
#
# What the last run is doing, or how it ended (`of`):
#
# | who works for the run                 | the note (`staging_notice`) | `state` |
# |---------------------------------------|-----------------------|-----------------------------------------|
# | a live step, which holds the lock     | any                   | `copying`, `verifying`, ..., by step    |
# | a live step, while PAUSE exists       | any                   | `waiting`                               |
# | a live step without a started element | any                   | `waiting`, with the queue's reason      |
# | its live controller, while another    | any                   | `waiting`, for that command             |
# | command holds the lock                |                       |                                         |
# | its live controller, between steps    | any                   | `starting` the next step                |
# | only its arrays                       | any                   | as for a live step; `run` watches again |
# | a submitted controller, not begun     | any older note        | `waiting`                               |
# | nobody                                | of a signal, `cancel` | `stopped`                               |
# | nobody                                | of an error           | `failed`                                |
# | nobody                                | none                  | `stopped`: killed, or between two steps |
# |                                       |                       | that a person calls                     |
# | an unresponsive process elsewhere     | none                  | `unknown`                               |
#
# A finished run has no state, unless a later command left a note.

DOING = {
    "list": "listing", "plan": "planning", "copy": "copying", "permissions": "setting permissions",
    "verify": "verifying", "publish": "publishing",
}  # fmt: skip
# Seconds without another host's heartbeat after which it is unknown whether its process is alive.
SILENT = PATIENCE


UNKNOWN = "unknown"
ENDED = ("failed", "stopped")  # states of a run that nobody works on, before its end
_WELL = (gate.PUBLISHED, gate.NOTHING)


class DatasetState(NamedTuple):
    state: str
    work: RunState  # the last run's state; {} if it ended, or this account may not read it
    run: Run | None = None  # the last listed run, if this account may read it
    staging: StagingNotice | None = None
    waits: float = 0.0  # seconds waited for SLURM, according to the target's files
    problem: PenstockError | OSError | None = None  # why the last run is not known


def read(context: Context, judgement: Judgement, submitted: str | None = None) -> DatasetState:
    """Return the state of the judged dataset, whatever its folder contains.

    `submitted` is the job of a controller that waits in the queue, with SLURM's reason in brackets. It is ""
    if no controller waits. If it is None, the queue was not read, and the notice counts.
    """
    layout = judgement.layout
    staging, now = staging_notice.find(layout), time.time()
    if os.path.lexists(layout.folder) and not dataset_folders.owns(layout):
        submitted = None  # `submitted` covers only this account's own controllers
    waits, noticed = 0.0, DOING.get(staging.notice.step, "") if staging and staging.alive else ""
    if submitted is None and staging and staging.notice.step == SUBMITTED and _newer(layout, staging):
        submitted, noticed = staging.notice.job or "?", "waiting"
        with contextlib.suppress(ValueError):
            waits = max(0.0, now - nanoseconds(staging.notice.since) / SECOND)
    run, problem, work = None, None, RunState()
    try:
        run = _last_run(layout)
        work = of(context, layout, run)
        if run is not None and "copy" in work:
            waits = max(waits, _silence(run, work["step"], now))
    except (PenstockError, OSError) as error:
        problem = error
    lock = locked(layout)
    if lock and lock.lives is None:
        noticed = ""  # the step may be dead: the heartbeat that touches the notice has stopped
    if submitted and (lock is None or lock.lives is False):
        work = {
            "state": "waiting",
            "why": f"for SLURM: the submitted controller, job {submitted}, has not begun",
        }
    return DatasetState(
        composed(judgement.state, work.get("state", ""), noticed), work, run, staging, waits, problem
    )


def glanced(judgement: Judgement, now: float) -> str:
    """Return the state as another account sees it, from the judgement and the notice of a run. `now`: seconds
    since the epoch; with it no file is touched to learn the file system's clock."""
    staging = staging_notice.find(judgement.layout, now=now)
    doing = {**DOING, SUBMITTED: "waiting"}
    return composed(
        judgement.state, "", doing.get(staging.notice.step, "") if staging and staging.alive else ""
    )


def composed(judged: str, work: str, noticed: str) -> str:
    """Compose the state by the first table above. A state of "" means none."""
    if judged not in _WELL:
        return judged
    return work if work not in ("", UNKNOWN) else noticed or work or judged


def _newer(layout: DatasetLayout, staging: StagingNotice) -> bool:
    """Return whether no command has ended since the notice was written."""
    try:
        return layout.ended.lstat().st_mtime <= staging.touched
    except OSError:
        return True


def _last_run(layout: DatasetLayout) -> Run | None:
    if not os.path.lexists(layout.folder):
        return None
    if dataset_folders.owns(layout):
        dataset_folders.check_owner(layout)
    claim = dataset_lock.highest_claim(layout)
    folder = layout.run(claim.run) if claim is not None and claim.run else None
    return load_run(layout, folder) if folder is not None and folder.run_file.exists() else None


class Locked(NamedTuple):
    holder: Holder | None  # None if the lock is just being taken, or is unreadable
    lives: bool | None  # None if the holder is on another host, and its heartbeat has stopped


def locked(layout: DatasetLayout) -> Locked | None:
    """Return the holder of the lock; None if there is no lock, or this account may not read it."""
    try:
        content, beaten = small_files.read(layout.lock), layout.lock.stat().st_mtime
    except OSError:
        return None
    holder = holders.parse(content)
    lives = holders.lives(holder) if holder else None
    if lives is None and abs(time.time() - beaten) < SILENT:
        lives = True
    return Locked(holder, lives)


def note(layout: DatasetLayout, end: LastEnd) -> None:
    """Leave a note of this end (`staging_notice`), unless another command is at work, which notes its own
    end."""
    lock = locked(layout)
    if lock is None or lock.lives is False:
        staging_notice.note_end(layout, end)


def note_success(context: Context, layout: DatasetLayout) -> None:
    """Note a publication, or an unchanged release, as a success if the gate is open."""
    if gate.judged(layout, context.config.target.owners).error is None:
        staging_notice.note_success(layout)


def of(context: Context, layout: DatasetLayout, run: Run | None) -> RunState:
    """Return the state of the dataset's run by the second table above.

    The state is {} for a finished run, and before the first listing. Raises FailedError if the run's state
    cannot be read.
    """
    lock = locked(layout)
    if run is None or run_store.published(run):
        step = lock.holder.command if lock and lock.lives and lock.holder else ""
        if step in DOING:
            return _paused(context, layout, {"state": DOING[step], "step": step})
        end = staging_notice.find_end(layout)
        return staging_notice.described_end(layout, end) if end else {}
    progress = _reached(run)
    return progress | _now(context, layout, run, progress["step"], lock)


def _now(context: Context, layout: DatasetLayout, run: Run, step: str, lock: Locked | None) -> RunState:
    command = lock.holder.command if lock and lock.holder else ""
    if lock and lock.lives and (command in OF_RUN or not command):
        step = command if command in DOING else step
        waits = _queue(context, run, step)
        if waits.reason:
            return _paused(context, layout, {"state": "waiting", "why": f"for SLURM: {waits.reason}"})
        return _paused(context, layout, {"state": DOING[step], "step": step})
    claim = dataset_lock.highest_claim(layout)
    controller = controller_of(context, claim) if claim else ""
    if controller and lock and lock.lives and lock.holder:
        return {"state": "waiting", "why": f"for the dataset's lock: {lock.holder.describe()}"}
    if controller:
        return _paused(context, layout, {"state": "starting", "why": step})
    waits = _queue(context, run, step)
    if waits.arrays:
        again = f"`penstock run {layout.dataset}` watches it again"
        if waits.reason:
            why = f"for SLURM: {waits.reason}; its controller has ended"
            return {"state": "waiting", "why": why, "to_do": again}
        why = f"array {', '.join(waits.arrays)} runs without its controller"
        return {"state": DOING[step], "why": why, "to_do": again}
    if end := staging_notice.find_end(layout):
        return staging_notice.described_end(layout, end)
    if lock and lock.lives is None and lock.holder:
        why = f"no sign of life for {SILENT:.0f} s or more: {lock.holder.describe()}"
        return {"state": UNKNOWN, "why": why, "to_do": staging_notice.how_it_goes_on(layout)}
    by = holders.from_json(claim.by) if claim else None
    if claim and by and claim.controller and not holders.is_here(by):
        why = f"no step is at work; its controller, on {by.host}, cannot be seen from here"
        return {"state": UNKNOWN, "why": why, "to_do": staging_notice.how_it_goes_on(layout)}
    why = f"it ended without a word before {step} did: killed, or its machine went down"
    if claim and not claim.controller:
        why = f"no command is at work, and {step} has not ended"
    return {"state": "stopped", "why": why, "to_do": staging_notice.how_it_goes_on(layout)}


def _paused(context: Context, layout: DatasetLayout, state: RunState) -> RunState:
    stands = notices.look_for_pause(context.config.target.root).pause
    if stands is None:
        return state
    return {**state, "state": "waiting", "why": f"PAUSE stands at {layout.root}: {stands}"}


class _Queue(NamedTuple):
    arrays: Sequence[str] = ()  # live arrays
    reason: str = ""  # why no element has started, in SLURM's words; "" if an element has started


def _queue(context: Context, run: Run, step: str) -> _Queue:
    """Query the scheduler about each of the step's arrays, except local ones."""
    living, reasons, started = [], [], False
    for submission in ArrayBook(run.folder.arrays).open(step):
        if abilities_of(submission.kind).elements_end_with_controller or not submission.array:
            continue
        if submission.kind != context.cluster.kind:
            silent = _silence(run, step, time.time())
            return _Queue(
                [submission.array], f"no sign of life for {human.duration(silent)}" if silent else ""
            )
        try:
            context.cluster.recall(submission.array, submission.name, submission.spec_cores)
            statuses = context.cluster.states(submission.array, submission.numbers).values()
        except PenstockError as error:
            return _Queue([submission.array], f"it does not answer ({error.what})")
        if any(not status.state.ended for status in statuses):
            living.append(submission.array)
        waiting = [status for status in statuses if status.state is State.PENDING]
        started = started or len(waiting) < len(statuses)
        reasons += [status.reason for status in waiting]
    if started or not reasons:
        return _Queue(living)
    reason = max(set(reasons), key=reasons.count)
    return _Queue(living, f"array {', '.join(living)}, {reason or 'without a reason'}")


def _silence(run: Run, step: str, now: float) -> float:
    """Return the seconds since the step's open SLURM arrays last wrote progress, or were submitted. Returns 0
    if there are no such arrays, or for times within PATIENCE, since a heartbeat may be that late."""
    arrays = [
        array
        for array in ArrayBook(run.folder.arrays).open(step)
        if array.array and not abilities_of(array.kind).elements_end_with_controller
    ]
    signs = [array.at for array in arrays]
    for index in {index for array in arrays for index in array.indices}:
        with contextlib.suppress(OSError):
            signs.append(run.folder.progress(step, index).stat().st_mtime)
    silent = now - max(signs, default=now)
    return silent if silent > PATIENCE else 0.0


def _reached(run: Run) -> RunState:
    """Return the step that has not ended, and the progress of the steps with elements."""
    if not run.folder.plan.exists():
        return {"step": "plan"}
    state: RunState = {"copy": _elements(run, "copy"), "verify": _elements(run, "verify")}
    counts = {"copy": state["copy"], "verify": state["verify"]}
    step = next((name for name, count in counts.items() if count["done"] < count["elements"]), "publish")
    if step != "copy" and not run.folder.receipt("permissions").exists():
        step = "permissions"
    state["step"] = step
    whole, done = run.plan.bytes, counts[step]["bytes"] if step in counts else 0
    if not whole:
        whole, done = run.plan.files, counts[step]["files"] if step in counts else 0
    if step in counts and whole:
        state["percent"] = round(min(99.9, 100 * done / whole), 1)
    return state


def _elements(run: Run, step: str) -> Counts:
    ok = receipts.held(run, step)
    files, size, failed = Progress().total(run.folder, step, run.indices)
    done = sum(map(ok, run.indices))
    return {
        "elements": len(run.indices),
        "done": done,
        "files": files,
        "bytes": size,
        "of_bytes": run.plan.bytes,
        "failed": failed,
    }


def held_by(layout: DatasetLayout) -> str:
    """Return a phrase naming the holder of the dataset's lock; "" without a lock, or if its process ended."""
    lock = locked(layout)
    if lock is None or lock.lives is False:
        return ""
    return lock.holder.describe() if lock.holder else "somebody who is just taking it"


# The dataset's lock, held during one step, and the claim that the step's run needs.
#
# The lock contains the process that changes the dataset now. A claim (a numbered file in `.penstock/claims/`)
# contains the run for which the dataset is staged; the highest number counts. Every step and command that
# changes a dataset works inside `holding` or `lock_of`.


def _nothing() -> None:
    pass


def claim(context: Context, held: HeldDataset, run: str) -> None:
    """Claim the dataset for `run`: this step and all later steps work for that run.

    Sets the run and number of `held`, which `holding` yielded. A note reports an unfinished run from which
    this run takes over. Raises LockedError while another run that claimed the dataset is alive, if another
    run was faster, or if the lock was lost. Raises NewerFormatError if a newer penstock listed the last run.
    """
    layout, above = held.layout, held.above
    if above is not None and above.run:
        with contextlib.suppress(FailedError, PreflightError):
            read_run(layout.run(above.run))
            read_plan(layout.run(above.run))
    if above is not None and above.run != run:
        if who := of_claim(context, layout, above):
            raise LockedError(
                f"dataset {layout.dataset} is being staged by run {above.run}",
                where=str(layout.run(above.run).folder),
                why=who,
                hint="wait for it, or stop it; what the source holds by then is listed anew",
            )
        if above.run and not layout.run(above.run).receipt("publish").exists():
            by = dataset_lock.claim_made_by(above)
            text = f"run {run} takes over from run {above.run}, which did not end ({by})"
            context.emit(run_steps.Noted(layout.dataset, "list", text))
    standing = dataset_lock.highest_claim(layout)
    if standing is not None and standing.run != run and standing != above:
        raise dataset_lock.overtaken(layout, run, standing)
    held.assert_held()
    held.number = dataset_lock.make_claim(layout, run, above, context.controller).number
    held.run = run


@contextlib.contextmanager
def holding(
    context: Context, dataset: str, run: str, step: str, *, release: str = ""
) -> Iterator[HeldDataset]:
    """Hold the dataset's lock for a step of `run` ("" for list, and for a repair of a `release`).

    Meanwhile `context.hold` is the yielded hold. For a run or repair, `context.spend` waits while the PAUSE
    file exists, and for the budget of metadata operations. A notice informs other accounts and runs
    (`dataset.staging_notice`) until the run is published, the repair is done, or a step fails.

    Raises LockedError (exit 7), which names the holder, or the run that took over the dataset. In the second
    case it replaces the step's own error. Raises CancelledError if this step's workflow was cancelled,
    PreflightError if the dataset has a wrong state or owner.
    """
    layout = context.layout(dataset)
    dataset_folders.check_owner(layout)
    dataset_folders.need_state(layout)
    path = layout.repair_under_way if release else layout.under_way
    notice = Notice(layout, path, step, context.controller) if step in OF_RUN or release else None
    lock = lock_of(context, layout, run or release, step, beat=partial(touch, path) if notice else _nothing)
    with lock:
        hold = HeldDataset(layout, lock, run)
        if run:
            dataset_lock.check_claim(layout, run)
        submitted_arrays.refuse_cancelled(layout, step)
        dataset_folders.sweep_leftovers(layout)
        if step in OF_RUN:
            staging_notice.begin_staging(layout, reserve=bool(run))
        before, context.hold = context.hold, hold
        over = True
        if notice:
            notice.begin()
        try:
            with _shares(context, layout, step, run, release):
                yield hold
            if hold.run and step != "publish":
                # A published release stays, even if another run claimed the dataset meanwhile.
                dataset_lock.check_claim(layout, hold.run)
            over = bool(release) or (bool(hold.run) and layout.run(hold.run).receipt("publish").exists())
        except InterruptedRunError:
            # Elements that continue still touch the notice, and write the stated files.
            copies = step in BY_NAME and BY_NAME[step].copies
            over = context.cluster.abilities.elements_end_with_controller or not copies
            raise
        except (PenstockError, OSError) as error:
            raise _overtaken(hold) or error from None
        finally:
            context.hold = before
            if notice and over:
                notice.end()


@contextlib.contextmanager
def _shares(context: Context, layout: DatasetLayout, step: str, run: str, release: str) -> Iterator[None]:
    """Hold the step's shares of the network link and of `target.ops` while the block works.

    List and plan hold the run's share of the link, which copy will use. `context.spend` waits while the PAUSE
    file exists, and for this process's share of operations, if there is a budget.
    """
    before, hold = context.spend, context.stop.hold
    with contextlib.ExitStack() as stack:
        if step in ("list", "plan") and context.config.bandwidth.folder is not None:
            from penstock.jobs.bandwidth import link_hold

            with contextlib.suppress(PreflightError):
                stack.enter_context(link_hold(context, layout, step, run))
        if not run and not release:
            yield
            return
        share, spend = None, unlimited
        if context.ops:
            from penstock.host.pacing import spending
            from penstock.jobs.shares import ops_hold, rate_of

            share = ops_hold(context, layout, step, run, release)
            if share is not None:
                stack.enter_context(share)
            rate = rate_of(share, context.ops)
            spend = stack.enter_context(spending(rate, context.stop.event.wait))
        context.ops_hold = share

        def held(operations: int) -> None:
            hold()
            if share is not None:
                share.works()
            spend(operations)

        context.spend = held
        try:
            yield
        finally:
            context.spend, context.ops_hold = before, None


def _overtaken(hold: HeldDataset) -> LockedError | None:
    """Return LockedError if another run took over the dataset, otherwise None. The LockedError replaces the
    step's own error, whose cause may be the other run's work on source or tree."""
    try:
        hold.assert_held()
    except LockedError as error:
        return error
    except PenstockError:
        return None
    return None


def lock_of(
    context: Context,
    layout: DatasetLayout,
    run: str,
    command: str,
    name: str = "lock",
    beat: Callable[[], None] = _nothing,
) -> DatasetLock:
    """Return a lock of the dataset, for the caller to enter. Events report a holder for which it waits.

    `name` is the lock's file below `.penstock/`. `beat` is called with each heartbeat. Waits while the PAUSE
    file exists at the root. If a dataset with releases has lost its state folder, makes a new one. With
    `target.state_root` raises PreflightError instead, since the folder may only be unmounted.
    """
    from penstock.dataset.dataset_lock import DatasetLock

    context.stop.check()
    if not layout.state.exists() and layout.releases.is_dir():
        if layout.state_root is not None:
            dataset_folders.need_state(layout)
        small_files.make_dirs(layout.state)
    if layout.state.is_dir():
        dataset_folders.mark_state(layout)
    return DatasetLock(
        layout.state / name,
        layout.dataset,
        run=run,
        command=command,
        holder_ended=lambda job, cluster: scheduler(context, job, cluster),
        pause=context.stop.wait,
        beat=beat,
        tell=lambda text: context.emit(run_steps.Warned(layout.dataset, command, text)),
    )
