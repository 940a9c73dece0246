"""cancel: end what still runs of a dataset's arrays. What was copied stays and is resumed.

It also leaves a mark for the controller (the process that runs the steps), and removes the staging notice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.dataset import orders, staging_notice
from penstock.jobs.arrays.live_arrays import live_arrays, unanswered
from penstock.jobs.dataset_state import held_by
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from penstock.dataset.context import Context


def run(context: Context, dataset: str) -> list[str]:
    """End the live arrays of every run and audit of the dataset, on any backend, and the controller at work.

    The controller obeys a durable mark. Returns a line for each of these; a line that begins with NOT for
    each array that cannot be ended from here. Takes no lock: its holder may be the controller that hangs.
    Raises PreflightError for another account's dataset.
    """
    layout = context.layout(dataset)
    dataset_folders.check_owner(layout)
    holder = held_by(layout)
    # Before the arrays: a controller that sees them end must not submit them again.
    orders.order_cancel(layout)
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
