"""How many metadata operations a second this process may make below a root, of `target.ops` for all.

Runs, repairs, rehearsals, removals and `du` hold shares by files in `<root>/.operations/`
(`jobs.shares.rule`). Audits and verify only read, and have no share. A process that cannot write there, as on
a full file system, takes a tenth of the budget and is not counted.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from penstock.core.errors import FailedError
from penstock.dataset import holder as holders
from penstock.host.pacing import spending
from penstock.jobs.shares.folder import run_digits
from penstock.jobs.shares.rule import PARTS, Post
from penstock.jobs.shares.share import Hold, Share, look, sweep
from penstock.target import cross_account_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context, OpsHold, Stop

REMOVALS = 1000  # names a second that all removals take away, without a budget of operations
UNCOUNTED = 0.1  # part of the budget for a process that cannot hold a share
# Holders that `holders_of` names, and characters of each: other accounts wrote them.
NAMED, LONGEST = 20, 300


def _folder_of(layout: DatasetLayout) -> Path | None:
    """Return the folder of the shares, made if missing; None where it cannot be made."""
    try:
        cross_account_files.make_folder_as_above(layout.operations)
        above, made = layout.root.stat(), layout.operations.stat()
        if made.st_uid != above.st_uid and os.geteuid() == 0 == made.st_uid:
            # Root only looks here: accounts that stage must be able to post.
            os.chown(layout.operations, above.st_uid, above.st_gid)
    except (OSError, FailedError):
        return None
    return layout.operations


def ops_hold(context: Context, layout: DatasetLayout, step: str, run: str, release: str) -> Hold | None:
    """Return the holder of a run, or of a repair of a release; None where it cannot have one. Also removes
    files of this account's processes that were killed long ago."""
    if (folder := _folder_of(layout)) is None:
        return None
    sweep(folder)
    run = run or f"repair of {release}"
    return Hold(
        folder,
        run_digits(layout.lock, run),
        holders.this_process(run, f"{step} {layout.dataset}"),
        rate=lambda: float(context.ops),
        processes=1,
        # Elements of an interrupted run may be at work.
        lowers=not release and step not in ("plan", "copy"),
        ends=bool(release) or step == "publish",
        stopped=context.cluster.abilities.elements_end_with_controller,
    )


def rate_of(share: Share | OpsHold | None, ops: float, uncounted: float = UNCOUNTED) -> Callable[[], float]:
    """Return a function for the operations a second allowed now; `uncounted`: the part without a share."""

    def rate() -> float:
        if share is not None:
            with contextlib.suppress(FailedError):
                return ops * share.now()
        return ops * uncounted

    return rate


@contextlib.contextmanager
def held(
    layout: DatasetLayout,
    ops: float,
    command: str,
    holder: str = "",
    *,
    most: int = PARTS,
    uncounted: float = UNCOUNTED,
) -> Iterator[Callable[[], float]]:
    """Yield a function that returns this process's share now, in operations a second. `holder`: its run's;
    "": the process is a holder by itself, for `most` of PARTS."""
    share = None
    if (folder := _folder_of(layout)) is not None:
        who = holders.this_process("", f"{command} {layout.dataset}")
        share = Share(folder, holder, who, None if holder else lambda: Post(most, 1))
    with share or contextlib.nullcontext():
        yield rate_of(share, ops, uncounted)


@contextlib.contextmanager
def paced(
    layout: DatasetLayout,
    ops: float,
    command: str,
    stop: Stop,
    *,
    most: int = PARTS,
    uncounted: float = UNCOUNTED,
) -> Iterator[Callable[[int], None]]:
    """Yield `spend` (`target.operation_budget`) of a command that is a holder by itself. `ops` of 0 is no
    budget. It waits while PAUSE stands, and raises where the command was stopped."""
    if not ops:
        yield lambda _: stop.check()
        return
    with (
        held(layout, ops, command, most=most, uncounted=uncounted) as rate,
        spending(rate, stop.event.wait) as take,
    ):

        def spend(operations: int) -> None:
            stop.check()
            take(operations)

        yield spend


@contextlib.contextmanager
def removing(context: Context, layout: DatasetLayout) -> Iterator[None]:
    """Have `context.spend` wait for this process's share, a fifth of the budget at most, during the block."""
    before = context.spend
    # A full file system grants no share, and removals make room.
    ops, most, uncounted = (context.ops, PARTS // 5, UNCOUNTED) if context.ops else (REMOVALS, PARTS, 0.5)
    try:
        pace = paced(layout, ops, "gc", context.stop, most=most, uncounted=uncounted)
        with pace as context.spend:
            yield
    finally:
        context.spend = before


def holders_of(layout: DatasetLayout) -> list[str]:
    """Return a phrase for each holder of a large share now; [] where they cannot be read."""
    try:
        return [f"{share.part:.1%}: {share.who}"[:LONGEST] for share in look(layout.operations)[:NAMED]]
    except OSError:
        return []
