"""cancel: end what still runs of a dataset's arrays. What was copied stays and is resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.dataset import cancel_mark, staging_notice
from penstock.jobs.arrays.live_arrays import live_arrays, unanswered
from penstock.jobs.ownership import promises
from penstock.jobs.run_state import held_by
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from penstock.dataset.context import Context


def run(context: Context, dataset: str) -> list[str]:
    """What was ended, a line each: living arrays of every run and audit of the dataset, on whichever backend
    they were submitted to, and the controller at work, which obeys a durable mark. Takes no lock: the
    controller that holds it may be the one that hangs."""
    layout = context.layout(dataset)
    dataset_folders.check_owner(layout)
    holder = held_by(layout)
    # Before the arrays: a controller that sees them end must not submit them again.
    cancel_mark.make(layout)
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
    promises.withdraw(layout)
    staging_notice.forget(layout)
    if holder:
        lines.append(f"its controller, which stops as soon as it sees that ({holder})")
    return lines
