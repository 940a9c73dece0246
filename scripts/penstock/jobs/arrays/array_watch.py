"""What one call of `run_array` knows of its elements: the arrays that live, and each element's status.

`jobs.arrays.array_runner` makes a `Watch` by `watch_of`, and calls `look` and `tell` again and again; it and
the modules beside it decide by what the `Watch` holds. This module queries the cluster, reads receipts and
other small files of the run, and emits events; it submits and cancels nothing and writes no file. The states
of all arrays come from one query; `tell` reports what changed.

Elements are named by index, which is the number of their shard. A receipt is the small file by which an
element proves what it did: with a good receipt it need not run again.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from penstock.cluster.port import State, Status
from penstock.core import events, human
from penstock.core.documents.marks import Throttle
from penstock.core.errors import FailedError, PreflightError, TransientError
from penstock.core.job_time import CLOCKS
from penstock.dataset import throttle_mark
from penstock.dataset.cancel_mark import CancelMark
from penstock.dataset.element_progress import Progress
from penstock.dataset.submission_log import ArrayBook
from penstock.host import heartbeat
from penstock.jobs.arrays import shard_assignment, wait_report
from penstock.jobs.arrays.element_outcomes import Ends
from penstock.jobs.arrays.node_failures import NodeFailures
from penstock.jobs.arrays.queue_places import QueuePlaces
from penstock.jobs.arrays.wait_report import EVERY, Element, WaitReport
from penstock.target import pause

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.core.documents.array_line import ArrayLine
    from penstock.core.errors import PenstockError
    from penstock.core.job_time import Estimate
    from penstock.core.layout import RunLayout
    from penstock.dataset.context import Context

T = TypeVar("T")

DOUBT = 3600.0
"""Seconds for which an array that a cluster does not know counts as alive, at most: also where the cluster
says that it forgets nothing, since then it lost its state."""
RECEIPT_GRACE = 30.0
"""Seconds in which a receipt written on another node must become visible here, and in which the cluster has
to say of an element with a receipt that it ended."""
SLOW = 5.0
"""Seconds from which on a query counts as slow, which is reported: an answer usually takes 50 ms."""
SAID = 30.0
"""Seconds between two reports that the cluster does not answer, at least. It is asked once a minute or more
often, so a minute at most."""
SILENT = 6 * 3600.0
"""Seconds without an answer after which a step ends."""
BETWEEN = 15.0
"""Seconds, at most, between two looks at receipts and progress, however long the cluster's answers take."""


@dataclass
class WatchedArray:
    """An array whose elements may still live. Its elements are named by index, that is by shard."""

    submission: ArrayLine
    array: str
    """Its id, as the cluster gave it."""
    at_once: int
    """How many of its elements may run at once."""
    statuses: Mapping[int, Status] = field(default_factory=dict)
    """By element, as the cluster reported last."""
    taken: Mapping[int, int] | None = None
    """Which element took which shard, where elements share them out themselves (`shard_assignment`)."""

    @property
    def over(self) -> bool:
        """Whether all its elements have ended, by the last answer; False before the first."""
        return bool(self.statuses) and all(s.state.ended for s in self.statuses.values())

    def element_of(self, index: int) -> int | None:
        """The element that does this shard; None while no element has taken the shard and one still may."""
        if self.taken is None:
            return index
        return self.taken.get(index, index if self.over else None)

    def of(self, index: int) -> Status | None:
        """The status of the element that does this shard; None where that is not known."""
        element = self.element_of(index)
        return None if element is None else self.statuses.get(element)

    @property
    def starts(self) -> dict[int, float]:
        """When the cluster last started the element of each shard, in seconds since the epoch, as far as it
        says."""
        seen = ((index, self.of(index)) for index in self.submission.indices)
        return {index: status.started for index, status in seen if status is not None and status.started}

    @property
    def pending(self) -> int:
        """How many of its elements wait in the queue."""
        return sum(s.state is State.PENDING for s in self.statuses.values())

    @property
    def alive(self) -> int:
        """How many of its elements wait or run."""
        return sum(not s.state.ended for s in self.statuses.values())

    @property
    def used(self) -> int:
        """The slots that it takes, or may take at any moment."""
        return max(self.alive - self.pending, min(self.at_once, self.alive))


@dataclass
class Watch:
    """What one call of `run_array` knows of its elements. For one thread."""

    context: Context
    dataset: str
    run: RunLayout
    step: str
    receipt_ok: Callable[[int], bool]
    """Whether the element of an index has a good receipt: reads it."""
    indices: Sequence[int]
    """Of all elements that the step needs."""
    command: Sequence[str]
    """Of an element, but for its index."""
    cancelled: CancelMark
    book: ArrayBook
    """The run's list of arrays that were submitted."""
    ends: Ends
    statuses: dict[int, Status] = field(default_factory=dict)
    """The last status of each element, by index, as `tell` reported it."""
    live: list[WatchedArray] = field(default_factory=list)
    """Arrays whose elements may still live."""
    latest: dict[int, str] = field(default_factory=dict)
    """The array in which this call submitted an index last: what earlier arrays say of the index is over."""
    done: set[int] = field(default_factory=set)
    """Indices with a good receipt, no element of which is under way."""
    tries: Counter[int] = field(default_factory=Counter)
    """How often this call submitted each index, without submissions after an end that uses up no retry."""
    late: dict[tuple[str, int], float] = field(default_factory=dict)
    """When an element was first seen as DONE without its receipt."""
    progress: Progress = field(default_factory=Progress)
    report: WaitReport = field(default_factory=WaitReport)
    asked_in_vain: float | None = None
    """Since when the cluster has not answered; None: it does."""
    complained: float = float("-inf")
    """When it was reported last that the cluster does not answer, or answers slowly."""
    patient: bool = True
    """Whether to wait for a cluster that does not answer."""
    amounts: Callable[[int, int], None] | None = None
    """Called with the files and bytes that are done."""
    throttled: Throttle = field(default_factory=Throttle)
    """What a person said last of how many elements run at once."""
    widen: Callable[[int], None] = lambda _: None
    """Called before more elements than ever run at once."""
    unknown: dict[str, float] = field(default_factory=dict)
    """When the cluster was first seen not to know an array, by its id or name."""
    queue: QueuePlaces = field(default_factory=QueuePlaces)
    doubted: dict[str, float] = field(default_factory=dict)
    """When a submission without an answer was last made, by the array's name: a second one may appear."""
    expected: Callable[[int], Estimate] | None = None
    """How long the element of an index takes; None where nobody knows."""
    limits: dict[int, int] = field(default_factory=dict)
    """Time limits that were raised, in seconds."""
    raises: Counter[int] = field(default_factory=Counter)
    """How often in a row an element timed out without progress."""
    judged: set[tuple[str, int]] = field(default_factory=set)
    """Arrays and indices whose end was judged (`element_ends`)."""
    failures: NodeFailures = field(default_factory=NodeFailures)
    excluded: list[str] = field(default_factory=list)
    """Nodes that no further array goes to."""
    exclusion_tried: bool = False
    """Whether nodes that an earlier controller excluded are still spared by the cluster was looked up."""
    proven: set[int] = field(default_factory=set)
    """Indices whose good receipt was read, whatever the cluster says of their elements."""
    unproven_until: float = 0.0
    """Until when no receipt is read again."""
    proven_at: float | None = None
    """When the last of all receipts was read."""
    moved: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Of an element that the cluster lost: the time of its progress file, and when that was first read."""
    superfluous: set[str] = field(default_factory=set)
    """Arrays that were cancelled since all receipts are there, or since another one has the same elements."""
    left: set[int] = field(default_factory=set)
    """Indices that had no receipt when no element of theirs lived. None can come until one is submitted: of
    20,000 elements most wait for an array of their own, and are not to cost a read at each look."""

    def note(self, text: str) -> None:
        """Report a line for people, as an event."""
        self.context.emit(events.Noted(self.dataset, self.step, text))

    def all_proven(self) -> bool:
        """Whether every index has a good receipt: reads, of those that had none, the first, once a second."""
        now = time.monotonic()
        if now < self.unproven_until:
            return False
        for index in self.indices:
            if index in self.proven or index in self.done:
                continue
            if index in self.left or not self.receipt_ok(index):
                self.unproven_until = now + 1.0
                return False
            self.proven.add(index)
        if self.proven_at is None:
            self.proven_at = now
        return True

    def missing(self) -> list[int]:
        """The indices without a good receipt, of which no element is under way."""
        missing = []
        for index in self.indices:
            if index in self.done:
                continue
            arrays = [a for a in self.live if index in a.statuses]
            if any(self.under_way(a, index) for a in arrays):
                continue
            if index in self.proven or (index not in self.left and self.receipt_ok(index)):
                self.done.add(index)
                continue
            if not arrays and not self.tries[index]:
                self.left.add(index)
            missing.append(index)
        return missing

    def under_way(self, live: WatchedArray, index: int) -> bool:
        """Whether the array's element of this index may still run, or its receipt may still appear: up to
        RECEIPT_GRACE seconds after it was first seen to have ended well on a node."""
        status = live.of(index)
        if status is None or not status.state.ended:
            return True
        late = status.state is State.DONE and self.context.cluster.abilities.has_nodes
        if not late or self.receipt_ok(index):
            return False
        now = time.monotonic()
        return now - self.late.setdefault((live.array, index), now) <= RECEIPT_GRACE


def watch_of(
    context: Context,
    dataset: str,
    run: RunLayout,
    step: str,
    receipt_ok: Callable[[int], bool],
    indices: Sequence[int] = (),
    command: Sequence[str] = (),
) -> Watch:
    """A `Watch` that knows of no array yet. Reads the dataset's cancel mark and the run's throttle."""
    statuses: dict[int, Status] = {}
    ends = Ends(run, step, context.config.cluster, statuses)
    mark = CancelMark.of(context.layout(dataset), step)
    said = throttle_mark.read(run)
    book = ArrayBook(run.arrays)
    return Watch(
        context, dataset, run, step, receipt_ok, indices, command, mark, book, ends, statuses, throttled=said
    )


def ask(watch: Watch, *arrays: WatchedArray) -> None:
    """Set the statuses of all elements of these arrays, by one query. Waits for the cluster as `patiently`,
    but no longer than until all receipts are there: then the statuses stay as they were."""
    begun = time.monotonic()
    while not look(watch, arrays) and not (watch.indices and watch.all_proven()):
        watch.context.stop.wait(watch.context.cluster.interval(time.monotonic() - begun))


def look(watch: Watch, arrays: Sequence[WatchedArray]) -> bool:
    """Set the statuses of all elements of these arrays, by one query. Where the cluster does not answer, or
    its commands are gone, they stay as they were, since receipts may end the step meanwhile, and False is
    returned; with `Watch.patient` off, TransientError is raised."""
    began = time.monotonic()
    try:
        _ask(watch, arrays)
    except (TransientError, PreflightError) as error:
        _in_vain(watch, error)
        return False
    _answered(watch)
    now = time.monotonic()
    if now - began >= SLOW and now - watch.complained >= EVERY:
        watch.complained = now
        took = f"the last query took {human.duration(now - began)}"
        watch.note(f"the cluster answers slowly: {took}; receipts are read meanwhile")
    return True


def _ask(watch: Watch, arrays: Sequence[WatchedArray]) -> None:
    if not arrays:
        return
    cluster = watch.context.cluster
    statuses = cluster.states_of({live.array: live.submission.numbers for live in arrays})
    for live in arrays:
        base, indices = live.submission.base, live.submission.indices
        before = live.statuses
        live.statuses = {number + base: status for number, status in statuses[live.array].items()}
        if any(s.state is State.LOST for s in live.statuses.values()):
            live.statuses = _not_yet_lost(watch, live, before)
        else:
            watch.unknown.pop(live.array, None)
        if cluster.abilities.has_nodes and shard_assignment.chosen_by_elements(watch.step, indices):
            live.taken = shard_assignment.taken(watch.run, live.submission.name, live.taken)


def _not_yet_lost(watch: Watch, live: WatchedArray, before: Mapping[int, Status]) -> Mapping[int, Status]:
    """An array that the cluster does not know counts as alive until the cluster may have forgotten it: an
    earlier answer comes from another controller, or from one that lost its state. An element at work counts
    as alive after that, too: one whose array was renamed, say. One with a receipt is done. An element that
    an answer showed alive is not forgotten so soon: an answer without it was cut off.

    | submitted, by the clock of who did       | unknown, by this process's clock | progress   | counts as |
    |------------------------------------------|----------------------------------|------------|-----------|
    | any                                      | any                              | `_moves`   | alive     |
    | longer ago than it remembers, and CLOCKS | any, and never known             | stands     | lost      |
    | any                                      | longer than it remembers, DOUBT  | stands     | lost      |
    | later, or known to this process          | less                             | any        | alive     |
    """
    if watch.context.cluster.abilities.elements_end_with_controller:
        # Whether one of them may still write was judged when the array was met, by its processes.
        return live.statuses
    remembers = watch.context.cluster.remembers()
    now = time.monotonic()
    first = watch.unknown.setdefault(live.array, now)
    age = time.time() - live.submission.at
    doubted = remembers > 0 and now - first <= min(remembers, DOUBT)
    young = age <= remembers + CLOCKS
    unknown = Status(State.RUNNING, reason="not known to the cluster", unknown=True)

    def alive(index: int) -> bool:
        element = live.element_of(index)
        # Read from the first look on, so that it is known at once when it stands still.
        moves = _moves(watch, index if element is None else element)
        return moves or (doubted and (young or (index in before and not before[index].state.ended)))

    def counts(index: int, status: Status) -> Status:
        if status.state is not State.LOST:
            return status
        if index in watch.proven:
            return Status(State.DONE, reason="by its receipt")
        return unknown if alive(index) else status

    return {index: counts(index, status) for index, status in live.statuses.items()}


def _moves(watch: Watch, index: int) -> bool:
    """Whether an element's progress file changed within `heartbeat.PATIENCE`, by this process's own clock: a
    node's clock is trusted for no more than CLOCKS."""
    try:
        written = os.stat(watch.run.progress(watch.step, index)).st_mtime_ns
    except OSError:
        return False
    if time.time() - written / 1e9 > heartbeat.PATIENCE + CLOCKS:
        return False
    now = time.monotonic()
    before, since = watch.moved.get(index, (0, now))
    if before != written:
        watch.moved[index] = (written, now)
        return True
    return now - since <= heartbeat.PATIENCE


def tell(watch: Watch) -> None:
    """Report, as events: statuses that changed, the files and bytes done, and what the step waits for."""
    elements = [
        Element(live.array, index, status, (live.element_of(index) or 0) - live.submission.base)
        for live in watch.live
        for index in live.submission.indices
        if (status := live.of(index)) is not None
    ]
    counts = {e.index: e.status for e in elements if watch.latest.get(e.index, e.array) == e.array}
    for index, status in counts.items():
        old = watch.statuses.get(index)
        watch.statuses[index] = status
        if old is None or (old.state, old.reason, old.node) != (status.state, status.reason, status.node):
            _tell_change(watch, index, status)
    files, size = tell_amounts(watch)
    idle = f"no array is submitted, since the queue is full: {watch.queue.full}" if watch.queue.full else ""
    if pause.standing() is not None:
        idle = "no array is submitted while PAUSE stands at the root"
    if watch.asked_in_vain is not None:
        return  # why elements wait is not known then
    for text in watch.report.look(time.monotonic(), elements, (files, size), idle):
        watch.note(text)


def tell_amounts(watch: Watch) -> tuple[int, int]:
    """Report the files and bytes that are done, as an event; returns both."""
    begun = {index for index, s in watch.statuses.items() if s.state is not State.PENDING}
    waiting = set(watch.indices) - begun
    files, size, failed = watch.progress.total(watch.run, watch.step, watch.indices, waiting)
    if watch.amounts is not None:
        watch.amounts(files, size)
    states = wait_report.states(watch.statuses)
    watch.context.emit(events.Progressed(watch.dataset, watch.step, files, size, failed, states))
    return files, size


def _tell_change(watch: Watch, index: int, status: Status) -> None:
    state, reason = status.state.value, status.reason
    if status.state is State.FAILED and watch.ends.by_its_time(index):
        # What follows from it is a line of its own (`element_ends`).
        state, reason = "stopped", "its time ended"
    watch.context.emit(events.ElementChanged(watch.dataset, watch.step, index, state, status.node, reason))


def patiently(watch: Watch, ask: Callable[[], T]) -> T:
    """Call `ask` until the cluster answers, and return the answer: a slurmctld that is down for hours ends
    nothing. Each TransientError is reported and retried after a pause; with `Watch.patient` off it is raised.
    Raises InterruptedRunError on a signal."""
    begun, failed = time.monotonic(), False
    while True:
        try:
            answer = ask()
        except TransientError as error:
            failed = True
            _in_vain(watch, error)
            watch.context.stop.wait(watch.context.cluster.interval(time.monotonic() - begun))
            continue
        if failed:  # else it may not have been the cluster that answered, but what is known of it
            _answered(watch)
        return answer


def _in_vain(watch: Watch, error: PenstockError) -> None:
    """Say that the cluster does not answer, once in SAID seconds. Raises the error where nobody waits,
    InterruptedRunError where a signal ended the query, and FailedError after SILENT seconds."""
    watch.context.stop.signalled()
    if not watch.patient:
        raise error
    now = time.monotonic()
    if watch.asked_in_vain is None:
        watch.asked_in_vain = now
        text = f"the cluster does not answer, asking on: {error.reason}"
    else:
        text = f"the cluster has not answered for {human.duration(now - watch.asked_in_vain)}: {error.reason}"
    if now - watch.asked_in_vain >= SILENT:
        raise FailedError(
            f"the cluster has not answered for {human.duration(SILENT)}",
            where=watch.dataset,
            why=error.reason,
            hint="elements may be at work still: when SLURM's commands answer, the same command goes on with "
            "them",
        ) from error
    if now - watch.complained >= SAID:
        watch.complained = now
        watch.context.emit(events.Warned(watch.dataset, watch.step, text))


def _answered(watch: Watch) -> None:
    if watch.asked_in_vain is not None:
        if watch.complained >= watch.asked_in_vain:
            watch.note("the cluster answers again")
        watch.asked_in_vain = None
