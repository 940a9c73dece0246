"""A run simulated by events: workers (elements of arrays) that take shards, what a worker does a second,
ceilings that all share, nodes that are lost. `scale.py` calibrates and calls it; it touches nothing.

A worker holds one copy and one reading at a time, each at its own pace: while it copies a shard, it reads
back one that it or another worker has copied. Reading is at no time faster than copying. What is not read
back when the copy ends is read by all.

Shards are cut by `core.run_documents`, and polls paced by `cluster.slurm.element_times`: penstock's own.
Times are seconds of a simulated clock, sizes bytes.

The obvious way, a step of the clock for each second and element, takes hours for 10^9 objects. Here the clock
goes from event to event, and what all elements share is one counter for each ceiling (`Ceiling`): what an
worker has done is the difference of two of its readings, so a change of the common rate costs nothing.

Limits: a worker is bound by its bytes or by its files, whichever takes longer. Files have the mean size of
their group. Objects from 64 GiB on, which plan splits, count as rows of one shard. `target.ops` is divided by
the slots, as penstock does; a link by the workers that copy. Arrays that follow where a job's time ends are
counted, and take no time; nothing binds copying and reading together.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.slurm.element_times import QueryPace
from penstock.core import run_documents
from penstock.core.estimates import UNKNOWN
from penstock.host import waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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
    """What the workers of a step do."""

    first: float
    """From the submission to the work of the first workers."""
    turn: float
    """From the end of a worker's shard to its next one."""
    fixed: float
    """Of each shard, beside its bytes and files."""
    a_byte: float
    """Seconds that one worker takes for a byte, and for a file likewise; 0: never what bounds it."""
    a_file: float


@dataclass(frozen=True)
class Calibration:
    """What one run measured, beside what is known of the site."""

    before: float
    """From the command to the submission of copy, without what each row takes."""
    between: float
    """From the last worker of copy to the submission of verify, likewise; polls are apart."""
    after: float
    """From the last worker of verify to the end of the command, likewise."""
    copy: Pace
    verify: Pace
    streams: int = 8
    """Files that a worker copies at once: on average half of each is lost with it."""
    noticed: float = 0.0
    """From a node's loss until SLURM may start its element anew."""
    starts: float | None = None
    """Elements that SLURM starts a second; None: any."""
    link: float | None = None
    """Bytes a second that all workers read of the source together; None: any."""
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


def cut(shape: Shape) -> tuple[run_documents.Decision, list[Work]]:
    """The shards of a plan, as penstock cuts them."""
    cost = sum(count * (run_documents.FILE_COST + size) for count, size in shape.objects)
    load = run_documents.Load(cost, shape.bytes, shape.files)
    decision = run_documents.decide(
        load, shard_bytes=shape.shard_bytes, shard_files=shape.shard_files, slots=shape.slots
    )
    places, shards = run_documents.Cut(cost, decision.shards), [[0, 0] for _ in range(decision.shards)]
    for count, size in shape.objects:
        each = run_documents.FILE_COST + size
        for start in range(0, count, BLOCK):
            rows = min(BLOCK, count - start)
            whole = places.together(rows * each)
            for shard, begin, end in places.runs([each] * rows) if whole is None else [(whole, 0, rows)]:
                shards[shard][0] += end - begin
                shards[shard][1] += (end - begin) * size
    return decision, [Work(*shard) for shard in shards if shard[0]]


class Ceiling:
    """A speed that each worker has for itself, and one that all have together; None: any. `clock` counts
    what a worker has done that began at 0; the end of a shard is a reading of it."""

    def __init__(self, a_unit: float, shared: float | None = None) -> None:
        self._own = 1 / max(a_unit, NOTHING)
        self._shared = math.inf if shared is None else shared
        self.clock = 0.0
        self.ends: list[tuple[float, int]] = []
        """(reading of the clock, node) of what works now."""

    def speed(self, at_once: int = 0) -> float:
        """Of one worker, of the workers that work now, or of `at_once`."""
        return min(self._own, self._shared / max(1, at_once or len(self.ends)))

    def next_end(self, now: float) -> float:
        """When the next of its shards ends."""
        return now + (self.ends[0][0] - self.clock) / self.speed() if self.ends else math.inf


class Lane:
    """Copying, or reading back: each worker has one shard of it at a time."""

    def __init__(self, pace: Pace, shards: Iterable[int], link: float | None, a_file: float) -> None:
        self.pace = pace
        self.bytes, self.files = Ceiling(pace.a_byte, link), Ceiling(max(pace.a_file, a_file))
        self.waiting, self.free = deque(shards), deque[int]()
        self.on: dict[int, int] = {}
        """The shard that each node has."""
        self.born: dict[int, tuple[Ceiling, float, float]] = {}
        """Of nodes at work: what bounds them, its reading at the begin, and how much it takes."""


class Step:
    """The workers of one step, from its submission (time 0) on. `beside`: the pace at which they read back
    what they copied meanwhile; None: they do not."""

    def __init__(
        self,
        shape: Shape,
        known: Calibration,
        pace: Pace,
        works: Sequence[Work],
        lost: Sequence[tuple[float, float | None]] = (),
        beside: Pace | None = None,
    ) -> None:
        self._shape, self._known, self._whole, self._lost = shape, known, works, lost
        self._works = [*works]
        """What is left to copy of each shard."""
        by_budget = shape.slots / known.metadata if known.metadata else 0.0
        self._copied = Lane(pace, range(len(works)), known.link, by_budget)
        self._lanes = [self._copied]
        if beside is not None:
            a_byte, a_file = max(pace.a_byte, beside.a_byte), max(pace.a_file, beside.a_file)
            self._lanes.append(Lane(replace(beside, a_byte=a_byte, a_file=a_file), (), None, 0.0))
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._spare, self._queued = deque(range(shape.nodes)), 0
        """Nodes without a worker, and elements that wait for one."""
        self._down: set[int] = set()
        self._now, self._order, self._left, self._look, self.queries = 0.0, 0, len(works), 0.0, 0
        self.copied, self.again, self.kept = 0.0, 0.0, 0.0
        """When the last copy ended, and files that were copied once more, or not, after a node was lost."""

    def run(self) -> float:
        """Seconds until all is copied and read back. Raises ValueError where no node is left."""
        for number in range(min(self._shape.slots, len(self._works))):
            self._at(self._copied.pace.first + number / (self._known.starts or math.inf), self._start)
        for number, (when, back) in enumerate(self._lost, 1):
            node = self._shape.nodes - number
            self._at(when, partial(self._lose, node))
            if back is not None:
                self._at(when + back, partial(self._back, node))
        while self._left:
            ends = [
                (c.next_end(self._now), c, lane) for lane in self._lanes for c in (lane.bytes, lane.files)
            ]
            end, ceiling, lane = min(ends, key=lambda one: one[0])
            if self._events and self._events[0][0] <= end:
                self._pass(self._events[0][0])
                heapq.heappop(self._events)[-1]()
            elif math.isinf(end):
                raise ValueError("no node is left for the shards that wait")
            else:
                self._pass(end)
                self._end(lane, heapq.heappop(ceiling.ends)[1])
        return self._now

    @property
    def arrays(self) -> int:
        """As many as hold the elements, and again as many after each time limit of jobs without one."""
        elements = min(self._shape.slots, len(self._works))
        return math.ceil(elements / self._shape.max_array) * math.ceil(self._now / UNKNOWN)

    def notice(self) -> float:
        """Seconds, on average, until the controller notices what happens now."""
        return noticed(self._shape.poll, self._now)

    def _at(self, when: float, happens: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (when, self._order, happens))

    def _pass(self, until: float) -> None:
        for lane in self._lanes:
            for ceiling in (lane.bytes, lane.files):
                if ceiling.ends:
                    ceiling.clock += ceiling.speed() * (until - self._now)
        while self._look <= until:
            self.queries += 1
            self._look += QueryPace(self._shape.poll).interval(self._look)
        self._now = until

    def _start(self) -> None:
        """SLURM may start an element: it does on a node that has none."""
        self._queued += 1
        self._seat()

    def _seat(self) -> None:
        while self._queued and self._spare:
            self._queued -= 1
            node = self._spare.popleft()
            for lane in self._lanes:
                self._free(lane, node)

    def _free(self, lane: Lane, node: int) -> None:
        if node not in self._down and node not in lane.on and node not in lane.free:
            lane.free.append(node)
            self._take(lane)

    def _take(self, lane: Lane) -> None:
        while lane.free and lane.waiting:
            node = lane.free.popleft()
            lane.on[node] = shard = lane.waiting.popleft()
            # The shard goes with the event: a node may be lost, and have another one by then.
            self._at(self._now + lane.pace.fixed, partial(self._begin, lane, node, shard))

    def _begin(self, lane: Lane, node: int, shard: int) -> None:
        if lane.on.get(node) != shard or node in lane.born:
            return
        work = (self._works if lane is self._copied else self._whole)[shard]
        full = max(1, min(self._shape.slots, self._shape.nodes - len(self._down), len(self._works)))
        by_bytes, by_files = work.size / lane.bytes.speed(full), work.files / lane.files.speed(full)
        ceiling, amount = (lane.bytes, work.size) if by_bytes >= by_files else (lane.files, work.files)
        lane.born[node] = ceiling, ceiling.clock, amount
        heapq.heappush(ceiling.ends, (ceiling.clock + amount, node))

    def _end(self, lane: Lane, node: int) -> None:
        shard = lane.on.pop(node)
        del lane.born[node]
        if lane is self._copied:
            self.copied = self._now
            for reading in self._lanes[1:]:
                self._open(reading, shard)
        self._left -= lane is self._lanes[-1]
        self._at(self._now + lane.pace.turn, partial(self._free, lane, node))

    def _open(self, lane: Lane, shard: int) -> None:
        lane.waiting.append(shard)
        self._take(lane)

    def _lose(self, node: int) -> None:
        """The node's worker dies. Its journal keeps the files that were copied whole; reading begins anew."""
        self._down.add(node)
        if node in self._spare:
            self._spare.remove(node)
            return
        after = min(self._known.noticed, waits.PATIENCE + waits.HEARTBEAT)
        for lane in self._lanes:
            if node in lane.free:
                lane.free.remove(node)
            shard, work = lane.on.pop(node, None), lane.born.pop(node, None)
            if work is not None:
                ceiling, born, amount = work
                ceiling.ends = [end for end in ceiling.ends if end[1] != node]
                heapq.heapify(ceiling.ends)
                if shard is not None and lane is self._copied:
                    self._keep(shard, (ceiling.clock - born) / amount)
            if shard is not None:
                self._at(self._now + after, partial(self._open, lane, shard))
        self._at(self._now + self._known.noticed, self._start)

    def _keep(self, shard: int, part: float) -> None:
        """What the journal keeps of a shard of which this part was done."""
        work = self._works[shard]
        done = part * work.files
        kept = max(0.0, math.floor(done - min(self._known.streams, work.files) / 2))
        self.again, self.kept = self.again + done - kept, self.kept + kept
        self._works[shard] = Work(work.files - kept, work.size * (1 - kept / work.files))

    def _back(self, node: int) -> None:
        self._down.discard(node)
        self._spare.append(node)
        self._seat()
