"""The knowledge of one call of `run_array` about its workers and shards: live arrays, each worker's status,
each shard's claim and receipt, and how many elements the next array may have.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from penstock.cluster.port import Cause, State, Status
from penstock.core import human, run_steps
from penstock.core.dataset_documents import Throttle
from penstock.core.errors import FailedError, PreflightError, TransientError
from penstock.core.estimates import CLOCKS
from penstock.dataset import submitted_arrays
from penstock.dataset.receipts import Progress
from penstock.dataset.submitted_arrays import ArrayBook, CancelMark
from penstock.fs.safe_open import storage_error
from penstock.host import waits
from penstock.jobs import element_outcomes, shard_claims
from penstock.jobs.element_outcomes import EVERY, Element, Ends, NodeFailures, WaitReport
from penstock.target import notices

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from penstock.core.element_documents import ArrayLine, ShardClaim
    from penstock.core.errors import PenstockError
    from penstock.core.estimates import Estimate
    from penstock.core.layout import RunLayout
    from penstock.dataset.context import Context
    from penstock.jobs.shard_claims import WatchedClaim


PAUSE = 8  # most looks between two tries to submit a single element


@dataclass
class QueuePlaces:
    """The room in a queue that may be full for this account.

    The queue's limits also count other jobs of the account or group, so only refusals show how much room is
    left. After a refusal the next array has half as many elements, after a success twice as many. A single
    refused element is retried after 2, then 4, then 8 looks.
    """

    most: int = sys.maxsize  # most elements of the next array
    full: str = ""  # why the last array was refused; "" if it was not
    _pause: int = 1
    _left: int = 0

    def free(self) -> int:
        """Return how many elements may be submitted now. Call it once in each look, since it counts looks."""
        if self._left:
            self._left -= 1
            return 0
        return self.most

    def refused(self, elements: int, why: str) -> None:
        self.most, self.full = max(1, elements // 2), why
        if elements == 1:
            self._pause = self._left = min(PAUSE, 2 * self._pause)

    def taken(self) -> None:
        self.most, self.full, self._pause = min(sys.maxsize, 2 * self.most), "", 1


# The knowledge of one call of `run_array`. These functions submit and cancel nothing.
#
# One query returns the states of all arrays. Three listings (receipts, claims, outcomes) return the states of
# the shards. A worker is an element of an array; numbers of workers are unique in the step. A receipt is the
# small file that proves that a shard is done.

T = TypeVar("T")

# Most seconds for which an array unknown to the cluster counts as alive. After that time, a cluster that
# claims to forget nothing has lost its state.
DOUBT = 3600.0
# Seconds within which a receipt from another node must become visible here. Within the same time the cluster
# must report the end of an element that has a receipt.
RECEIPT_GRACE = 30.0
SLOW = 5.0  # seconds after which a query is reported as slow; 50 ms is usual
SAID = 30.0  # fewest seconds between two reports of an unresponsive cluster, which is queried once a minute
SILENT = 6 * 3600.0  # seconds without an answer after which a step ends
SHORTEST = 0.05  # fewest seconds between two listings of receipts
BETWEEN = 15.0  # most seconds between two looks at receipts and progress


@dataclass
class WatchedArray:
    """An array whose workers may still live."""

    submission: ArrayLine
    array: str  # the array's id from the cluster
    at_once: int  # how many of its workers may run at once
    statuses: Mapping[int, Status] = field(default_factory=dict)  # last reported status, by worker number

    @property
    def over(self) -> bool:
        """Whether all its workers have ended; False before the first answer."""
        return bool(self.statuses) and all(s.state.ended for s in self.statuses.values())

    @property
    def starts(self) -> dict[int, float]:
        """When the cluster last started each worker, in seconds since the epoch, if it reports that."""
        return {number: status.started for number, status in self.statuses.items() if status.started}

    @property
    def pending(self) -> int:
        return sum(s.state is State.PENDING for s in self.statuses.values())

    @property
    def alive(self) -> int:
        return sum(not s.state.ended for s in self.statuses.values())

    @property
    def used(self) -> int:
        """The number of slots that the array takes, or may take at any moment."""
        return max(self.alive - self.pending, min(self.at_once, self.alive))


@dataclass
class Watch:
    """The knowledge of one call of `run_array` about its workers and shards. For one thread."""

    context: Context
    dataset: str
    run: RunLayout
    step: str
    receipt_ok: Callable[[int], bool]  # function that reads a shard's receipt, and returns whether it is good
    indices: Sequence[int]  # indices of all shards that the step needs
    command: Sequence[str]  # a worker's command line, without its array and number
    cancelled: CancelMark
    book: ArrayBook  # the run's submissions
    ends: Ends
    call: str = ""  # the name of this call, in claims
    # The status that `tell` last reported, by worker number.
    statuses: dict[int, Status] = field(default_factory=dict)
    live: list[WatchedArray] = field(default_factory=list)  # arrays whose workers may still live
    done: set[int] = field(default_factory=set)  # shards with a good receipt
    done_before: set[int] = field(default_factory=set)  # shards that had a good receipt before this call
    # The highest claim of each shard, with the claim's generation.
    claims: dict[int, tuple[int, ShardClaim]] = field(default_factory=dict)
    began: set[int] = field(default_factory=set)  # workers that claimed a shard
    progress: Progress = field(default_factory=Progress)
    proven: Progress = field(default_factory=Progress)  # progress of reading back, also by elements of copy
    report: WaitReport = field(default_factory=WaitReport)
    asked_in_vain: float | None = None  # since when the cluster has not answered; None if it answers
    complained: float = float("-inf")  # when an unresponsive or slow cluster was reported last
    patient: bool = True  # whether to wait for a cluster that does not answer
    amounts: Callable[[int, int], None] | None = None  # function that gets the files and bytes done
    # The last limit that a person set on the number of workers at once.
    throttled: Throttle = field(default_factory=Throttle)
    # Called after `amounts`, with the number of workers at work and the bytes done.
    uses: Callable[[int, int], None] = lambda *_: None
    widen: Callable[[int], None] = lambda _: None  # called with a raised limit of workers before it applies
    # Since when an array has been unknown to the cluster, by the array's id or name.
    unknown: dict[str, float] = field(default_factory=dict)
    queue: QueuePlaces = field(default_factory=QueuePlaces)
    # Time of the last unanswered submission, by array name: the array may yet appear.
    doubted: dict[str, float] = field(default_factory=dict)
    expected: Callable[[int], Estimate] | None = None  # estimates a shard's time; None if not known
    own_arrays: set[str] = field(default_factory=set)  # names of all arrays this call watches or watched
    late: dict[int, float] = field(default_factory=dict)  # since when a DONE worker has held an open shard
    judged: set[int] = field(default_factory=set)  # workers whose end was judged (`worker_ends`)
    fruitless: int = 0  # workers that ended without a shard since the last claim or receipt
    bad_workers: int = 0  # workers that ended with BAD_NODE
    silent: set[int] = field(default_factory=set)  # workers silent for PATIENCE, without a new shard since
    beats: dict[int, WatchedClaim] = field(default_factory=dict)  # the claims of open shards, as last read
    ended_by_person: int = 0  # workers that a person cancelled: they are not replaced
    failures: NodeFailures = field(default_factory=NodeFailures)
    excluded: list[str] = field(default_factory=list)  # nodes that further arrays must not use
    exclusion_tried: bool = False  # whether an earlier controller's exclusions were checked with the cluster
    proven_at: float | None = None  # when the last of all receipts was read
    # The progress file's mtime of a lost worker's shard, and when that mtime was first read.
    moved: dict[int, tuple[int, float]] = field(default_factory=dict)
    # Workers cancelled in the queue, since no shard was left for them.
    dismissed: set[int] = field(default_factory=set)
    # Arrays cancelled because all shards are done, or because another array has their workers.
    superfluous: set[str] = field(default_factory=set)
    submitted: float = float("-inf")  # when an array was submitted last
    listed: float = float("-inf")  # when receipts were listed last
    reads_back: bool = False  # whether the step's workers also read copied files back
    # When receipts of verify, or its claims, were last seen to change, and what they were then.
    reading: tuple[float, object] = (float("-inf"), None)
    reads: bool = False  # whether workers might still read back at `looked_at_reading`
    looked_at_reading: float = float("-inf")

    def note(self, text: str) -> None:
        self.context.emit(run_steps.Noted(self.dataset, self.step, text))

    def warn(self, text: str) -> None:
        self.context.emit(run_steps.Warned(self.dataset, self.step, text))

    @property
    def open(self) -> list[int]:
        """The shards without a good receipt."""
        return [index for index in self.indices if index not in self.done]

    def all_proven(self) -> bool:
        """Return whether every shard has a good receipt. Lists receipts at most once in SHORTEST seconds."""
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
        """Return whether workers may still read copied files back. Raises FailedError.

        They may while shards lack a receipt of verify, and claims or receipts changed within PATIENCE, or
        within twice `grace` if there is no claim.
        """
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
        patience = waits.PATIENCE if claims else 2 * grace
        self.reads = not proven.issuperset(self.indices) and now - self.reading[0] < patience
        return self.reads

    def standing(self) -> list[tuple[int, tuple[int, ShardClaim]]]:
        """Return the claims of open shards without a known end. Their workers may be alive."""
        return [
            (index, claim)
            for index, claim in self.claims.items()
            if index not in self.done and not self.ends.judged(index, claim[0])
        ]

    def held(self) -> dict[int, list[int]]:
        """Return the shards of the `standing` claims, by worker number."""
        shards: dict[int, list[int]] = {}
        for index, (_, claim) in self.standing():
            if claim.worker:
                shards.setdefault(claim.number, []).append(index)
        return shards

    def took_nothing(self, number: int, status: Status) -> None:
        """Count a worker that ended without a shard. A DONE worker counts only if a shard was left for it."""
        if status.state is not State.DONE or len(self.claims) + len(self.done_before) < len(self.indices):
            self.fruitless += 1
            self.ends.took_nothing = number, status

    def read_claims(self) -> None:
        """Read new claims, except of shards that were done before."""
        for index, generation in shard_claims.standing(self.run, self.step).items():
            read_generation, claim = self.claims.get(index, (0, None))
            if index in self.done_before or (read_generation >= generation and claim and claim.worker):
                continue
            claim = shard_claims.read(self.run, self.step, index, generation)
            self.claims[index] = generation, claim
            if claim.worker:  # otherwise the claim's content comes later, or never
                self.silent.discard(claim.number)
                self.began.add(claim.number)
                self.fruitless, self.ends.took_nothing = 0, None


def listed(folder: Path) -> set[str]:
    """Return the names in a folder; none if it is missing. Raises the errors of `safe_open.storage_error`."""
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
    """Return a `Watch` without arrays. Reads the dataset's cancel mark and the run's throttle."""
    ends = Ends(run, step, context.config.cluster)
    mark = CancelMark.of(context.layout(dataset), step)
    said = submitted_arrays.read_throttle(run)
    book = ArrayBook(run.arrays)
    watch = Watch(context, dataset, run, step, receipt_ok, indices, (), mark, book, ends, throttled=said)
    watch.call = secrets.token_hex(4)
    return watch


def ask(watch: Watch, *arrays: WatchedArray) -> None:
    """Set the statuses of all workers of these arrays, by one query.

    Waits for the cluster as `patiently` does, but only until all receipts exist. The statuses then stay
    unchanged.
    """
    begun = time.monotonic()
    while not look(watch, arrays) and not (watch.indices and watch.all_proven()):
        watch.context.stop.wait(watch.context.cluster.interval(time.monotonic() - begun))


def look(watch: Watch, arrays: Sequence[WatchedArray]) -> bool:
    """Set the statuses of all workers of these arrays, by one query; return whether the cluster answered.

    Without an answer, or without the cluster's commands, the statuses stay, since receipts may end the step
    meanwhile. If `Watch.patient` is False, raises TransientError instead.
    """
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
    """Count an array unknown to the cluster as alive until the cluster may have forgotten it.

    An answer without the array may come from another slurmctld, or from one that lost its state. After that
    time an element still counts as alive if its shard progresses: its array may have been renamed. A shard
    with a receipt is done. An element that this process saw alive gets the full time, since the later answer
    may be cut off. "Memory" is the time for which the cluster remembers ended jobs.

    | submitted, by the submitter's clock | unknown, by this process's clock    | progress    | counts as |
    |-------------------------------------|-------------------------------------|-------------|-----------|
    | at any time                         | for any time                        | `_moves`    | alive     |
    | longer ago than memory plus CLOCKS  | for any time, and never seen alive  | none        | lost      |
    | at any time                         | longer than memory, or than DOUBT   | none        | lost      |
    | more recently, or seen alive        | for less than that                  | any         | alive     |
    """
    if watch.context.cluster.abilities.elements_end_with_controller:
        # Local elements were judged by their processes when this controller found the array.
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
        # Read every shard from the first look on, or it would be unknown when a shard last progressed. In
        # older versions each element did the shard of its own number.
        shards = held.get(number, ()) if live.submission.workers else [number]
        moves = sum(_moves(watch, index) for index in shards) > 0
        return moves or (doubted and (young or (number in before and not before[number].state.ended)))

    def counts(number: int, status: Status) -> Status:
        return unknown if status.state is State.LOST and alive(number) else status

    return {number: counts(number, status) for number, status in live.statuses.items()}


def _moves(watch: Watch, index: int) -> bool:
    """Return whether a shard's progress file changed within `waits.PATIENCE`, by this process's clock.
    Clocks of other nodes may differ from this clock by at most CLOCKS."""
    try:
        written = os.stat(watch.run.progress(watch.step, index)).st_mtime_ns
    except OSError:
        return False
    if time.time() - written / 1e9 > waits.PATIENCE + CLOCKS:
        return False
    now = time.monotonic()
    before, since = watch.moved.get(index, (0, now))
    if before != written:
        watch.moved[index] = (written, now)
        return True
    return now - since <= waits.PATIENCE


def tell(watch: Watch) -> None:
    """Report, as events, changed statuses, the files and bytes done, and the reasons for waiting."""
    elements = [
        Element(live.array, number, status, number - live.submission.base)
        for live in watch.live
        for number, status in live.statuses.items()
    ]
    for element in elements:
        status, old = element.status, watch.statuses.get(element.index)
        watch.statuses[element.index] = status
        if status.state is State.CANCELLED and element.index in watch.dismissed:
            del watch.statuses[element.index]  # no shard was left for it
            continue
        if old is None or (old.state, old.reason, old.node) != (status.state, status.reason, status.node):
            state, reason = status.state.value, status.reason
            if status.cause is Cause.TIME:
                # `worker_ends` reports what follows.
                state, reason = "stopped", "its time ended"
            watch.context.emit(
                run_steps.ElementChanged(watch.dataset, watch.step, element.index, state, status.node, reason)
            )
    moved = tell_amounts(watch)
    idle = f"no array is submitted, since the queue is full: {watch.queue.full}" if watch.queue.full else ""
    if notices.standing_pause() is not None:
        idle = "no array is submitted while PAUSE stands at the root"
    if watch.asked_in_vain is not None:
        return  # the reasons for waiting are unknown then
    for text in watch.report.look(time.monotonic(), elements, moved, idle):
        watch.note(text)


def tell_amounts(watch: Watch) -> tuple[int, int, int | None]:
    """Report, as an event, the files and bytes done and the bytes read back. Return these three numbers."""
    waiting = {index for index in watch.open if index not in watch.claims}
    files, size, failed = watch.progress.total(watch.run, watch.step, watch.indices, waiting)
    if watch.amounts is not None:
        watch.amounts(files, size)
    watch.uses(sum(status.state is State.RUNNING for status in watch.statuses.values()), size)
    states = element_outcomes.states(watch.statuses)
    back = watch.proven.bytes_begun(watch.run, "verify", watch.done) if watch.step == "copy" else None
    watch.context.emit(run_steps.Progressed(watch.dataset, watch.step, files, size, failed, states, back))
    return files, size, back


def patiently(watch: Watch, ask: Callable[[], T]) -> T:
    """Call `ask` until the cluster answers, and return the answer: a step survives hours without slurmctld.

    Each TransientError is reported, and the call retried after a pause. If `Watch.patient` is False, the
    error is raised. Raises InterruptedRunError on a signal.
    """
    begun, failed = time.monotonic(), False
    while True:
        try:
            answer = ask()
        except TransientError as error:
            failed = True
            _in_vain(watch, error)
            watch.context.stop.wait(watch.context.cluster.interval(time.monotonic() - begun))
            continue
        if failed:  # otherwise the answer may come from memory, not from the cluster
            _answered(watch)
        return answer


def _in_vain(watch: Watch, error: PenstockError) -> None:
    """Report that the cluster does not answer, once in SAID seconds.

    Raises the error if `Watch.patient` is False, InterruptedRunError after a signal, and FailedError after
    SILENT seconds.
    """
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
        watch.context.emit(run_steps.Warned(watch.dataset, watch.step, text))


def _answered(watch: Watch) -> None:
    if watch.asked_in_vain is not None:
        if watch.complained >= watch.asked_in_vain:
            watch.note("the cluster answers again")
        watch.asked_in_vain = None
