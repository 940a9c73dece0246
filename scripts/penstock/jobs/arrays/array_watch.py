"""What one call of `run_array` knows of its workers and shards: the arrays that live, each worker's status,
and how each shard stands.

`jobs.arrays.array_runner` makes a `Watch` by `watch_of`, and calls `look` and `tell` again and again; it and
the modules beside it decide by what the `Watch` holds. This module queries the cluster, reads small files of
the run, and emits events; it submits and cancels nothing and writes no file. The states of all arrays come
from one query, and what shards came to from three listings: of receipts, claims and outcomes.

A worker is an element of an array; its number counts over all arrays of the step. It takes one shard after
another by claims (`jobs.shard_claims`). A receipt is the small file that proves what was done of a shard.
"""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from penstock.cluster.port import Cause, State, Status
from penstock.core import events, human
from penstock.core.documents.marks import Throttle
from penstock.core.errors import FailedError, PreflightError, TransientError
from penstock.core.job_time import CLOCKS
from penstock.dataset import throttle_mark
from penstock.dataset.cancel_mark import CancelMark
from penstock.dataset.element_progress import Progress
from penstock.dataset.submission_log import ArrayBook
from penstock.fs.errno_map import storage_error
from penstock.host import heartbeat
from penstock.jobs import shard_claims
from penstock.jobs.arrays import wait_report
from penstock.jobs.arrays.element_outcomes import Ends
from penstock.jobs.arrays.node_failures import NodeFailures
from penstock.jobs.arrays.queue_places import QueuePlaces
from penstock.jobs.arrays.wait_report import EVERY, Element, WaitReport
from penstock.target import pause

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from penstock.core.documents.array_line import ArrayLine
    from penstock.core.documents.shard_claim import ShardClaim
    from penstock.core.errors import PenstockError
    from penstock.core.job_time import Estimate
    from penstock.core.layout import RunLayout
    from penstock.dataset.context import Context
    from penstock.jobs.shard_claims import WatchedClaim

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
SHORTEST = 0.05
"""Seconds between two listings of receipts, at least."""
BETWEEN = 15.0
"""Seconds, at most, between two looks at receipts and progress, however long the cluster's answers take."""


@dataclass
class WatchedArray:
    """An array whose workers may still live."""

    submission: ArrayLine
    array: str
    """Its id, as the cluster gave it."""
    at_once: int
    """How many of its workers may run at once."""
    statuses: Mapping[int, Status] = field(default_factory=dict)
    """By the workers' numbers, as the cluster reported last."""

    @property
    def over(self) -> bool:
        """Whether all its workers have ended, by the last answer; False before the first."""
        return bool(self.statuses) and all(s.state.ended for s in self.statuses.values())

    @property
    def starts(self) -> dict[int, float]:
        """When the cluster last started each worker, in seconds since the epoch, as far as it says."""
        return {number: status.started for number, status in self.statuses.items() if status.started}

    @property
    def pending(self) -> int:
        """How many of its workers wait in the queue."""
        return sum(s.state is State.PENDING for s in self.statuses.values())

    @property
    def alive(self) -> int:
        """How many of its workers wait or run."""
        return sum(not s.state.ended for s in self.statuses.values())

    @property
    def used(self) -> int:
        """The slots that it takes, or may take at any moment."""
        return max(self.alive - self.pending, min(self.at_once, self.alive))


@dataclass
class Watch:
    """What one call of `run_array` knows of its workers and shards. For one thread."""

    context: Context
    dataset: str
    run: RunLayout
    step: str
    receipt_ok: Callable[[int], bool]
    """Whether a shard has a good receipt: reads it."""
    indices: Sequence[int]
    """Of all shards that the step needs."""
    command: Sequence[str]
    """Of a worker, but for its array and number."""
    cancelled: CancelMark
    book: ArrayBook
    """The run's list of arrays that were submitted."""
    ends: Ends
    call: str = ""
    """The name of this call, in claims."""
    statuses: dict[int, Status] = field(default_factory=dict)
    """The last status of each worker, by number, as `tell` reported it."""
    live: list[WatchedArray] = field(default_factory=list)
    """Arrays whose workers may still live."""
    done: set[int] = field(default_factory=set)
    """Shards with a good receipt."""
    done_before: set[int] = field(default_factory=set)
    """Those of them that had it before."""
    claims: dict[int, tuple[int, ShardClaim]] = field(default_factory=dict)
    """The highest claim of each shard, with its generation."""
    began: set[int] = field(default_factory=set)
    """Workers that claimed a shard."""
    progress: Progress = field(default_factory=Progress)
    proven: Progress = field(default_factory=Progress)
    """Of verify, whose work elements of copy do as well."""
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
    """What a person said last of how many workers run at once."""
    uses: Callable[[int, int], None] = lambda *_: None
    """Called with the workers at work and the bytes that are done, with `amounts`."""
    widen: Callable[[int], None] = lambda _: None
    """Called before more workers than ever run at once."""
    unknown: dict[str, float] = field(default_factory=dict)
    """When the cluster was first seen not to know an array, by its id or name."""
    queue: QueuePlaces = field(default_factory=QueuePlaces)
    doubted: dict[str, float] = field(default_factory=dict)
    """When a submission without an answer was last made, by the array's name: a second one may appear."""
    expected: Callable[[int], Estimate] | None = None
    """How long a shard takes; None where nobody knows."""
    own_arrays: set[str] = field(default_factory=set)
    """The names of all arrays that this call watches or watched."""
    late: dict[int, float] = field(default_factory=dict)
    """When a worker was first seen as DONE that holds an open shard."""
    judged: set[int] = field(default_factory=set)
    """Workers whose end was judged (`worker_ends`)."""
    fruitless: int = 0
    """Workers that ended before they took a shard, since one was taken or done last."""
    bad_workers: int = 0
    """Workers that ended with BAD_NODE."""
    silent: set[int] = field(default_factory=set)
    """Workers of whose shard nothing was heard for PATIENCE, and that took none since."""
    beats: dict[int, WatchedClaim] = field(default_factory=dict)
    """The claims of open shards, as the looks at their files show them."""
    ended_by_person: int = 0
    """Workers that a person cancelled: no others take their places."""
    failures: NodeFailures = field(default_factory=NodeFailures)
    excluded: list[str] = field(default_factory=list)
    """Nodes that no further array goes to."""
    exclusion_tried: bool = False
    """Whether nodes that an earlier controller excluded are still spared by the cluster was looked up."""
    proven_at: float | None = None
    """When the last of all receipts was read."""
    moved: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Of the shard of a worker that the cluster lost: the time of its progress file, and when that was first
    read."""
    dismissed: set[int] = field(default_factory=set)
    """Workers that were cancelled while they waited, since there was no shard for them to take."""
    superfluous: set[str] = field(default_factory=set)
    """Arrays that were cancelled since all receipts are there, or since another one has the same workers."""
    submitted: float = float("-inf")
    """When an array was submitted last."""
    listed: float = float("-inf")
    """When receipts were listed last."""
    reads_back: bool = False
    """Whether its workers read back what was copied, too."""
    reading: tuple[float, object] = (float("-inf"), None)
    """When they last showed that they do, and by what."""
    reads: bool = False
    """Whether they may, at the last look, at `looked_at_reading`."""
    looked_at_reading: float = float("-inf")

    def note(self, text: str) -> None:
        """Report a line for people, as an event."""
        self.context.emit(events.Noted(self.dataset, self.step, text))

    def warn(self, text: str) -> None:
        """The same, as a warning."""
        self.context.emit(events.Warned(self.dataset, self.step, text))

    @property
    def open(self) -> list[int]:
        """The shards without a good receipt."""
        return [index for index in self.indices if index not in self.done]

    def all_proven(self) -> bool:
        """Whether every shard has a good receipt: lists them once a second, and reads those that are new."""
        if len(self.done) == len(self.indices):
            return True
        now = time.monotonic()
        if now - self.listed < SHORTEST:
            return False
        self.listed = now
        names, before = listed(self.run.receipt(self.step, 0).parent), len(self.done)
        self.done.update(i for i in self.open if f"{i:05d}.json" in names and self.receipt_ok(i))
        if len(self.done) > before:
            self.fruitless, self.ends.took_nothing = 0, None
        if len(self.done) < len(self.indices):
            return False
        self.proven_at = time.monotonic()
        return True

    def still_read(self, grace: float) -> bool:
        """Whether workers may read back what was copied: shards lack a receipt of verify, and claims or
        receipts moved within PATIENCE, or twice `grace` where none holds a claim. Raises FailedError."""
        now, step = time.monotonic(), "verify"
        if not self.reads_back or now - self.looked_at_reading < shard_claims.LOOK:
            return self.reads
        self.looked_at_reading = now
        proven = shard_claims.proven(self.run, step)
        claims = {
            index: shard_claims.beat(self.run, step, index, generation)
            for index, generation in shard_claims.standing(self.run, step).items()
            if index not in proven
        }
        if self.reading[1] != (shown := (proven, claims)):
            self.reading = now, shown
        patience = heartbeat.PATIENCE if claims else 2 * grace
        self.reads = not proven.issuperset(self.indices) and now - self.reading[0] < patience
        return self.reads

    def standing(self) -> list[tuple[int, tuple[int, ShardClaim]]]:
        """The claims, with their generations, of open shards of which no end is known: their workers live, as
        far as anybody knows."""
        return [
            (index, claim)
            for index, claim in self.claims.items()
            if index not in self.done and not self.ends.judged(index, claim[0])
        ]

    def held(self) -> dict[int, list[int]]:
        """Those shards, by the number of their worker."""
        shards: dict[int, list[int]] = {}
        for index, (_, claim) in self.standing():
            if claim.worker:
                shards.setdefault(claim.number, []).append(index)
        return shards

    def took_nothing(self, number: int, status: Status) -> None:
        """A worker ended that took no shard; well, where none was left for it."""
        if status.state is not State.DONE or len(self.claims) + len(self.done_before) < len(self.indices):
            self.fruitless += 1
            self.ends.took_nothing = number, status

    def read_claims(self) -> None:
        """Read the claims that are new, but of shards that were done before. Raises FailedError."""
        for index, generation in shard_claims.standing(self.run, self.step).items():
            known, claim = self.claims.get(index, (0, None))
            if index in self.done_before or (known >= generation and claim and claim.worker):
                continue
            claim = shard_claims.read(self.run, self.step, index, generation)
            self.claims[index] = generation, claim
            if claim.worker:  # else its content comes yet, or it never gets one
                self.silent.discard(claim.number)
                self.began.add(claim.number)
                self.fruitless, self.ends.took_nothing = 0, None


def listed(folder: Path) -> set[str]:
    """The names in a folder; none where it is missing. Raises by `errno_map.storage_error`."""
    try:
        return set(os.listdir(folder))
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise storage_error(error, "a run's folder cannot be listed", str(folder)) from error


def watch_of(
    context: Context,
    dataset: str,
    run: RunLayout,
    step: str,
    receipt_ok: Callable[[int], bool],
    indices: Sequence[int] = (),
) -> Watch:
    """A `Watch` that knows of no array yet. Reads the dataset's cancel mark and the run's throttle."""
    ends = Ends(run, step, context.config.cluster)
    mark = CancelMark.of(context.layout(dataset), step)
    said = throttle_mark.read(run)
    book = ArrayBook(run.arrays)
    watch = Watch(context, dataset, run, step, receipt_ok, indices, (), mark, book, ends, throttled=said)
    watch.call = secrets.token_hex(4)
    return watch


def ask(watch: Watch, *arrays: WatchedArray) -> None:
    """Set the statuses of all workers of these arrays, by one query. Waits for the cluster as `patiently`,
    but no longer than until all receipts are there: then the statuses stay as they were."""
    begun = time.monotonic()
    while not look(watch, arrays) and not (watch.indices and watch.all_proven()):
        watch.context.stop.wait(watch.context.cluster.interval(time.monotonic() - begun))


def look(watch: Watch, arrays: Sequence[WatchedArray]) -> bool:
    """Set the statuses of all workers of these arrays, by one query. Where the cluster does not answer, or
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
        base = live.submission.base
        before = live.statuses
        live.statuses = {number + base: status for number, status in statuses[live.array].items()}
        if any(s.state is State.LOST for s in live.statuses.values()):
            live.statuses = _not_yet_lost(watch, live, before)
        else:
            watch.unknown.pop(live.array, None)


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
    watch.read_claims()
    held: dict[int, list[int]] = {}
    for index, (_, claim) in watch.claims.items():
        if index not in watch.done:
            held.setdefault(claim.number, []).append(index)

    def alive(number: int) -> bool:
        # All are read from the first look on, so that it is known at once when they stand still.
        # Elements of an older version each did the shard of their number.
        shards = held.get(number, ()) if live.submission.workers else [number]
        moves = sum(_moves(watch, index) for index in shards) > 0
        return moves or (doubted and (young or (number in before and not before[number].state.ended)))

    def counts(number: int, status: Status) -> Status:
        return unknown if status.state is State.LOST and alive(number) else status

    return {number: counts(number, status) for number, status in live.statuses.items()}


def _moves(watch: Watch, index: int) -> bool:
    """Whether a shard's progress file changed within `heartbeat.PATIENCE`, by this process's own clock: a
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
        Element(live.array, number, status, number - live.submission.base)
        for live in watch.live
        for number, status in live.statuses.items()
    ]
    for element in elements:
        status, old = element.status, watch.statuses.get(element.index)
        watch.statuses[element.index] = status
        if status.state is State.CANCELLED and element.index in watch.dismissed:
            del watch.statuses[element.index]  # there was nothing left for it to do
            continue
        if old is None or (old.state, old.reason, old.node) != (status.state, status.reason, status.node):
            state, reason = status.state.value, status.reason
            if status.cause is Cause.TIME:
                # What follows from it is a line of its own (`worker_ends`).
                state, reason = "stopped", "its time ended"
            watch.context.emit(
                events.ElementChanged(watch.dataset, watch.step, element.index, state, status.node, reason)
            )
    moved = tell_amounts(watch)
    idle = f"no array is submitted, since the queue is full: {watch.queue.full}" if watch.queue.full else ""
    if pause.standing() is not None:
        idle = "no array is submitted while PAUSE stands at the root"
    if watch.asked_in_vain is not None:
        return  # why elements wait is not known then
    for text in watch.report.look(time.monotonic(), elements, moved, idle):
        watch.note(text)


def tell_amounts(watch: Watch) -> tuple[int, int, int | None]:
    """Report the files and bytes that are done, and the bytes that were read back, as an event; returns these
    three."""
    waiting = {index for index in watch.open if index not in watch.claims}
    files, size, failed = watch.progress.total(watch.run, watch.step, watch.indices, waiting)
    if watch.amounts is not None:
        watch.amounts(files, size)
    watch.uses(sum(status.state is State.RUNNING for status in watch.statuses.values()), size)
    states = wait_report.states(watch.statuses)
    back = watch.proven.bytes_begun(watch.run, "verify", watch.done) if watch.step == "copy" else None
    watch.context.emit(events.Progressed(watch.dataset, watch.step, files, size, failed, states, back))
    return files, size, back


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
