"""cancel: end what still runs of a dataset's arrays. What was copied stays and is resumed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from penstock.cluster.opening import open_cluster
from penstock.steps import cancel_mark, living
from penstock.steps.status import held_by

if TYPE_CHECKING:
    from penstock.cluster.port import Cluster
    from penstock.steps.arraybook import Submission
    from penstock.steps.context import Context


def run(context: Context, dataset: str) -> list[str]:
    """What was told to end, a line each: living arrays of every run and audit of the dataset, on
    whichever backend they were submitted to, and the controller at work, which obeys a durable mark.
    Takes no lock: the controller that holds it may be the one that hangs."""
    layout = context.layout(dataset)
    holder = held_by(layout)
    # Before the arrays: a controller that sees them end must not submit them again.
    cancel_mark.make(layout)
    clusters = {context.cluster.kind: context.cluster}
    told = []
    for submission in (one for book in living.books(layout) for one in book.open()):
        if submission.kind == "local":
            continue  # its elements end with their controller
        if submission.kind not in clusters:
            config = dataclasses.replace(context.config.cluster, backend=submission.kind)
            clusters[submission.kind] = open_cluster(config)
        here = clusters[submission.kind].name() if submission.cluster else ""
        if submission.cluster != here:
            told.append(
                f"NOT array {submission.array or submission.name} of {submission.step}: it is on cluster "
                f"{submission.cluster}, and this is {here}; end it there"
            )
            continue
        array = _living(clusters[submission.kind], submission)
        if array:
            clusters[submission.kind].cancel(array)
            told.append(f"array {array} of {submission.step}")
    if holder:
        told.append(f"its controller, which stops as soon as it sees that ({holder})")
    return told


def _living(cluster: Cluster, submission: Submission) -> str | None:
    """The array's id, where it has elements that have not ended."""
    array = submission.array or cluster.find(submission.name)
    if not array:
        return None
    states = cluster.states(array, submission.indices).values()
    return None if all(status.state.ended for status in states) else array
