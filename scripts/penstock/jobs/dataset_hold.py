"""The dataset's lock, held during one step, and the claim that the step's run needs.

The lock contains the process that changes the dataset now. A claim (a numbered file in `.penstock/claims/`)
contains the run for which the dataset is staged; the highest number counts. Every step and command that
changes a dataset works inside `holding` or `lock_of`.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from penstock.core import run_steps
from penstock.core.errors import FailedError, InterruptedRunError, LockedError, PenstockError, PreflightError
from penstock.core.run_steps import BY_NAME, OF_RUN
from penstock.dataset import dataset_lock, staging_notice, submitted_arrays
from penstock.dataset.dataset_lock import HeldDataset
from penstock.dataset.documents import read_plan, read_run
from penstock.dataset.staging_notice import Notice, touch
from penstock.fs import small_files
from penstock.host.pacing import unlimited
from penstock.jobs import dataset_state
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.dataset.dataset_lock import DatasetLock


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
        if who := dataset_state.of_claim(context, layout, above):
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
        holder_ended=lambda job, cluster: dataset_state.scheduler(context, job, cluster),
        pause=context.stop.wait,
        beat=beat,
        tell=lambda text: context.emit(run_steps.Warned(layout.dataset, command, text)),
    )
