"""The dataset's lock for the time of one step, and the claim that the step's run needs.

The lock says which process changes the dataset now; a claim (a numbered file in `.penstock/claims/`) says
which run the dataset is staged for, and the highest number counts. Steps and commands that change a dataset
work inside `holding` or `lock_of`; list calls `claim`. This module writes small files below `.penstock/`, and
a notice for other accounts and runs; it removes what killed commands left, and queries the cluster whether
another holder's job has ended.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from penstock.core import events
from penstock.core.errors import FailedError, InterruptedRunError, LockedError, PenstockError, PreflightError
from penstock.core.step_table import BY_NAME, OF_RUN
from penstock.dataset import cancel_mark, last_end, run_claims
from penstock.dataset.held_dataset import HeldDataset
from penstock.dataset.run import read_plan, read_run
from penstock.dataset.staging_notice import Notice, touch
from penstock.fs import durable
from penstock.jobs.ownership import liveness
from penstock.target import dataset_folders, state_marker
from penstock.target.operation_budget import unlimited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.dataset.dataset_lock import DatasetLock


def _nothing() -> None:
    pass


def claim(context: Context, held: HeldDataset, run: str) -> None:
    """Claim the dataset for `run`: this step and all later ones work for that run. `held` is what `holding`
    gave; its run and number are set. A run that did not end and is taken over from is named by a note. Raises
    LockedError while another run that claimed it lives, when another one was faster, and where the lock was
    lost; NewerFormatError where a newer penstock listed that run: what it holds is not known here."""
    layout, above = held.layout, held.above
    if above is not None and above.run:
        with contextlib.suppress(FailedError, PreflightError):
            read_run(layout.run(above.run))
            read_plan(layout.run(above.run))
    if above is not None and above.run != run:
        if who := liveness.of_claim(context, layout, above):
            raise LockedError(
                f"dataset {layout.dataset} is being staged by run {above.run}",
                where=str(layout.run(above.run).folder),
                why=who,
                hint="wait for it, or stop it; what the source holds by then is listed anew",
            )
        if above.run and not layout.run(above.run).receipt("publish").exists():
            by = run_claims.made_by(above)
            text = f"run {run} takes over from run {above.run}, which did not end ({by})"
            context.emit(events.Noted(layout.dataset, "list", text))
    standing = run_claims.highest(layout)
    if standing is not None and standing.run != run and standing != above:
        raise run_claims.overtaken(layout, run, standing)
    held.assert_held()
    held.number = run_claims.make(layout, run, above, context.controller).number
    held.run = run


@contextlib.contextmanager
def holding(
    context: Context, dataset: str, run: str, step: str, *, release: str = ""
) -> Iterator[HeldDataset]:
    """Hold the dataset's lock for a step of `run` ("" for list, and for a repair, which is of a `release`).
    Meanwhile `context.hold` is what is yielded. For a run or repair `context.spend` waits while PAUSE stands
    and for the budget of metadata operations. A notice tells other accounts and runs
    (`dataset.staging_notice`), until the run is published or the repair is done, or a step fails. Waiting and
    taking over are reported by events.

    Raises LockedError (exit 7) that names the holder, or the run that overtook this one, also in place of an
    error of the step itself; CancelledError where the workflow of this step was cancelled; PreflightError
    where the dataset's state or owner is not as it must be; else what the step raises."""
    layout = context.layout(dataset)
    dataset_folders.check_owner(layout)
    dataset_folders.need_state(layout)
    path = layout.repair_under_way if release else layout.under_way
    notice = Notice(layout, path, step, context.controller) if step in OF_RUN or release else None
    lock = lock_of(context, layout, run or release, step, beat=partial(touch, path) if notice else _nothing)
    with lock:
        hold = HeldDataset(layout, lock, run)
        if run:
            run_claims.check(layout, run)
        cancel_mark.refuse(layout, step)
        dataset_folders.sweep_leftovers(layout)
        if step in OF_RUN:
            last_end.begin(layout, reserve=bool(run))
        before, context.hold = context.hold, hold
        over = True
        if notice:
            notice.begin()
        try:
            with _shares(context, layout, step, run, release):
                yield hold
            if hold.run and step != "publish":
                # What publish showed is done, whoever came after it.
                run_claims.check(layout, hold.run)
            over = bool(release) or (bool(hold.run) and layout.run(hold.run).receipt("publish").exists())
        except InterruptedRunError:
            # Elements that go on touch the notice, and write what it says.
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
    """While the block works, list and plan wait for the run's share of the network link, which copy will use
    (and says where it cannot). Of a run or repair `context.spend` holds while PAUSE stands, and waits for
    this process's share of `target.ops`, where there is a budget."""
    before, hold = context.spend, context.stop.hold
    with contextlib.ExitStack() as stack:
        if step in ("list", "plan") and context.config.bandwidth.folder is not None:
            from penstock.jobs.bandwidth.share import link_hold

            with contextlib.suppress(PreflightError):
                stack.enter_context(link_hold(context, layout, step, run))
        if not run and not release:
            yield
            return
        share, spend = None, unlimited
        if context.ops:
            from penstock.host.pacing import spending
            from penstock.jobs.ownership.ops_share import ops_hold, rate_of

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
    """Returns LockedError where the step was overtaken while it ran, to be raised instead of the step's own
    error, since source or tree may belong to another run by now; else None."""
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
    """A lock of the dataset, for the caller to enter (`with`); it reports, as events, which holder it waits
    for. `name`: of the lock's file below `.penstock/`; `beat`: called with each heartbeat of the lock. Where
    PAUSE stands at the root, this call waits until it is gone. A state folder that a purge took from a
    dataset whose releases stand is made anew; with `target.state_root` it may not be mounted, so that raises
    PreflightError."""
    from penstock.dataset.dataset_lock import DatasetLock

    context.stop.check()
    if not layout.state.exists() and layout.releases.is_dir():
        if layout.state_root is not None:
            dataset_folders.need_state(layout)
        durable.make_dirs(layout.state)
    if layout.state.is_dir():
        state_marker.mark_state(layout)
    return DatasetLock(
        layout.state / name,
        layout.dataset,
        run=run,
        command=command,
        holder_ended=lambda job, cluster: liveness.scheduler(context, job, cluster),
        pause=context.stop.wait,
        beat=beat,
        tell=lambda text: context.emit(events.Warned(layout.dataset, command, text)),
    )
