"""Gather the usage of a run's elements (the processes of its job arrays) for the report.

Sources: the figures that each process measured, the claims and receipts of its shards, the book of
submissions (`arrays.jsonl`), and SLURM's accounting.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.port import abilities_of
from penstock.core import element_documents, human
from penstock.core.element_documents import ELEMENT_USAGE, ElementRow, ElementUsage
from penstock.core.errors import PenstockError
from penstock.core.run_steps import RUN_IN_ELEMENTS
from penstock.dataset import documents
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.jobs import shard_claims

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.cluster.port import Accounted
    from penstock.core.element_documents import ArrayLine, ElementReceipt
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run


Worker = tuple[str, int]  # the array's name, and the worker's number, unique in the step


class ElementAccounts(NamedTuple):
    """A row for each start of a worker, by step and worker, and readable notes."""

    rows: Sequence[ElementRow]
    notes: Sequence[str]


def gather(context: Context, run: Run, elements: Iterable[ElementReceipt]) -> ElementAccounts:
    """Return the usage of a planned run's elements; `elements` are the valid receipts.

    The notes report an unreadable book or accounting, which only add to the elements' own figures. Raises
    FailedError if claims or figures cannot be read.
    """
    notes: list[str] = []
    book: Sequence[ArrayLine] = ()
    excluded: Mapping[str, str] = {}
    try:
        arrays_book = ArrayBook(run.folder.arrays)
        book, excluded = arrays_book.all(), arrays_book.excluded()
    except PenstockError as error:
        notes.append(f"the submissions are not known: {error}")
    accounted: Mapping[Worker, Accounted] = {}
    try:
        accounted = _accounted(context, book)
    except PenstockError as error:
        notes.append(f"SLURM's accounting was not asked: {error}")
    rows = list(_rows(run, elements, {line.name: line for line in book}, accounted))
    if missing := sum(row.starts_missing or 0 for row in rows):
        notes.append(
            f"{human.counted(missing, 'start')} left no figures (killed before the first ones): "
            "hours and CPU time are without them, unless SLURM's accounting has them"
        )
    notes += [f"node {node} was excluded ({why})" for node, why in excluded.items()]
    return ElementAccounts(rows, notes)


def _accounted(context: Context, book: Sequence[ArrayLine]) -> Mapping[Worker, Accounted]:
    cluster = context.cluster
    return {
        (line.name, account.element + line.base): account
        for line in book
        if line.array and line.kind == cluster.kind and cluster.abilities.has_nodes
        if not line.cluster or line.cluster == cluster.name()
        for account in cluster.accounting(line.array)
    }


def _rows(
    run: Run,
    elements: Iterable[ElementReceipt],
    arrays: Mapping[str, ArrayLine],
    accounted: Mapping[Worker, Accounted],
) -> Iterator[ElementRow]:
    """Yield a row for each start. The row of a worker's last start also has the figures of all its starts."""
    done = _done(run, elements)
    for step in RUN_IN_ELEMENTS:
        workers: dict[Worker, list[ElementUsage]] = {
            worker: [] for worker in accounted if arrays[worker[0]].step == step
        }
        for path in run.folder.usage(step).glob("*.json"):
            if usage := documents.find_whole(ELEMENT_USAGE, path):
                workers.setdefault((usage.array, usage.number), []).append(usage)
        for worker, starts in sorted(workers.items(), key=lambda item: item[0][1]):
            starts.sort(key=lambda usage: (usage.restarts, usage.began))
            line, account = arrays.get(worker[0]), accounted.get(worker)
            *earlier, last = starts or [ElementUsage(*worker)]
            for usage in earlier:
                yield _row(step, usage, line, done[step, *worker, usage.restarts])
            before = sum(usage.seconds for usage in earlier)
            missing = max(last.restarts + 1, account.starts if account else 0) - len(starts)
            yield _row(step, last, line, done[step, *worker, last.restarts], account, before, max(0, missing))


def _done(
    run: Run, elements: Iterable[ElementReceipt]
) -> defaultdict[tuple[str, str, int, int], list[ElementReceipt]]:
    """Group receipts by step, array, number and restarts of the worker with the shard's highest claim, since
    only that worker writes the shard's receipt."""
    standing = {step: shard_claims.standing(run.folder, step) for step in RUN_IN_ELEMENTS}
    done: defaultdict[tuple[str, str, int, int], list[ElementReceipt]] = defaultdict(list)
    for receipt in elements:
        step, index = receipt.step, receipt.index
        claim = shard_claims.read(run.folder, step, index, standing[step].get(index, 0))
        done[step, claim.array, claim.number, claim.restarts].append(receipt)
    return done


def _row(
    step: str,
    usage: ElementUsage,
    line: ArrayLine | None,
    shards: Sequence[ElementReceipt],
    account: Accounted | None = None,
    before: float = 0.0,
    missing: int | None = None,
) -> ElementRow:
    """Return the row of one start, which did the shards of the receipts `shards`.

    `before` counts the seconds of earlier starts, which have rows of their own. `missing` counts earlier
    starts without figures; None if later starts exist.
    """
    last = missing is not None
    submitted = (account.submitted if account else 0.0) or (line.at if line else 0.0)
    start = dict(line.starts).get(usage.number, 0.0) if line and last else 0.0
    wait = element_documents.queue_wait(
        booked=account.waited if account else None,
        submitted=line.at if line and last else 0.0,
        start_time=start,
        began=usage.began,
        ran_before=before,
    )
    seconds = max(usage.seconds, account.seconds - before if account else 0.0)
    granted = usage.cpus * usage.seconds
    nodes = line is not None and abilities_of(line.kind).has_nodes
    asked = line.whole_nodes if line else None
    whole = element_documents.whole_node(asked, usage.cpus, usage.node_cpus, nodes=nodes)
    return ElementRow(
        step=step,
        element=usage.number,
        restarts=usage.restarts,
        node=usage.host or None,
        array=(line.array if nodes and line else "") or None,
        submitted=submitted or None,
        started=(account.started if account else 0.0) or start or usage.began or None,
        ended=(usage.began + usage.seconds) or (account.ended if account else 0.0) or None,
        queue_wait=_rounded(wait.seconds),
        queue_wait_by=wait.by or None,
        starts_missing=missing,
        seconds=_rounded(seconds),
        hours_by=element_documents.SLURMDBD if seconds > usage.seconds else element_documents.ELEMENT,
        whole_node=whole,
        node_hours=_rounded(seconds / 3600, 6) if whole else None,
        core_hours=_rounded(seconds * usage.cpus / 3600, 6) if usage.cpus else None,
        cpus=usage.cpus or None,
        node_cpus=usage.node_cpus or None,
        cpu_seconds=_rounded(usage.cpu_seconds) if usage.began else None,
        granted_seconds=_rounded(granted) if granted else None,
        cpu_efficiency=_rounded(usage.cpu_seconds / granted, 4) if granted else None,
        memory_peak=usage.memory_peak or None,
        processes=usage.processes or None,
        job_memory_peak=usage.job_memory_peak or None,
        job_memory_file=usage.job_memory_file or None,
        shards=len(shards),
        files=sum(receipt.files for receipt in shards),
        bytes=sum(receipt.bytes for receipt in shards),
        slurm_starts=account.starts if account else None,
        slurm_seconds=account.seconds if account else None,
        slurm_cpu_seconds=account.cpu_seconds if account else None,
        slurm_granted_seconds=account.granted_seconds if account else None,
        slurm_memory_peak=account.memory_peak if account else None,
    )


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)
