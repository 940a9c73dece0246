"""A run simulated by events: shards, arrays of MaxArraySize elements, what an element does a second, ceilings
that all elements share, nodes that are lost. `scale.py` calibrates and calls it; it touches nothing.

Shards are cut by `core.balance`, and polls paced by `cluster.slurm.query_pace`: penstock's own. Times are
seconds of a simulated clock, sizes bytes.

The obvious way, a step of the clock for each second and element, takes hours for 10^9 objects. Here the clock
goes from event to event, and what all elements share is one counter for each ceiling (`Ceiling`): what an
element has done is the difference of two of its readings, so a change of the common rate costs nothing.

Limits: an element is bound by its bytes or by its files, whichever takes longer. Files have the mean size of
their group. Objects from 64 GiB on, which plan splits, count as rows of one shard. `target.ops` is divided by
the slots, as penstock does; a link by the elements that read.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.slurm.query_pace import QueryPace
from penstock.core import balance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

BLOCK = 1000
"""Rows that are placed into shards together."""
RECEIPTS = 15.0
"""Receipts are read at least so often (`array_watch.BETWEEN`), and the last one ends a step."""


NOTHING = 1e-15
"""Seconds for a byte or a file that takes none: an infinite speed has no readings."""


class Work(NamedTuple):
    """Of a shard."""

    files: float
    size: float


@dataclass(frozen=True)
class Shape:
    """A dataset, and the nodes that stage it."""

    objects: Sequence[tuple[int, int]]
    """(how many, bytes of each), in the order of their keys."""
    nodes: int
    slots: int
    """`cluster.max_elements`."""
    max_array: int = 1001
    shard_bytes: int = 1 << 40
    shard_files: int = 500_000
    poll: float = 15.0
    lost: Sequence[tuple[float, float | None]] = ()
    """Nodes that are lost: (seconds after copy's submission, seconds until the node is back; None: never)."""

    @property
    def files(self) -> int:
        return sum(count for count, _ in self.objects)

    @property
    def bytes(self) -> int:
        return sum(count * size for count, size in self.objects)


@dataclass(frozen=True)
class Pace:
    """What the elements of a step do."""

    first: float
    """From the submission to the work of the first elements."""
    turn: float
    """From the end of an element to the work of the next one on that node."""
    fixed: float
    """Of each element, beside its bytes and files."""
    a_byte: float
    """Seconds that one element takes for a byte, and for a file likewise; 0: never what bounds it."""
    a_file: float


@dataclass(frozen=True)
class Calibration:
    """What one run measured, beside what is known of the site."""

    before: float
    """From the command to the submission of copy, without what each row takes."""
    between: float
    """From the last element of copy to the submission of verify, likewise; polls are apart."""
    after: float
    """From the last element of verify to the end of the command, likewise."""
    copy: Pace
    verify: Pace
    streams: int = 8
    """Files that an element copies at once: on average half of each is lost with it."""
    noticed: float = 0.0
    """From a node's loss until SLURM may start its elements anew."""
    starts: float | None = None
    """Elements that SLURM starts a second; None: any."""
    link: float | None = None
    """Bytes a second that all elements read together; None: any."""
    metadata: float | None = None
    """Files a second that all slots make together (`target.ops`); None: any."""
    rows: Mapping[str, float] = field(default_factory=dict)
    """Seconds for each object of list, plan, permissions and publish (`scale_rows.py`)."""

    def rows_of(self, files: int, *steps: str) -> float:
        """Seconds that these steps take for so many objects, beside what they take for none."""
        return files * sum(self.rows.get(step, 0.0) for step in steps)


def noticed(poll: float, waited: float) -> float:
    """Seconds, on average, until the controller notices something, so long after its last submission: by a
    query, or by receipts."""
    return min(RECEIPTS, QueryPace(poll).interval(waited)) / 2


def cut(shape: Shape) -> tuple[balance.Decision, list[Work]]:
    """The shards of a plan, as penstock cuts them."""
    cost = sum(count * (balance.FILE_COST + size) for count, size in shape.objects)
    load = balance.Load(cost, shape.bytes, shape.files)
    decision = balance.decide(
        load, shard_bytes=shape.shard_bytes, shard_files=shape.shard_files, slots=shape.slots,
        max_array=shape.max_array,
    )  # fmt: skip
    places, shards = balance.Cut(cost, decision.shards), [[0, 0] for _ in range(decision.shards)]
    for count, size in shape.objects:
        each = balance.FILE_COST + size
        for start in range(0, count, BLOCK):
            rows = min(BLOCK, count - start)
            whole = places.together(rows * each)
            for shard, begin, end in places.runs([each] * rows) if whole is None else [(whole, 0, rows)]:
                shards[shard][0] += end - begin
                shards[shard][1] += (end - begin) * size
    return decision, [Work(*shard) for shard in shards if shard[0]]


class Ceiling:
    """A speed that each element has for itself, and one that all have together; None: any. `clock` counts
    what an element has done that began at 0; an element's end is a reading of it."""

    def __init__(self, a_unit: float, shared: float | None = None) -> None:
        self._own = 1 / max(a_unit, NOTHING)
        self._shared = math.inf if shared is None else shared
        self.clock = 0.0
        self.ends: list[tuple[float, int]] = []
        """(reading of the clock, node) of what works now."""

    def speed(self, at_once: int = 0) -> float:
        """Of one element, of the elements that work now, or of `at_once`."""
        return min(self._own, self._shared / max(1, at_once or len(self.ends)))

    def next_end(self, now: float) -> float:
        """When the next of its elements ends."""
        return now + (self.ends[0][0] - self.clock) / self.speed() if self.ends else math.inf


class Step:
    """The elements of one step, from its first submission (time 0) on."""

    def __init__(
        self,
        shape: Shape,
        known: Calibration,
        pace: Pace,
        works: Sequence[Work],
        lost: Sequence[tuple[float, float | None]] = (),
    ) -> None:
        self._shape, self._known, self._pace, self._works, self._lost = shape, known, pace, [*works], lost
        by_budget = shape.slots / known.metadata if known.metadata else 0.0
        self._bytes = Ceiling(pace.a_byte, known.link)
        self._files = Ceiling(max(pace.a_file, by_budget))
        self._events: list[tuple[float, int, Callable[[int], None], int]] = []
        self._waiting: deque[int] = deque()
        self._free: deque[int] = deque()
        self._on: dict[int, int] = {}
        """The shard that each node has."""
        self._born: dict[int, float] = {}
        """Of nodes whose element works: the reading of the clock at its begin."""
        self._down: set[int] = set()
        self._used, self._submitted, self._submitting = 0, 0, False
        self._now, self._gate, self._order = 0.0, 0.0, 0
        self._begun, self._look = 0.0, 0.0
        """When the last array was submitted, and the next query."""
        self.arrays, self.queries, self.again, self.kept = 0, 0, 0.0, 0.0

    def run(self) -> float:
        """Seconds until the last element has ended. Raises ValueError where no node is left."""
        self._submit()
        for node in range(self._shape.nodes):
            self._at(max(0.0, self._pace.first - self._pace.turn), self._idle, node)
        for number, (when, back) in enumerate(self._lost, 1):
            self._at(when, self._lose, self._shape.nodes - number)
            if back is not None:
                self._at(when + back, self._back, self._shape.nodes - number)
        left = len(self._works)
        while left:
            ceiling = min(self._bytes, self._files, key=lambda one: one.next_end(self._now))
            end = ceiling.next_end(self._now)
            if self._events and self._events[0][0] <= end:
                self._pass(self._events[0][0])
                _, _, happens, number = heapq.heappop(self._events)
                happens(number)
            elif math.isinf(end):
                raise ValueError("no node is left for the elements that wait")
            else:
                self._pass(end)
                _, node = heapq.heappop(ceiling.ends)
                left -= 1
                self._used -= 1
                del self._on[node], self._born[node]
                self._idle(node)
        return self._now

    def notice(self) -> float:
        """Seconds, on average, until the controller notices what happens now."""
        return noticed(self._shape.poll, self._now - self._begun)

    def _at(self, when: float, happens: Callable[[int], None], number: int = 0) -> None:
        self._order += 1
        heapq.heappush(self._events, (when, self._order, happens, number))

    def _pass(self, until: float) -> None:
        for ceiling in (self._bytes, self._files):
            if ceiling.ends:
                ceiling.clock += ceiling.speed() * (until - self._now)
        while self._look <= until:
            self.queries += 1
            self._look += QueryPace(self._shape.poll).interval(self._look - self._begun)
        self._now = until

    def _submit(self, _: int = 0) -> None:
        """A further array: as many elements as one holds."""
        more = range(self._submitted, min(len(self._works), self._submitted + self._shape.max_array))
        self._waiting.extend(more)
        self._submitted, self._submitting, self._begun = more.stop, False, self._now
        self.arrays += 1
        self._start()

    def _idle(self, node: int) -> None:
        if node not in self._down:
            self._free.append(node)
            self._start()

    def _start(self) -> None:
        while self._free and self._waiting and self._used < self._shape.slots:
            node = self._free.popleft()
            self._on[node] = shard = self._waiting.popleft()
            self._used += 1
            self._gate = max(self._now, self._gate + (1 / self._known.starts if self._known.starts else 0.0))
            # The shard goes with the event: a node may be lost, and have another one by then.
            begin = self._gate + self._pace.turn + self._pace.fixed
            self._at(begin, lambda node, shard=shard: self._begin(node, shard), node)  # type: ignore[misc]
        if self._free and self._submitted < len(self._works) and not (self._waiting or self._submitting):
            self._submitting = True
            self._at(self._now + self.notice(), self._submit)

    def _bound(self, work: Work) -> tuple[Ceiling, float]:
        """Which ceiling bounds it while all slots work, and how much of that it takes."""
        full = max(1, min(self._shape.slots, self._shape.nodes - len(self._down), len(self._works)))
        by_bytes, by_files = work.size / self._bytes.speed(full), work.files / self._files.speed(full)
        return (self._bytes, work.size) if by_bytes >= by_files else (self._files, work.files)

    def _begin(self, node: int, shard: int) -> None:
        if self._on.get(node) == shard and node not in self._born:
            ceiling, amount = self._bound(self._works[shard])
            self._born[node] = ceiling.clock
            heapq.heappush(ceiling.ends, (ceiling.clock + amount, node))

    def _lose(self, node: int) -> None:
        """The node's element dies. Its journal keeps the files that were whole."""
        self._down.add(node)
        if node in self._free:
            self._free.remove(node)
        if (shard := self._on.pop(node, None)) is None:
            return
        if (born := self._born.pop(node, None)) is not None:
            work = self._works[shard]
            ceiling = self._bytes if any(end[1] == node for end in self._bytes.ends) else self._files
            amount = work.size if ceiling is self._bytes else work.files
            ceiling.ends = [end for end in ceiling.ends if end[1] != node]
            heapq.heapify(ceiling.ends)
            done = (ceiling.clock - born) / amount * work.files if amount else 0.0
            kept = max(0.0, math.floor(done - min(self._known.streams, work.files) / 2))
            self.again, self.kept = self.again + done - kept, self.kept + kept
            self._works[shard] = Work(work.files - kept, work.size * (1 - kept / work.files))
        self._at(self._now + self._known.noticed, self._requeue, shard)

    def _requeue(self, shard: int) -> None:
        self._used -= 1
        self._waiting.append(shard)
        self._start()

    def _back(self, node: int) -> None:
        self._down.discard(node)
        self._idle(node)
