"""How many shards, and which rows belong to which: pure decisions, streamed. A shard is what a worker (an
element of a job array) takes at a time; plan, audits, repairs and comparisons cut theirs here.

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

from penstock.core import human

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
LARGEST = 300 * GIB
"""The largest cost of a shard while nobody knows what a worker moves a second."""
BRIEFEST, LONGEST = 5.0, 300.0
"""Seconds that a worker takes for the least and the largest shard where its rate is known. The least: many
times what a worker needs between two shards, some tenths of a second. The largest: a worker that dies leaves
no more than that to be gone through once more, and near the end no node waits longer for another one."""
LEAST = 256 << 20
"""The least cost of a shard: each has a dozen small files of the run's state. Larger ones make the end of a
run longer: what is copied last is read back when all is copied."""
SHARDS, PER_SLOT = 32, 4
"""Shards where there is enough to do: so many, or so many for each worker. A slow node takes fewer, and what
is copied is read back while the rest is copied, also by one worker."""
MOST = 20_000
"""The most shards of a plan: so many can be watched by one controller
(`tests/run/test_many_elements.py`)."""


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


def decide(
    load: Load, *, shard_bytes: int, shard_files: int, slots: int, rate: float | None = None
) -> Decision:
    """How many shards, and why. Never more than there are rows; at least one. `slots`: workers that can run
    at once. `rate`: the cost that one of them does a second; None: nobody knows.

    | the rows                          | shards                                                        |
    |-----------------------------------|---------------------------------------------------------------|
    | any                               | SHARDS, or PER_SLOT for each slot where that is more, but     |
    |                                   | none below LEAST, and none above LARGEST                      |
    | any, where `rate` is known        | the same, but none below BRIEFEST seconds of it, and LARGEST  |
    |                                   | is LONGEST seconds of it, or the least                        |
    | more than shard_bytes/files allow | as many as these ask                                          |
    | any                               | at most MOST                                                  |
    """
    slots, rows = max(1, slots), max(1, load.rows)
    least, largest, by = float(LEAST), float(LARGEST), ""
    if rate is not None:
        least = max(least, BRIEFEST * rate)
        largest, by = max(least, LONGEST * rate), f", by {human.rate(rate)} of a worker"
    wanted = max(SHARDS, PER_SLOT * slots)
    why = f"so that a slow node takes fewer than others ({slots} can run at once)"
    if slots == 1:
        why = "so that little is done once more after an end, and reading back need not wait for all"
    if (worth := max(1, int(load.cost / least))) < wanted:
        wanted, why = worth, f"none smaller than {human.size(least)} of bytes and file costs{by}"
    elif (large := math.ceil(load.cost / largest)) > wanted:
        wanted, why = large, f"none larger than {human.size(largest)} of bytes and file costs{by}"
    by_bytes, by_files = math.ceil(load.bytes / shard_bytes), math.ceil(load.rows / shard_files)
    if by_bytes > wanted and by_bytes >= by_files:
        wanted, why = by_bytes, f"a shard has at most {human.size(shard_bytes)}"
    elif by_files > wanted:
        wanted, why = by_files, f"a shard has at most {shard_files:,} files"
    if wanted > MOST:
        wanted, why = MOST, f"no plan has more than {MOST}"
    if wanted > rows:
        wanted, why = rows, "one for each row"
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
