"""What follows when workers (array elements) end: which shards may be taken, which nodes are excluded.

For a shard that an ended worker held, without a receipt or outcome of its own:

| the worker ended                           | the outcome that is written for the shard      | charged      |
|--------------------------------------------|------------------------------------------------|--------------|
| at its time limit                          | its time ended                                 | unless it    |
|                                            |                                                | had progress |
| preempted, and not started again           | preempted                                      | no           |
| cancelled by a person                      | cancelled; no worker replaces it               | no           |
| with the exit status of a full target      | no further try; its own outcome had no room    | yes          |
| successfully, RECEIPT_GRACE ago            | it left no receipt                             | yes          |
| in any other way, or the cluster lost it   | the cluster's words                            | yes          |
| with a failed node, and was started again  | lost with its node                             | yes          |
| and was started again for any other reason | that reason                                    | no           |
| in an array of an earlier command          | it ended                                       | no           |
| not at all, but did not touch its claim    | silent                                         | yes          |
| for PATIENCE: frozen, suspended, cut off   |                                                |              |

A node is excluded after two ends that count against it (`element_outcomes`), or if a worker failed on every
shard there (`BAD_NODE`). The cluster must have another node.
"""

from __future__ import annotations

import contextlib
import os
import time
from functools import partial
from typing import TYPE_CHECKING

from penstock.cluster.port import BAD_NODE, Cause, State
from penstock.core import human
from penstock.core.element_documents import ElementOutcome
from penstock.core.errors import NoSpaceError, PenstockError
from penstock.core.estimates import asked_for
from penstock.core.human import in_quotes
from penstock.core.run_steps import BY_NAME
from penstock.dataset import documents
from penstock.engine import journal
from penstock.host import waits
from penstock.jobs import array_supervision
from penstock.jobs.array_watch import RECEIPT_GRACE, listed, patiently
from penstock.jobs.element_outcomes import HOURS, UNPROVEN, Fate, against_node, exit_status
from penstock.jobs.shard_claims import WatchedClaim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.port import Status
    from penstock.jobs.array_watch import Watch


LOST_NODE = "lost with its node"


def judge(watch: Watch) -> None:
    """Judge each worker's end that was not judged before, by the module's table."""
    if any(s.state.ended and n not in watch.judged for live in watch.live for n, s in live.statuses.items()):
        watch.listed = float("-inf")  # list again, to find receipts written right before their end
    watch.all_proven()
    watch.read_claims()
    _read_outcomes(watch)
    held = watch.held()
    suspects: dict[str, None] = {}
    for live in watch.live:
        for number, status in live.statuses.items():
            shards = held.get(number, ())
            if shards and status.restarts and not status.state.ended:
                why = LOST_NODE if status.lost_node else status.requeued or "its worker was started again"
                ended = ElementOutcome(error=why, free=not status.lost_node)
                _end_shards(watch, shards, status, ended)
            if status.lost_node and watch.failures.add(status.lost_node, number, LOST_NODE):
                suspects[status.lost_node] = None
            if not status.state.ended or number in watch.judged:
                continue
            if status.state is State.DONE and shards:
                # A receipt that the worker wrote on its node may become visible here late.
                late = watch.late.setdefault(number, time.monotonic())
                if time.monotonic() - late < RECEIPT_GRACE:
                    continue
            watch.judged.add(number)
            if _judge_end(watch, number, status, shards):
                suspects[status.node] = None
    for number, shards in watch.held().items():
        # A claim may become visible here only after its worker has ended.
        last = watch.statuses.get(number)
        if last is not None and last.state.ended and number in watch.judged:
            _end_shards(watch, shards, last, _outcome_of(watch, last, shards))
    _end_earlier(watch)
    _end_silent(watch)
    for node in suspects:
        _leave_out(watch, node)


def _read_outcomes(watch: Watch) -> None:
    """Read the outcomes that workers wrote for their current claims; report which shards are tried again."""
    again: list[int] = []
    names = listed(watch.run.outcome(watch.step, 0, 0).parent)
    for index, (generation, claim) in watch.standing():
        if f"{index:05d}.{generation}.json" not in names:
            continue
        outcome = documents.find_outcome(watch.run, watch.step, index, generation)
        if outcome is not None:
            watch.ends.fates[index] = Fate(
                generation, claim, outcome, watch.statuses.get(claim.number), own=True
            )
            if not watch.ends.given_up(index, watch.call) and claim.call == watch.call:
                again.append(index)
    if again:
        first = watch.ends.fates[again[0]].outcome
        failed = [f"{in_quotes(path)}: {why}" for path, why in first.failures[:1]]
        why = "its time ended" if first.stopped == "time" else "".join(failed) or first.error
        why = why.splitlines()[0] if why else f"exit {first.exit_code}"
        watch.note(f"{_of(again)} {_goes(again)} to another attempt{_on_host(first)}: {why}")


def _outcome_of(watch: Watch, status: Status, shards: Sequence[int]) -> ElementOutcome:
    """Return the outcome to write for these shards of an ended worker, by the module's table."""
    outcome = ElementOutcome(error=status.reason or status.state.value, exit_code=status.exit_code or 0)
    if status.state is State.CANCELLED:
        return outcome._replace(error="cancelled", free=True)
    if status.state is State.DONE:
        return outcome._replace(error="it left no receipt")
    if status.cause is Cause.TIME:
        progress = any(_progress(watch, index) for index in shards)
        return outcome._replace(stopped="time", progress=progress, free=progress)
    if status.cause is Cause.PREEMPTED:
        return outcome._replace(free=True)
    return outcome._replace(retry=status.exit_code != NoSpaceError.exit_code)


def _judge_end(watch: Watch, number: int, status: Status, shards: Sequence[int]) -> bool:
    """Judge the end of a worker that held these shards; return whether its node is suspect."""
    own = [index for index, fate in watch.ends.fates.items() if fate.own and fate.claim.number == number]
    if status.state is State.CANCELLED:
        watch.ended_by_person += number not in watch.dismissed
        for index in own:
            # The worker's own outcome only says that a signal stopped it.
            watch.ends.fates[index] = watch.ends.fates[index]._replace(status=status)
    elif number not in watch.began and status.cause is not Cause.PREEMPTED:
        watch.took_nothing(number, status)
    outcome = _outcome_of(watch, status, shards)
    _end_shards(watch, shards, status, outcome)
    if shards and status.cause is Cause.TIME:
        done = "what was done is kept" if outcome.progress else "nothing that stays was finished"
        watch.note(f"element {number} timed out: {done}; {_then(watch, shards)}")
    elif shards and status.cause is Cause.PREEMPTED:
        watch.note(f"element {number} was preempted{_on(status)}; {_then(watch, shards)}")
    if status.exit_code == BAD_NODE:
        watch.bad_workers += 1
        for index in own:
            # The worker only wrote at its end that these shards are not charged.
            fate = watch.ends.fates[index]
            if last := documents.find_outcome(watch.run, watch.step, index, fate.generation):
                watch.ends.fates[index] = fate._replace(outcome=last)
    if not watch.context.cluster.abilities.has_nodes or not status.node:
        return False
    if status.exit_code == BAD_NODE:
        watch.failures.add(status.node, number, "each shard that it took failed")
        return True
    counts = against_node(status, outcome=number in watch.began and not shards)
    return counts and watch.failures.add(status.node, number, _why(status))


def _end_shards(watch: Watch, shards: Sequence[int], status: Status, outcome: ElementOutcome) -> None:
    for index in shards:
        generation, claim = watch.claims[index]
        if not status.state.ended and claim.restarts >= status.restarts:
            continue  # the process at work now holds the shard
        whole = outcome._replace(attempt=claim.worker, generation=generation, host=claim.host)
        _end_claim(watch, index, status, whole)


def _end_earlier(watch: Watch) -> None:
    """End claims of arrays that ended before this call, whose workers no longer exist."""
    live = {array.submission.name for array in watch.live} | watch.own_arrays
    for index, (generation, claim) in watch.standing():
        if claim.worker and claim.array not in live:
            whole = ElementOutcome(claim.worker, generation, free=True, host=claim.host, error="it ended")
            _end_claim(watch, index, None, whole)


def _end_silent(watch: Watch) -> None:
    """End claims that are not touched, by this process's clock, although the cluster reports live workers."""
    for index, (generation, claim) in watch.standing():
        try:
            written = os.stat(watch.run.claim(watch.step, index, generation)).st_mtime_ns
        except OSError:
            continue
        before = watch.beats.get(index, WatchedClaim(generation))
        # A few looks must be enough, since a slow scheduler is queried only once a minute.
        beat = before.after(generation, written, time.monotonic(), waits.PATIENCE / 4)
        watch.beats[index] = beat
        if beat.still < waits.PATIENCE:
            continue
        silent = human.duration(waits.PATIENCE)
        whole = ElementOutcome(claim.worker, generation, host=claim.host, error=f"silent for {silent}")
        watch.silent.add(claim.number)
        _end_claim(watch, index, watch.statuses.get(claim.number), whole)
        who = f"element {claim.number} on {claim.host}" if claim.worker else "who claimed it"
        watch.warn(f"nothing was heard of {who} for {silent}: {_then(watch, [index])}")


def _end_claim(watch: Watch, index: int, status: Status | None, outcome: ElementOutcome) -> None:
    generation, claim = watch.claims[index]
    watch.ends.fates[index] = Fate(generation, claim, outcome, status)
    # If there is no room for the outcome, workers wait for PATIENCE before they claim the shard.
    with contextlib.suppress(PenstockError):
        documents.create_outcome(watch.run, watch.step, index, outcome)


def _then(watch: Watch, shards: Sequence[int]) -> str:
    left = [index for index in shards if not watch.ends.given_up(index, watch.call)]
    if left:
        return f"{_of(left)} {_goes(left)} to another one"
    return f"{_of(shards)} {'is' if len(shards) == 1 else 'are'} given up"


def _progress(watch: Watch, index: int) -> bool:
    """Return whether the shard's attempt finished work that the next attempt need not repeat."""
    if not BY_NAME[watch.step].copies:
        return False
    folder, own = watch.run.journals(index), watch.claims[index][1].worker
    before = {name for name in journal.names(folder) if not name.startswith(own)}
    return journal.records_more(folder, before)


def _of(shards: Sequence[int]) -> str:
    return f"shard {shards[0]}" if len(shards) == 1 else human.counted(len(shards), "shard")


def _goes(shards: Sequence[int]) -> str:
    return "goes" if len(shards) == 1 else "go"


def _on_host(outcome: ElementOutcome) -> str:
    return f", after one on {outcome.host}" if outcome.host else ""


def _on(status: Status) -> str:
    return f" on {status.node}" if status.node else ""


def _why(status: Status) -> str:
    return "its node failed" if status.cause is Cause.NODE else status.reason or status.state.value


def time_limit(watch: Watch, shards: Sequence[int], workers: int) -> int:
    """Return the time limit to ask for, in seconds, for an array of `workers` workers; 0 if none."""
    asked = watch.context.config.cluster.of(watch.step).time
    if asked is None or not watch.context.cluster.abilities.has_nodes:
        return 0
    if asked:
        return asked
    longest = patiently(watch, partial(watch.context.cluster.longest, watch.step))
    if longest is None:
        return 0
    expected = watch.expected
    estimates = [expected(index) for index in shards] if expected else []
    return asked_for(
        [estimate for estimate in estimates if estimate is not None], len(shards), workers, longest
    )


def _leave_out(watch: Watch, node: str) -> None:
    """Exclude a node from now on, if another node is left."""
    cluster = watch.context.cluster
    if node in watch.excluded:
        return
    without = [*watch.excluded, node]
    why = watch.failures.sentence(node)
    done = len(watch.done - watch.done_before)
    if len(watch.excluded) >= UNPROVEN + done:
        watch.note(
            f"node {node} is not excluded: elements fail on {len(without)} nodes and "
            f"{human.counted(done, 'shard')} ended well, so it is not the nodes' fault: {why}"
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


def in_vain(watch: Watch) -> bool:
    """Return whether further workers would only fail again.

    They would if the target is full, or if too many workers ended before they took a shard. They also would
    if workers failed on many nodes and few shards ended well, which is not the nodes' fault.
    """
    retries, slots = watch.context.config.cluster.retries, array_supervision.watched_slots(watch)
    return (
        watch.bad_workers > UNPROVEN + len(watch.done - watch.done_before)
        or watch.fruitless >= max(UNPROVEN, slots) * (retries + 1)
        or any(
            fate.claim.call == watch.call and exit_status(fate) == NoSpaceError.exit_code
            for fate in watch.ends.fates.values()
        )
    )


def excluded(watch: Watch) -> list[str]:
    """Return the nodes that the next array excludes. An earlier controller's exclusions stay if the cluster
    still finds other nodes."""
    if not watch.context.cluster.abilities.has_nodes:
        return []
    if watch.excluded and not watch.exclusion_tried:
        watch.exclusion_tried = True
        if not patiently(watch, partial(watch.context.cluster.spares, watch.step, watch.excluded)):
            names = ", ".join(watch.excluded)
            watch.note(f"excluded before and used again, since the cluster finds no other node now: {names}")
            watch.excluded.clear()
    return watch.excluded
