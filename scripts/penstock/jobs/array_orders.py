"""A person's orders for the live arrays of a dataset, of every run and audit: to end them, or to change how
many of their elements (processes of the array) run at once.
"""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.port import abilities_of
from penstock.cluster.registry import open_cluster
from penstock.core.errors import FailedError, PreflightError
from penstock.core.layout import RunLayout
from penstock.core.run_steps import IN_ELEMENTS
from penstock.dataset import run_store, staging_notice, submitted_arrays
from penstock.dataset.submitted_arrays import books
from penstock.jobs.array_supervision import shares
from penstock.jobs.dataset_state import held_by
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cluster.port import Cluster
    from penstock.core.element_documents import ArrayLine
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context


class LiveArray(NamedTuple):
    """An array with elements that have not ended, as far as can be known here."""

    array: str
    submission: ArrayLine
    cluster: Cluster
    elsewhere: str = ""  # this cluster's name if the array is on another, which cannot be queried from here


def live_arrays(context: Context, dataset: str) -> Iterator[LiveArray]:
    """Yield the arrays with elements that have not ended.

    Queries the backend of each submission, whatever backend is configured. Local elements are left out, since
    they end with their controller. Does not record ended arrays, since only the holder of the dataset's lock
    may write.
    """
    clusters = {context.cluster.kind: context.cluster}
    for submission in (line for book in books(context.layout(dataset)) for line in book.open()):
        kind = submission.kind
        if abilities_of(kind).elements_end_with_controller:
            continue
        if kind not in clusters:
            clusters[kind] = open_cluster(dataclasses.replace(context.config.cluster, backend=kind))
        cluster = clusters[kind]
        here = cluster.name() if submission.cluster else ""
        if submission.cluster != here:
            yield LiveArray(submission.array or submission.name, submission, cluster, elsewhere=here)
        else:
            for array in _alive(cluster, submission):
                yield LiveArray(array, submission, cluster)


def _alive(cluster: Cluster, submission: ArrayLine) -> Iterator[str]:
    for array in [submission.array] if submission.array else cluster.find(submission.name):
        cluster.recall(array, submission.name)
        states = cluster.states(array, submission.numbers).values()
        if not all(status.state.ended for status in states):
            yield array


def unanswered(context: Context, dataset: str) -> Iterator[tuple[ArrayLine, float]]:
    """Yield this cluster's unanswered submissions, and the seconds in which each array may still appear."""
    cluster = context.cluster
    for submission in (line for book in books(context.layout(dataset)) for line in book.open()):
        if submission.array or submission.kind != cluster.kind or cluster.find(submission.name):
            continue
        left = submission.at + cluster.appears_within(ended=False) - time.time()
        if left > 0:
            yield submission, left


# cancel: end a dataset's running arrays. Copied files stay, and a later run continues from them.
#
# Also leaves a mark for the controller (the process that runs the steps), and removes the staging notice.


def cancel(context: Context, dataset: str) -> list[str]:
    """End the live arrays of every run and audit of the dataset, on any backend, and the controller at work.

    The controller obeys a durable mark. Returns a line for each array and the controller. The line of an
    array that cannot be ended from here begins with NOT. Takes no lock, since a hanging controller may hold
    it. Raises PreflightError for another account's dataset.
    """
    layout = context.layout(dataset)
    dataset_folders.check_owner(layout)
    holder = held_by(layout)
    # Leave the mark before the arrays end: a controller must not submit them again.
    submitted_arrays.order_cancel(layout)
    lines = []
    for live in live_arrays(context, dataset):
        if live.elsewhere:
            lines.append(
                f"NOT array {live.array} of {live.submission.step}: it is on cluster "
                f"{live.submission.cluster}, and this is {live.elsewhere}; end it there"
            )
        else:
            live.cluster.cancel(live.array)
            lines.append(f"array {live.array} of {live.submission.step}")
    for submission, left in unanswered(context, dataset):
        lines.append(
            f"NOT an array of {submission.step} that the cluster may yet take, since its submission had no "
            f"answer ({submission.name}): give the same command again in {left:.0f} s"
        )
    staging_notice.forget(layout)
    if holder:
        lines.append(f"its controller, which stops as soon as it sees that ({holder})")
    return lines


# throttle: change how many elements of a dataset run at once (`penstock limit`).
#
# A durable mark is left in each job's folder, and live arrays' limits are lowered on their clusters. No
# element is ended.


def throttle(context: Context, dataset: str, at_once: int) -> list[str]:
    """Let `at_once` elements of each step run from now on (0: `cluster.max_elements`); return what was done.

    The number also applies to further arrays of the same job. Takes no lock: the controller reads the mark at
    its next look. A lower number is set on the cluster at once. Only the controller sets a higher number,
    when the running elements have read their new shares of `target.ops`.

    Raises FailedError if no job is under way, PreflightError for another account's dataset.
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
        submitted_arrays.order_throttle(folder, at_once)
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
