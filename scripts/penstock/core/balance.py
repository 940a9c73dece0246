"""How many shards, and which rows belong to which: pure decisions, streamed. A shard is the work of one
element, a process of a job array; plan, audits, repairs and comparisons cut theirs here.

A row costs its bytes and a fixed amount for being a file. The rows keep their order: shards are
contiguous cuts at equal cost, so that their records, put one after another, are the manifest.
Guarantee: no row is lost or doubled, and the dearest shard costs less than the mean and one row.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.core.model import Entry

KIB = 1 << 10
GIB = 1 << 30

FILE_COST = 256 * KIB
"""What opening, creating, syncing, renaming and reading back a file costs, in bytes moved in the
same time. Measured: a node of two cores moves 1 to 2 GB/s, and makes five to six thousand small
files a second where each metadata call waits for half a millisecond."""
REUSED_DIVISOR = 2
"""A linked file is not copied but read back all the same: half of the work of its bytes."""
ELEMENT_COST = 32 * GIB
"""The least that is worth an element of its own: some tens of seconds of a node, many times the
half second that an element takes to begin locally, and more than the prolog of a node does."""
PER_SLOT = 4
"""Elements for each slot when there is enough to do: a slow node takes fewer of them, and what a
dead node held is small."""
MOST = 20_000
"""The most shards of a plan, but where one array holds more: so many can be watched by one controller with
one query each interval (`tests/run/test_many_elements.py`)."""


def costs(lengths: Sequence[int]) -> list[int]:
    """The cost of each of these rows, in bytes; a linked row's length was divided (`REUSED_DIVISOR`)."""
    return [FILE_COST + length for length in lengths]


def parts(entry: Entry, giant_bytes: int, part_bytes: int) -> Iterator[Entry]:
    """The rows of one planned copy: itself, or the parts, in order, of an object of `giant_bytes` or more.
    What is linked stays whole."""
    size = entry.size
    if size < giant_bytes or size <= part_bytes or entry.reuse:
        yield entry
        return
    for number, offset in enumerate(range(0, size, part_bytes)):
        yield entry._replace(part=number, offset=offset, length=min(part_bytes, size - offset))


@dataclass(frozen=True)
class Load:
    """What is to be placed into shards; `cost` is in bytes, as `costs` gives it."""

    cost: int
    bytes: int
    rows: int


@dataclass(frozen=True)
class Decision:
    """How many shards a plan has."""

    shards: int
    why: str
    """For people."""


def decide(load: Load, *, shard_bytes: int, shard_files: int, slots: int, max_array: int) -> Decision:
    """How many shards, and why. Never more than there are rows; at least one. `slots`: elements that can run
    at once; `max_array`: elements that one array of the cluster may have.

    | the rows                          | shards                                        |
    |-----------------------------------|-----------------------------------------------|
    | whatever they are, with one slot  | 1: a further one would only begin later       |
    | less than two elements are worth  | 1                                             |
    | enough for every slot             | PER_SLOT for each slot                        |
    | in between                        | one for each ELEMENT_COST, full rounds        |
    | more than shard_bytes/files allow | as many as these ask, full rounds             |
    | more than one array holds         | as many, in several submissions, at most MOST |
    """
    slots, max_array = max(1, slots), max(1, max_array)
    worth = load.cost // ELEMENT_COST
    wanted = max(1, min(worth, slots * PER_SLOT)) if slots > 1 else 1
    if slots == 1:
        why = "one element runs at a time"
    elif wanted == 1:
        why = f"less work than two elements are worth ({_gib(2 * ELEMENT_COST)} of bytes and file costs)"
    elif wanted < slots * PER_SLOT:
        why = f"one for each {_gib(ELEMENT_COST)} of bytes and file costs"
    else:
        why = f"{PER_SLOT} for each that can run at once ({slots}), so that a slow node takes fewer"
    by_bytes, by_files = math.ceil(load.bytes / shard_bytes), math.ceil(load.rows / shard_files)
    if by_bytes > wanted and by_bytes >= by_files:
        wanted, why = by_bytes, f"a shard has at most {_gib(shard_bytes)}"
    elif by_files > wanted:
        wanted, why = by_files, f"a shard has at most {shard_files:,} files"
    if wanted > slots and wanted % slots:
        wanted += slots - wanted % slots
        why += f", in full rounds of {slots}"
    if wanted > (most := max(MOST, max_array)):
        wanted, why = most, f"no plan has more than {most}"
    if wanted > max(1, load.rows):
        wanted, why = max(1, load.rows), "one for each row"
    if wanted > max_array:
        arrays = math.ceil(wanted / max_array)
        why += f"; in {arrays} submissions, since an array of the cluster holds no more than {max_array}"
    return Decision(wanted, why)


class Cut:
    """Gives the shard of each row, in order: shard `k` takes the rows whose cost begins within
    the `k`-th of `shards` equal ranges of the total. A shard that no row begins in is not made:
    numbers run on without a gap."""

    def __init__(self, total: int, shards: int) -> None:
        self._total, self._shards = max(1, total), max(1, shards)
        self._before = 0
        self._range = -1
        self._index = -1
        self._limit = 0

    def place(self, cost: int) -> int:
        """The shard of the next row, which costs `cost`."""
        if self._before >= self._limit or self._index < 0:
            self._range = min(self._shards - 1, self._before * self._shards // self._total)
            # the first cost that lies in the next range; the last range has no end
            last = self._range == self._shards - 1
            self._limit = 1 << 200 if last else -(-(self._range + 1) * self._total // self._shards)
            self._index += 1
        self._before += cost
        return self._index

    def together(self, total: int) -> int | None:
        """The shard of all of the next rows, which cost `total` together, where no cut can lie among them;
        None where `runs` has to be asked for each."""
        if self._index < 0 or self._before >= self._limit or self._before + total > self._limit:
            return None
        self._before += total
        return self._index

    def runs(self, costs: Sequence[int]) -> list[tuple[int, int, int]]:
        """(shard, start, end) of each run of the next rows that share a shard: what `place` says of
        each, without a call for each."""
        begins = list(accumulate(costs, initial=self._before))
        spans: list[tuple[int, int, int]] = []
        start = 0
        while start < len(costs):
            shard = self.place(costs[start])
            end = bisect_left(begins, self._limit, start + 1, len(costs))
            self._before = begins[end]
            spans.append((shard, start, end))
            start = end
        return spans


def _gib(value: int) -> str:
    return f"{value // GIB} GiB"
