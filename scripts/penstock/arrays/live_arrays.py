"""The arrays of a dataset that still live, of every run and audit, as their `arrays.jsonl` name them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.abilities import abilities_of
from penstock.cluster.registry import open_cluster
from penstock.state.submission_log import books

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cluster.port import Cluster
    from penstock.state.context import Context
    from penstock.state.submission_log import Submission


class LiveArray(NamedTuple):
    """One array with elements that have not ended, as far as can be known here."""

    array: str
    submission: Submission
    cluster: Cluster
    elsewhere: str = ""
    """The name of this cluster, where the array is another's, which cannot be asked here; else ""."""


def live_arrays(context: Context, dataset: str) -> Iterator[LiveArray]:
    """Queries the backend that each array was submitted to, whatever the configuration names. Local elements
    are left out, since they end with their controller. Writes nothing: only the holder of the lock may."""
    clusters = {context.cluster.kind: context.cluster}
    for submission in (one for book in books(context.layout(dataset)) for one in book.open()):
        kind = submission.kind
        if abilities_of(kind).elements_end_with_controller:
            continue
        if kind not in clusters:
            clusters[kind] = open_cluster(dataclasses.replace(context.config.cluster, backend=kind))
        cluster = clusters[kind]
        here = cluster.name() if submission.cluster else ""
        if submission.cluster != here:
            yield LiveArray(submission.array or submission.name, submission, cluster, elsewhere=here)
        elif array := _alive(cluster, submission):
            yield LiveArray(array, submission, cluster)


def _alive(cluster: Cluster, submission: Submission) -> str | None:
    """The array's id, where it has elements that have not ended."""
    array = submission.array or cluster.find(submission.name)
    if not array:
        return None
    states = cluster.states(array, submission.numbers).values()
    return None if all(status.state.ended for status in states) else array
