"""The live arrays of a dataset, of every run and audit, as their `arrays.jsonl` name them."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.abilities import abilities_of
from penstock.cluster.registry import open_cluster
from penstock.dataset.submission_log import books

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cluster.port import Cluster
    from penstock.core.element_documents import ArrayLine
    from penstock.dataset.context import Context


class LiveArray(NamedTuple):
    """An array with elements that have not ended, as far as can be known here."""

    array: str
    submission: ArrayLine
    cluster: Cluster
    elsewhere: str = ""  # this cluster's name, if the array is on another, which cannot be asked here


def live_arrays(context: Context, dataset: str) -> Iterator[LiveArray]:
    """Yield the arrays with elements that have not ended.

    Queries the backend of each submission, whatever the configuration names. Local elements are left out:
    they end with their controller. Ended arrays are not noted: only the holder of the dataset's lock may
    write.
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
    """Yield this cluster's unanswered submissions without an array, and each one's seconds left to appear."""
    cluster = context.cluster
    for submission in (line for book in books(context.layout(dataset)) for line in book.open()):
        if submission.array or submission.kind != cluster.kind or cluster.find(submission.name):
            continue
        left = submission.at + cluster.appears_within(ended=False) - time.time()
        if left > 0:
            yield submission, left
