"""Gathers what is known of the elements of a run: their receipts and progress files, the controller's book of
submissions (`arrays.jsonl`), and what SLURM's accounting keeps of their arrays.

The report calls it. It reads these files and queries the cluster; it writes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.abilities import abilities_of
from penstock.core import element_use, human
from penstock.core.element_columns import ElementRow
from penstock.core.errors import PenstockError
from penstock.core.job_time import CLOCKS
from penstock.core.step_table import RUN_IN_ELEMENTS
from penstock.dataset.element_progress import usage_of
from penstock.dataset.submission_log import ArrayBook
from penstock.jobs.arrays import shard_assignment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.cluster.port import Accounted
    from penstock.core.documents.array_line import ArrayLine
    from penstock.core.documents.element_receipt import ElementReceipt
    from penstock.core.documents.element_usage import ElementUsage
    from penstock.dataset.context import Context
    from penstock.dataset.run import Run

Place = tuple[str, int]
"""Step and shard."""


class ElementAccounts(NamedTuple):
    """A row for each element that left figures, by step and shard, and what people should know of them."""

    rows: Sequence[ElementRow]
    notes: Sequence[str]


class _Report(NamedTuple):
    """What one element itself left."""

    usage: ElementUsage
    receipt: ElementReceipt | None


def gather(context: Context, run: Run, elements: Iterable[ElementReceipt]) -> ElementAccounts:
    """What is known of the elements of a run that was planned; `elements` are the receipts that hold. What
    cannot be asked or read is left out and named in the notes: SLURM's accounting only adds to what the
    elements measured."""
    notes: list[str] = []
    book: Sequence[ArrayLine] = ()
    excluded: Mapping[str, str] = {}
    try:
        arrays_book = ArrayBook(run.folder.arrays)
        book, excluded = arrays_book.all(), arrays_book.excluded()
    except PenstockError as error:
        notes.append(f"the submissions are not known: {error}")
    accounted: Mapping[Place, Mapping[str, Accounted]] = {}
    try:
        accounted = _accounted(context, run, book)
    except PenstockError as error:
        notes.append(f"SLURM's accounting was not asked: {error}")
    arrays: dict[Place, list[ArrayLine]] = defaultdict(list)
    for submission in book:
        for index in submission.indices:
            arrays[submission.step, index].append(submission)
    starts = {submission.name: dict(submission.starts) for submission in book}
    rows = [
        _row(step, index, one, arrays[step, index], accounted.get((step, index), {}), starts)
        for step, index, one in _reports(run, elements)
    ]
    notes += _notes(rows)
    notes += _submitted_again(arrays)
    notes += [f"node {node} was excluded ({why})" for node, why in excluded.items()]
    return ElementAccounts(rows, notes)


def _reports(run: Run, elements: Iterable[ElementReceipt]) -> Iterator[tuple[str, int, _Report]]:
    done = {(receipt.step, receipt.index): receipt for receipt in elements}
    for step in RUN_IN_ELEMENTS:
        for shard in run.plan.shards:
            if receipt := done.get((step, shard.index)):
                yield step, shard.index, _Report(receipt.usage, receipt)
            elif usage_left := usage_of(run.folder.progress(step, shard.index)):
                yield step, shard.index, _Report(usage_left, None)


def _accounted(
    context: Context, run: Run, book: Sequence[ArrayLine]
) -> Mapping[Place, Mapping[str, Accounted]]:
    """By step and shard, and then by array, of the arrays of this cluster. Raises PenstockError."""
    cluster = context.cluster
    booked: dict[Place, dict[str, Accounted]] = defaultdict(dict)
    for line in book:
        if line.kind != cluster.kind or not line.array or not cluster.abilities.has_nodes:
            continue
        if line.cluster and line.cluster != cluster.name():
            continue
        shards: Mapping[int, int] = {}
        if shard_assignment.chosen_by_elements(line.step, line.indices):
            taken = shard_assignment.taken(run.folder, line.name)
            shards = {element: shard for shard, element in taken.items()}
        for account in cluster.accounting(line.array):
            element = account.element + line.base
            booked[line.step, shards.get(element, element)][line.array] = account
    return booked


def _row(
    step: str,
    index: int,
    report: _Report,
    arrays: Sequence[ArrayLine],
    by_array: Mapping[str, Accounted],
    starts: Mapping[str, Mapping[int, float]],
) -> ElementRow:
    """`by_array`: what accounting says, by the array's id. `starts`: by the array's name, when the cluster
    last started the elements of its shards."""
    usage, receipt, earlier = report.usage, report.receipt, report.usage.earlier
    array, accounted = _array(usage, arrays), list(by_array.values())
    last = by_array.get(usage.array)
    start = starts[array.name].get(index, 0.0) if array else 0.0
    wait = element_use.queue_wait(
        booked=last.waited if last else None,
        submitted=array.at if array else 0.0,
        start_time=start,
        began=usage.began,
        ran_before=earlier.array_seconds,
    )
    own = earlier.seconds + usage.seconds
    granted = earlier.granted_seconds + usage.cpus * usage.seconds
    cpu_seconds = earlier.cpu_seconds + usage.cpu_seconds
    booked = sum(one.seconds for one in accounted)
    seconds = max(own, booked)
    nodes = array is not None and abilities_of(array.kind).has_nodes
    asked = array.whole_nodes if array else None
    whole = element_use.whole_node(asked, usage.cpus, usage.node_cpus, nodes=nodes)
    started = (last.started if last else 0.0) or start or usage.began
    return ElementRow(
        step=step,
        element=index,
        done=receipt is not None,
        node=usage.host or None,
        attempt=usage.attempt or None,
        array=usage.array or None,
        submitted=(last.submitted if last else 0.0) or (array.at if array else 0.0) or None,
        started=started or None,
        ended=usage.began + usage.seconds,
        queue_wait=_rounded(wait.seconds),
        queue_wait_by=wait.by or None,
        attempts=earlier.attempts + 1,
        starts_missing=max(0, usage.restarts - earlier.array_attempts) if usage.array else None,
        seconds=_rounded(seconds),
        hours_by=element_use.SLURMDBD if booked > own else element_use.ELEMENT,
        whole_node=whole,
        node_hours=_rounded(seconds / 3600, 6) if whole else None,
        core_hours=_rounded((granted + (seconds - own) * usage.cpus) / 3600, 6) if usage.cpus else None,
        cpus=usage.cpus or None,
        node_cpus=usage.node_cpus or None,
        cpu_seconds=_rounded(cpu_seconds),
        granted_seconds=_rounded(granted) if granted else None,
        cpu_efficiency=_rounded(cpu_seconds / granted, 4) if granted else None,
        memory_peak=max(usage.memory_peak, earlier.memory_peak) or None,
        processes=usage.processes or None,
        job_memory_peak=max(usage.job_memory_peak, earlier.job_memory_peak) or None,
        job_memory_file=usage.job_memory_file or None,
        files=receipt.files if receipt else None,
        bytes=receipt.bytes if receipt else None,
        retries=receipt.retries if receipt else None,
        workers=receipt.workers if receipt else None,
        streams=receipt.streams if receipt else None,
        slurm_starts=sum(one.starts for one in accounted) or None,
        slurm_seconds=booked if accounted else None,
        slurm_cpu_seconds=element_use.total(one.cpu_seconds for one in accounted),
        slurm_granted_seconds=sum(one.granted_seconds for one in accounted) if accounted else None,
        slurm_memory_peak=max((one.memory_peak or 0 for one in accounted), default=0) or None,
    )


def _array(usage: ElementUsage, arrays: Sequence[ArrayLine]) -> ArrayLine | None:
    """The array in which an element last ran: by its number, or of local elements the last one that was
    submitted before."""
    if usage.array:
        return next((one for one in reversed(arrays) if one.array == usage.array), None)
    return next((one for one in reversed(arrays) if one.at <= usage.began + CLOCKS), None)


def _notes(rows: Sequence[ElementRow]) -> Iterator[str]:
    missing = sum(row.starts_missing or 0 for row in rows)
    if missing:
        yield (
            f"{human.counted(missing, 'start')} left no figures (killed before the first ones): "
            "hours and CPU time are without them, unless SLURM's accounting has them"
        )
    if left := sum(not row.done for row in rows):
        yield f"{human.counted(left, 'element')} without a receipt: figures up to the last sign of life"


def _submitted_again(arrays: Mapping[Place, Sequence[ArrayLine]]) -> Iterator[str]:
    """A line for each step with elements that were in several arrays of a cluster with nodes."""
    resubmitted: dict[str, dict[int, list[ArrayLine]]] = defaultdict(dict)
    for (step, index), several in arrays.items():
        submitted = [one for one in several if one.array and abilities_of(one.kind).has_nodes]
        if len(submitted) > 1:
            resubmitted[step][index] = submitted
    for step, again in resubmitted.items():
        most = max(again, key=lambda index: len(again[index]))
        number = f"{human.counted(len(again), 'element')}, most often " if len(again) > 1 else ""
        limits = [one.time for one in again[most] if one.time]
        raised = ""
        if limits and limits[-1] > limits[0]:
            raised = f", its time limit from {human.duration(limits[0])} to {human.duration(limits[-1])}"
        yield f"{step}: submitted again: {number}element {most} (in {len(again[most])} arrays{raised})"


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)
