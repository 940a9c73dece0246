"""What became of elements: attempts at shards that ended without a receipt, the error of a step with
unfinished shards, nodes that are left out of further submissions, and the lines that a step reports while it
waits.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.port import Cause, State
from penstock.core import human
from penstock.core.errors import (
    MAKE_ROOM,
    NAMED_FILES,
    FailedError,
    FindingsError,
    NoSpaceError,
    SourceChangedError,
)
from penstock.core.human import in_quotes
from penstock.fs import small_files
from penstock.fs.capabilities import facts
from penstock.jobs import shard_claims

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.cluster.port import Status
    from penstock.config.settings import ClusterConfig
    from penstock.core.element_documents import ElementOutcome, ShardClaim
    from penstock.core.errors import PenstockError
    from penstock.core.layout import RunLayout


# Attempts at shards that ended without a receipt (the proof that a shard is done), and the error of a step
# with unfinished shards. Also which nodes further submissions exclude, since elements (the array's processes)
# keep failing there.

# Attempts at shards that ended without a receipt, and the error of a step with unfinished shards.
#
# The controller's loop keeps an `Ends` for each step, and `worker_ends` fills it.

NAMED_SHARDS = 50  # most shards that an error describes
GOES_ON = "what was done is kept; the same command goes on"


class Fate(NamedTuple):
    """How the last attempt at a shard failed."""

    generation: int  # the claim's generation
    claim: ShardClaim
    outcome: ElementOutcome
    status: Status | None  # the worker's status, if the cluster reports it
    own: bool = False  # whether the worker itself wrote the outcome


@dataclass
class Ends:
    """A step's shards whose last attempt failed."""

    run: RunLayout
    step: str
    cluster: ClusterConfig
    fates: dict[int, Fate] = field(default_factory=dict)
    took_nothing: tuple[int, Status] | None = None  # the last worker that ended before it took a shard
    _charged: dict[int, tuple[int, bool]] = field(default_factory=dict)

    def judged(self, index: int, generation: int) -> bool:
        fate = self.fates.get(index)
        return fate is not None and fate.generation == generation

    def given_up(self, index: int, call: str) -> bool:
        """Return whether this call's workers no longer try a shard whose last claim has ended."""
        generation, claim, outcome = self.fates[index][:3]
        if claim.call == call:
            return not outcome.retry or claim.charged + (not outcome.free) > self.cluster.retries
        decision = self._charged.get(index)
        if decision is None or decision[0] != generation:
            charged = shard_claims.charged(self.run, self.step, index, generation, call, self.cluster.retries)
            decision = self._charged[index] = generation, charged is None
        return decision[1]

    def failure(self, missing: Sequence[int], cancelled: int, call: str) -> PenstockError:
        """Return the error for the `missing` shards, with nodes, reasons, files and logs.

        It is SourceChangedError, NoSpaceError or FindingsError if that was the cause, otherwise FailedError.
        `cancelled` counts workers that a person cancelled; if any, failures before this `call` are left out.
        """
        lines: list[str] = []
        fates = {index: fate for index in missing if (fate := self.fates.get(index))}
        if cancelled:
            fates = {index: fate for index, fate in fates.items() if fate.claim.call == call}
        outcomes = [fate.outcome for fate in fates.values()]
        codes = {exit_status(fate) for fate in fates.values()}
        changed = sum(outcome.failed for outcome in outcomes) if codes == {5} else 0
        shown = 0
        for index, fate in islice(fates.items(), NAMED_SHARDS):
            outcome = fate.outcome
            if not changed:
                lines.append(self._line(index, fate))
            if not fate.own and not self._out_of_memory(fate) and not _cancelled(fate):
                lines += self._from_log(fate.claim.number)
            files = outcome.failures[: max(0, NAMED_FILES - shown)]
            shown += len(files)
            # Remove the file's name from a cause that repeats it.
            lines += [f"  {in_quotes(path)}: {cause.replace(f' [{path}]', '', 1)}" for path, cause in files]
            left = outcome.failed - len(files)
            if left > 0:
                lines.append(f"  and {left} more, see {self.run.outcome(self.step, index, fate.generation)}")
        if len(fates) > NAMED_SHARDS:
            lines.append(f"and {human.counted(len(fates) - NAMED_SHARDS, 'shard')} more")
        if self.took_nothing is not None and not cancelled:
            worker, status = self.took_nothing
            node, why = f" on {status.node}" if status.node else "", status.reason or status.state.value
            lines.append(f"element {worker}{node} ended before it took a shard: {why}")
            lines += self._from_log(worker)
        what, hint = f"{human.counted(len(missing), 'shard')} did not finish", GOES_ON
        kind: type[PenstockError] = FailedError
        if cancelled and all(map(_cancelled, fates.values())):
            number = human.counted(cancelled, "element")
            what = f"{number} {'was' if cancelled == 1 else 'were'} cancelled"
            hint = f"somebody ended them (scancel), so they are not submitted again unasked; {GOES_ON}"
        elif 6 in codes:
            kind, hint = NoSpaceError, f"{MAKE_ROOM}, or raise the quota; the same command goes on"
            lines += [free] if (free := self._free()) else []
        elif codes == {5}:
            kind = SourceChangedError
            if changed:
                what = f"{human.counted(changed, 'object')} changed at the source since the listing"
            hint = (
                "`penstock run` lists the source again and keeps what is staged; for a "
                "source that never rests set `changed: follow`"
            )
        elif codes == {FindingsError.exit_code}:
            kind = FindingsError
            hint = (
                "what could be proven is kept; lower `verify.source_checksum`, or have the source state "
                "checksums"
            )
        elif outcomes and all(outcome.failures and not outcome.retry for outcome in outcomes):
            hint = (
                "what was done is kept; repair what is named above, or leave it out by `exclude`: then the "
                "same command goes on"
            )
        elif any(outcome.stopped == "time" for outcome in outcomes):
            hint = f"a worker must finish something before its time ends: raise cluster.time; {GOES_ON}"
        return kind(f"{self.step}: {what}", hint="\n  ".join([*lines, hint]))

    def _line(self, index: int, fate: Fate) -> str:
        outcome, status = fate.outcome, fate.status
        node = (status.node if status else "") or outcome.host
        reason = (status.reason or status.state.value) if status and status.state.ended else ""
        reason = "" if fate.own and not _cancelled(fate) and not self._out_of_memory(fate) else reason
        why = outcome.error if outcome.error != reason else ""
        if _cancelled(fate):
            reason, why = "cancelled", ""
        elif self._out_of_memory(fate):
            reason, why = self._short_of_memory(fate), ""
        elif outcome.stopped == "time":
            reason, why = "its time ended before it had finished anything", ""
        elif not fate.own and exit_status(fate) == NoSpaceError.exit_code:
            why = "the target has no space, inodes or quota left, not even for this shard's own account of it"
        words = ": ".join(filter(None, (reason or f"exit {outcome.exit_code or 1}", why)))
        return f"shard {index}{f' on {node}' if node else ''}: {words}"

    def _out_of_memory(self, fate: Fate) -> bool:
        return fate.status is not None and fate.status.out_of_memory

    def _short_of_memory(self, fate: Fate) -> str:
        word = (fate.status.reason if fate.status else "").partition(":")[0] or "out of memory"
        options = self.cluster.of(self.step)
        key = "cluster.memory"
        if options.memory != self.cluster.options.memory:
            key = f"cluster.steps.{self.step}.memory"
        if options.memory is None:
            return f"{word}: it had what the cluster gives where nothing is asked for; set {key}"
        return f"{word}: it had {human.size(options.memory)}; raise {key}"

    def _from_log(self, number: int) -> list[str]:
        log = self._log(number)
        return [*(f"  {line}" for line in _last_lines(log)), f"  its log: {log}"]

    def _log(self, number: int) -> Path:
        """Return the newest log of a worker that ran in an array of the cluster or beside the controller."""
        name = re.compile(rf"{re.escape(self.step)}(?:-from(\d+))?-\d+_(\d+)\.log")
        newest, log = 0.0, self.run.logs / f"{self.step}-{number}.log"
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.run.logs):
                match = name.fullmatch(entry.name)
                if match and int(match[1] or 0) + int(match[2]) == number and entry.is_file():
                    newest, log = max((newest, log), (entry.stat().st_mtime, Path(entry.path)))
        return log

    def _free(self) -> str:
        """Return the free space and inodes of the target's file system; a quota may leave less."""
        try:
            space = facts(self.run.folder)
        except OSError:
            return ""
        inodes = "" if space.free_inodes is None else f" and {space.free_inodes:,} inodes"
        return f"free now, without regard to quotas: {human.size(space.free_bytes)}{inodes}"


def exit_status(fate: Fate) -> int:
    """Return the attempt's exit status; 1 if neither worker nor cluster reports one."""
    return fate.outcome.exit_code or (fate.status and fate.status.exit_code) or 1


def _cancelled(fate: Fate) -> bool:
    return fate.status is not None and fate.status.state is State.CANCELLED


def _last_lines(log: Path, count: int = 3) -> list[str]:
    try:
        with small_files.opened(log) as stream:
            stream.seek(max(0, stream.seek(0, 2) - 2048))
            return stream.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []


# Decide which nodes further submissions exclude: those on which elements keep failing.
#
# Not every failure is its node's fault:
#
# | the element ended                       | its outcome                  | counts against its node      |
# |-----------------------------------------|------------------------------|------------------------------|
# | with the node (node failure, launch)    | any                          | yes                          |
# | by a signal, or an exit status          | none                         | yes: it was killed, or could |
# |                                         |                              | not begin                    |
# | with the exit status of a full target   | none                         | no                           |
# | by a signal, or an exit status          | written                      | no: it reached the target,   |
# |                                         |                              | and reported what was wrong  |
# | at its time limit, out of memory,       | any                          | no                           |
# | preempted, or otherwise by the cluster  |                              |                              |
# | cancelled, or not known to the cluster  | any                          | no                           |
#
# A node counts as bad after MOST ends that count against it. An error that occurs everywhere makes every node
# look bad. So a node is excluded only while the cluster finds another node (`Cluster.spares`), and only for
# HOURS. At most UNPROVEN nodes are excluded, and one more for each shard that ended well.

MOST = 2  # ends of elements on a node after which it is left out
UNPROVEN = 3  # number of nodes excluded even if no element of the step has ended well anywhere
HOURS = 12  # hours for which a node is excluded from arrays


def against_node(status: Status, *, outcome: bool) -> bool:
    """Return whether an end counts against its node (table above). `outcome`: whether there is an outcome."""
    if status.state is not State.FAILED or status.cause is Cause.TIME or status.out_of_memory:
        return False
    if status.cause in (Cause.NODE, Cause.LAUNCH):
        return True
    by_itself = status.exit_code is not None or status.signal is not None
    return by_itself and not outcome and status.exit_code != NoSpaceError.exit_code


@dataclass
class NodeFailures:
    """Ends of this step's elements that count against nodes."""

    _ends: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, node: str, index: int, why: str) -> bool:
        """Count an end of element `index` against the node; return whether the node is bad now. An unknown
        node ("") is never bad."""
        if not node:
            return False
        self._ends[node].append((index, why))
        return len(self._ends[node]) >= MOST

    def sentence(self, node: str) -> str:
        """Describe a bad node: `elements 3 (exit 1) and 7 (lost with its node) failed there`."""
        *others, last = [f"{index} ({why})" for index, why in self._ends[node]]
        return f"elements {', '.join(others)} and {last} failed there"


# The lines that a step reports while it waits for its job arrays, besides counts and bytes.
#
# | at once               | elements that the cluster started again, with the reason; elements that       |
# |                       | somebody holds in the queue, once for each                                    |
# | without progress for  | the cause of the wait, in the cluster's own words, with the start that the    |
# | FIRST seconds (EVERY  | cluster expects; repeated once in EVERY seconds                               |
# | if elements run)      |                                                                               |

FIRST = 10.0  # seconds without progress or a running element before the first line
# Seconds between two lines without progress, and before running elements count as stalled. Including the time
# between two looks, every step reports at least once a minute.
EVERY = 45.0
NAMED = 5  # most elements, nodes or reasons in a line


@dataclass(frozen=True)
class Element:
    array: str  # the array's id from the cluster
    index: int  # the element's number, unique in the step
    status: Status
    number: int  # the element's number within its array


@dataclass
class WaitReport:
    """When work last progressed, and what was reported. Call `look` with every answer of the cluster."""

    _moved: object = None
    _moved_at: float = 0.0
    _said_at: float = float("-inf")
    _held: set[tuple[str, int]] = field(default_factory=set)

    def look(self, now: float, elements: Sequence[Element], moved: object, idle: str = "") -> list[str]:
        """Return the lines to show at `now`, in seconds of a monotonic clock.

        `moved` is any value that changes with work done. `idle` is the reason why nothing is submitted while
        no element waits or runs.
        """
        states = tuple(sorted((e.array, e.index, e.status.state.value) for e in elements))
        if (moved, states) != self._moved:
            self._moved, self._moved_at = (moved, states), now
        lines = [*_requeued(elements), *self._newly_held(elements, now)]
        waiting = [e for e in elements if not e.status.state.ended]
        runs = any(e.status.state is State.RUNNING and not e.status.unknown for e in waiting)
        still = now - self._moved_at
        why = _waits(waiting) or idle
        if why and still >= (EVERY if runs else FIRST) and now - self._said_at >= EVERY:
            self._said_at = now
            lines.append(f"nothing has moved for {human.duration(still)}: {why}")
        return lines

    def _newly_held(self, elements: Iterable[Element], now: float) -> list[str]:
        held = [e for e in elements if e.status.held]
        new = [e for e in held if (e.array, e.index) not in self._held]
        self._held = {(e.array, e.index) for e in held}
        if new:
            self._said_at = now
        return [_held(new)] if new else []


def _requeued(elements: Iterable[Element]) -> list[str]:
    causes: dict[str, list[int]] = defaultdict(list)
    for e in elements:
        if e.status.requeued:
            causes[e.status.requeued].append(e.index)
    return [
        f"{named(indices)} {_verb(indices, 'was', 'were')} {cause}: the cluster starts "
        f"{_verb(indices, 'it', 'them')} again by itself"
        for cause, indices in causes.items()
    ]


def _waits(waiting: Sequence[Element]) -> str:
    pending = [e for e in waiting if e.status.state is State.PENDING and not e.status.held]
    held = [e for e in waiting if e.status.held]
    starting = [e for e in waiting if e.status.starting]
    unknown = [e for e in waiting if e.status.unknown]
    running = [e for e in waiting if e.status.state is State.RUNNING]
    running = [e for e in running if not (e.status.starting or e.status.unknown)]
    phrases = []
    if pending:
        reasons = Counter(e.status.reason or "no reason given" for e in pending)
        why = ", ".join(f"{reason} ({number})" for reason, number in reasons.most_common(NAMED))
        phrases.append(f"{human.counted(len(pending), 'element')} in the queue: {why}{_start(pending)}")
    if held:
        phrases.append(_held(held))
    if starting:
        phrases.append(
            f"{human.counted(len(starting), 'element')}{_nodes(starting)} "
            f"{_verb(starting, 'waits', 'wait')} for the cluster to switch on or prepare "
            f"{_verb(starting, 'its node', 'their nodes')}"
        )
    if unknown:
        arrays = ", ".join(sorted({e.array for e in unknown}))
        phrases.append(
            f"{human.counted(len(unknown), 'element')} of array {arrays} {_verb(unknown, 'is', 'are')} not "
            "known to the cluster now (it lost its last state, or the array was renamed): receipts are "
            "waited for, and what has none is submitted again once it can be at work no more"
        )
    if running:
        phrases.append(
            f"{human.counted(len(running), 'element')}{_nodes(running)} "
            f"{_verb(running, 'runs', 'run')} without finishing anything"
        )
    return "; ".join(phrases)


def _nodes(elements: Iterable[Element]) -> str:
    nodes = sorted({e.status.node for e in elements if e.status.node})
    more = f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else ""
    return f" on {', '.join(nodes[:NAMED])}{more}" if nodes else ""


def _start(pending: Iterable[Element]) -> str:
    now = time.time()
    expected = min((e.status.expected for e in pending if e.status.expected > now), default=0.0)
    if not expected:
        return ", no start is foreseen yet"
    form = "%H:%M:%S" if expected - now < 20 * 3600 else "%Y-%m-%d %H:%M"
    return f", the first is expected to start at {time.strftime(form, time.localtime(expected))}"


def _held(held: Sequence[Element]) -> str:
    reasons = sorted({e.status.reason or "held" for e in held})
    jobs = " ".join(f"{e.array}_{e.number}" for e in held[:NAMED])
    more = " ..." if len(held) > NAMED else ""
    return (
        f"{named([e.index for e in held])} {_verb(held, 'is', 'are')} held ({', '.join(reasons)}): "
        f"`scontrol release {jobs}{more}` lets {_verb(held, 'it', 'them')} go on"
    )


def named(indices: Sequence[int]) -> str:
    """Return some elements in words: `element 7`, `12 elements (0, 3, 4, 5, 6, ...)`."""
    if len(indices) == 1:
        return f"element {indices[0]}"
    shown = ", ".join(map(str, sorted(indices)[:NAMED]))
    more = ", ..." if len(indices) > NAMED else ""
    return f"{human.counted(len(indices), 'element')} ({shown}{more})"


def _verb(things: Sequence[object], singular: str, plural: str) -> str:
    return singular if len(things) == 1 else plural


def states(statuses: Mapping[int, Status]) -> dict[str, int]:
    return dict(Counter(_word(s) for s in statuses.values()))


def _word(status: Status) -> str:
    return "unknown" if status.unknown else "held" if status.held else status.state.value
