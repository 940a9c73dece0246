"""What follows from the way in which elements ended: more time for the next attempt, nodes left out, and a
line about each of it. Each end is judged once.

`jobs.arrays.array_runner` calls `judge` after each query of the cluster, and the two others before it submits
an array. They read outcomes and journals of elements, query the cluster, note nodes that are left out in the
run's `arrays.jsonl`, and keep them from waiting arrays, too.

| an element ended                          | then                                                          |
|-------------------------------------------|---------------------------------------------------------------|
| at its time limit, which may be longer,   | its next array asks for twice as much; that uses up no retry  |
| or tidily before, with nothing finished   |                                                               |
| at the longest limit, with progress       | it goes on in another array; that uses up no retry            |
| at the longest limit, or after `RAISES`   | a failure                                                     |
| raises without progress                   |                                                               |
| at a limit that penstock did not ask for  | as at the longest limit                                       |
| at its time limit, and PAUSE stood before | it is submitted again; that uses up no retry                  |
| preempted, and not started again          | it is submitted again; that uses up no retry                  |
| by the fault of its node                  | no further array of the run goes to that node, nor an element |
| (`node_failures`), the second time there  | that waits, while the cluster finds another one               |
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.cluster.port import Cause, State
from penstock.core import human
from penstock.core.job_time import RAISES, first, raised
from penstock.core.step_table import BY_NAME
from penstock.engine.records import journal
from penstock.jobs.arrays.array_watch import patiently
from penstock.jobs.arrays.node_failures import HOURS, UNPROVEN, against_node
from penstock.jobs.arrays.wait_report import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.port import Status
    from penstock.core.job_time import Estimate
    from penstock.jobs.arrays.array_watch import Watch, WatchedArray


def judge(watch: Watch) -> None:
    """Judge each end that no earlier call judged, by the table above."""
    timed: list[tuple[int, int, bool]] = []
    suspects: dict[str, None] = {}
    for live in watch.live:
        for index in live.submission.indices:
            status = live.of(index)
            if status is None:
                continue
            if status.lost_node and watch.failures.add(status.lost_node, index, "lost with its node"):
                suspects[status.lost_node] = None
            if not status.state.ended or (live.array, index) in watch.judged:
                continue
            watch.judged.add((live.array, index))
            if status.state is not State.FAILED or watch.receipt_ok(index):
                continue
            if (status.cause is Cause.TIME or _stopped_in_vain(watch, index)) and watch.ends.rested(index):
                watch.ends.free.add(index)
                watch.note(f"element {index} rested for PAUSE until its time ended: no retry is used")
            elif status.cause is Cause.TIME:
                timed.append((index, live.submission.time, _progress(watch, live, index)))
            elif status.cause is Cause.PREEMPTED:
                watch.ends.free.add(index)
                watch.note(f"element {index} was preempted{_on(status)}: no retry is used")
            elif _stopped_in_vain(watch, index):
                timed.append((index, live.submission.time, False))
            if _against_node(watch, index, status) and watch.failures.add(status.node, index, _why(status)):
                suspects[status.node] = None
    if timed:
        _timed_out(watch, timed)
    for node in suspects:
        _leave_out(watch, node)


def limit_of(watch: Watch, indices: Sequence[int]) -> int:
    """The time limit to ask for in an array of these elements, in seconds; 0: ask for none."""
    asked = watch.context.config.cluster.of(watch.step).time
    if asked is None or not watch.context.cluster.abilities.has_nodes:
        return 0
    known = [watch.limits[index] for index in indices if index in watch.limits]
    if len(known) < len(indices):
        longest = None if asked else _longest(watch)
        if longest is not None:
            asked = max(first(_estimate(watch, index), longest) for index in indices)
        if not asked:
            return 0
        known.append(asked)
    return max(known)


def _estimate(watch: Watch, index: int) -> Estimate | None:
    return watch.expected(index) if watch.expected else None


def _longest(watch: Watch) -> float | None:
    return patiently(watch, partial(watch.context.cluster.longest, watch.step))


def _stopped_in_vain(watch: Watch, index: int) -> bool:
    """Whether it stopped tidily before the end of its time, and had finished nothing."""
    outcome = watch.ends.outcome(index)
    return outcome is not None and outcome.stopped == "time" and not outcome.progress


def _progress(watch: Watch, live: WatchedArray, index: int) -> bool:
    """Whether an attempt of this array finished work that the next one need not do again."""
    if not BY_NAME[watch.step].copies:
        return False
    folder = watch.run.journals(index)
    before = {name for name in journal.names(folder) if not name.startswith(f"{live.array}_")}
    return journal.records_more(folder, before)


def _timed_out(watch: Watch, ended: Sequence[tuple[int, int, bool]]) -> None:
    """Of each: its index, the limit that was asked for, and whether it had made progress."""
    longest = _longest(watch) or 0.0
    groups: dict[tuple[int, int, bool], list[int]] = {}
    for index, limit, progress in ended:
        more = raised(limit, longest) if limit and watch.raises[index] < RAISES else limit
        watch.raises[index] = 0 if progress else watch.raises[index] + 1
        if more > limit:
            watch.limits[index] = more
        if progress or more > limit:
            watch.ends.free.add(index)
        groups.setdefault((limit, more, progress), []).append(index)
    for (limit, more, progress), indices in groups.items():
        after = f" after {human.duration(limit)}" if limit else ""
        if more > limit:
            raise_ = f"raised from {human.duration(limit)} to {human.duration(more)}"
            then = f"the limit is {raise_}; no retry is used"
        elif progress:
            then = "what was done is kept; no retry is used"
        else:
            then = "nothing that stays was finished, and the limit is not raised further: that is a failure"
        watch.note(f"{named(indices)} timed out{after}: {then}")


def _against_node(watch: Watch, index: int, status: Status) -> bool:
    if not (watch.context.cluster.abilities.has_nodes and against_node(status, outcome=False)):
        return False
    return against_node(status, outcome=watch.ends.outcome(index) is not None)


def _on(status: Status) -> str:
    return f" on {status.node}" if status.node else ""


def _why(status: Status) -> str:
    return "its node failed" if status.cause is Cause.NODE else status.reason or status.state.value


def _leave_out(watch: Watch, node: str) -> None:
    """Leave a node out from now on, where another one is left."""
    cluster = watch.context.cluster
    if node in watch.excluded:
        return
    without = [*watch.excluded, node]
    why = watch.failures.sentence(node)
    if len(watch.excluded) >= UNPROVEN + len(watch.done):
        watch.note(
            f"node {node} is not excluded: elements fail on {len(without)} nodes and {len(watch.done)} ended "
            f"well, so it is not the nodes' fault: {why}"
        )
        return
    if not patiently(watch, partial(cluster.spares, watch.step, without)):
        watch.note(f"node {node} is not excluded, since the cluster finds no other one now: {why}")
        return
    watch.excluded.append(node)
    watch.book.exclude(node, watch.step, why)
    for live in watch.live:
        if live.pending:
            patiently(watch, partial(cluster.keep_off, live.array, watch.step, without))
    watch.note(f"node {node} is excluded from this run for {HOURS} hours: {why}")


def excluded(watch: Watch) -> list[str]:
    """The nodes that an array to be submitted leaves out. What an earlier controller left out stays so while
    the cluster still finds other nodes."""
    if not watch.context.cluster.abilities.has_nodes:
        return []
    if watch.excluded and not watch.exclusion_tried:
        watch.exclusion_tried = True
        if not patiently(watch, partial(watch.context.cluster.spares, watch.step, watch.excluded)):
            names = ", ".join(watch.excluded)
            watch.note(f"excluded before and used again, since the cluster finds no other node now: {names}")
            watch.excluded.clear()
    return watch.excluded
