"""throttle: change how many elements of a dataset's work under way run at once (`penstock limit`).

It leaves a durable mark in each job's folder, and lowers live arrays' limits on their clusters; it ends
nothing.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from penstock.core.errors import FailedError, PreflightError
from penstock.core.layout import RunLayout
from penstock.core.step_table import IN_ELEMENTS
from penstock.dataset import orders, run_store
from penstock.dataset.submission_log import books
from penstock.jobs.arrays.array_throttle import shares
from penstock.jobs.arrays.live_arrays import live_arrays
from penstock.jobs.dataset_state import held_by
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.jobs.arrays.live_arrays import LiveArray


def run(context: Context, dataset: str, at_once: int) -> list[str]:
    """Let `at_once` elements of each step run from now on (0: `cluster.max_elements`); return what was done.

    This also holds for further arrays of the same job. Takes no lock: the controller reads the mark at its
    next look. A lower number is set on the cluster at once; only the controller sets a higher one, once the
    running elements have read their new shares of `target.ops`.

    Raises FailedError where nothing is under way, PreflightError for another account's dataset.
    """
    layout = context.layout(dataset)
    dataset_folders.check_owner(layout)
    folders = _under_way(layout)
    if not folders:
        raise FailedError(
            "nothing is under way whose elements could be throttled",
            where=dataset,
            hint="cluster.max_elements says how many elements of a new run are at work at once",
        )
    for folder in folders:
        orders.order_throttle(folder, at_once)
    arrays: dict[str, list[LiveArray]] = defaultdict(list)
    lines: list[str] = []
    for live in live_arrays(context, dataset):
        if live.elsewhere:
            lines.append(
                f"NOT array {live.array} of {live.submission.step}: it is on cluster "
                f"{live.submission.cluster}"
            )
        elif live.submission.step in IN_ELEMENTS:
            arrays[live.submission.step].append(live)
    for step, living in arrays.items():
        lines += _lowered(step, living, at_once or living[0].cluster.slots(step))
    holder = held_by(layout)
    lines.append(
        f"its controller does the rest at its next look ({holder})"
        if holder
        else "no controller is at work: the next `penstock run` keeps to it"
    )
    return lines


def _under_way(layout: DatasetLayout) -> list[RunLayout]:
    """Return the folders of the unpublished run, and of all jobs with arrays that may live."""
    folders = {
        book.folder: None for book in books(layout) if any(line.step in IN_ELEMENTS for line in book.open())
    }
    try:
        current = run_store.open_run(layout)
    except (PreflightError, FailedError):
        return list(map(RunLayout, folders))
    if not run_store.published(current):
        folders[current.folder.folder] = None
    return list(map(RunLayout, folders))


def _lowered(step: str, living: list[LiveArray], most: int) -> list[str]:
    now = [array.submission.at_once or array.cluster.slots(step) for array in living]
    lines = []
    for live, before, after in zip(living, now, shares(now, now, most), strict=True):
        if after < before:
            live.cluster.throttle(live.array, after)
            lines.append(f"array {live.array} of {step}: no more than {after} at once")
    return lines
