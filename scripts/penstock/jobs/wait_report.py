"""The lines that a step reports while it waits for its job arrays, besides counts and bytes.

| at once               | elements that the cluster started again, with the reason; elements that       |
|                       | somebody holds in the queue, once for each                                    |
| without progress for  | the cause of the wait, in the cluster's own words, with the start that the    |
| FIRST seconds (EVERY  | cluster expects; repeated once in EVERY seconds                               |
| if elements run)      |                                                                               |
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.cluster.port import State
from penstock.core import human

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.cluster.port import Status


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
