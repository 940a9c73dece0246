"""The number of shards, and the rows of each shard; a small sample that represents the sizes of all files;
and a job for fio with such sizes. Pure; streamed. A shard is the unit of work that a worker (an element of a
job array) claims. Plan, audits, repairs and comparisons cut their shards here.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from penstock.core import human

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.core.model import Entry


# A row costs its bytes plus a fixed amount for each file. Shards are contiguous ranges of rows with equal
# cost, so that their records, one after another, are the manifest. No row is lost or doubled, and the shard
# with the highest cost costs less than the mean plus a row.

KIB = 1 << 10
GIB = 1 << 30

# Cost of opening, creating, syncing, renaming and reading back a file, as the bytes that could be moved in
# that time. Measured: a node of two cores moves 1 to 2 GB/s, or makes five to six thousand small files a
# second if a metadata call takes 0.5 ms.
FILE_COST = 256 * KIB
REUSED_DIVISOR = 2  # a linked file is read back but not copied, which is half of the work
LARGEST = 300 * GIB  # largest cost of a shard while no worker's rate is known
# Seconds that a worker takes for the smallest and the largest shard, if its rate is known. The smallest takes
# far longer than the tenths of a second between two shards. The largest bounds the work that is repeated
# after a worker dies, and the time that nodes wait for the last node.
BRIEFEST, LONGEST = 5.0, 300.0
# Least cost of a shard, because each shard has a dozen small files of state. Larger shards lengthen the end
# of a run, since the last copies are read back only after everything is copied.
LEAST = 256 << 20
# Number of shards if there is enough work, in all or for each worker. A slow node then takes fewer shards,
# and reading back begins during the copy, even with a single worker.
SHARDS, PER_SLOT = 32, 4
MOST = 20_000  # most shards that a controller can watch (`tests/run/test_many_elements.py`)


def costs(lengths: Sequence[int]) -> list[int]:
    """Return the cost of each row, in bytes; callers divide a linked row's length by `REUSED_DIVISOR`."""
    return [FILE_COST + length for length in lengths]


def parts(entry: Entry, giant_bytes: int, part_bytes: int) -> Iterator[Entry]:
    """Split a planned copy of `giant_bytes` or more into its parts, in order. Linked objects stay whole."""
    size = entry.size
    if size < giant_bytes or size <= part_bytes or entry.reuse:
        yield entry
        return
    for number, offset in enumerate(range(0, size, part_bytes)):
        yield entry._replace(part=number, offset=offset, length=min(part_bytes, size - offset))


@dataclass(frozen=True)
class Load:
    """The work to divide into shards. `cost` is the sum of `costs`."""

    cost: int
    bytes: int
    rows: int


@dataclass(frozen=True)
class Decision:
    """The number of shards of a plan."""

    shards: int
    why: str  # the reason, in words


def decide(
    load: Load, *, shard_bytes: int, shard_files: int, slots: int, rate: float | None = None
) -> Decision:
    """Choose the number of shards, at least one and at most one for each row. `slots`: workers that can run
    at once. `rate`: the cost that a worker does in a second, or None if not known. A shard costs at least
    LEAST, or BRIEFEST seconds at that rate if this is more. It costs at most LARGEST or, if the rate is
    known, LONGEST seconds at that rate.

    | the rows                          | shards                                                        |
    |-----------------------------------|---------------------------------------------------------------|
    | any                               | SHARDS, or PER_SLOT for each slot if that is more, as far as  |
    |                                   | these costs of a shard allow                                  |
    | more than shard_bytes/files allow | as many as these settings require                             |
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
    """Assigns rows, in order, to shards: shard `k` takes the rows whose cost begins within the `k`-th of
    `shards` equal ranges of the total. Empty shards are not made: the numbers have no gap."""

    def __init__(self, total: int, shards: int) -> None:
        self._total, self._shards = max(1, total), max(1, shards)
        self._before = 0
        self._range = -1
        self._index = -1
        self._limit = 0

    def place(self, cost: int) -> int:
        """Return the shard of the next row, which costs `cost`."""
        if self._before >= self._limit or self._index < 0:
            self._range = min(self._shards - 1, self._before * self._shards // self._total)
            # the lowest cost in the next range; the last range has no end
            last = self._range == self._shards - 1
            self._limit = 1 << 200 if last else -(-(self._range + 1) * self._total // self._shards)
            self._index += 1
        self._before += cost
        return self._index

    def together(self, total: int) -> int | None:
        """Return the shard of all next rows, which cost `total`, if no cut can be among them; else None."""
        if self._index < 0 or self._before >= self._limit or self._before + total > self._limit:
            return None
        self._before += total
        return self._index

    def runs(self, costs: Sequence[int]) -> list[tuple[int, int, int]]:
        """Return (shard, start, end) for each run of the next rows that are in the same shard. This saves a
        call of `place` for each row."""
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


def spread_by_size(count: int) -> list[int]:
    """Return the numbers below `count` in an order whose first numbers are always spread evenly: 1/2, 1/4,
    3/4, 1/8 ... of the way (van der Corput: bits read backwards). If they are places in a list of files
    sorted by size, the first 64 files represent all sizes to 1/64."""
    bits = max(1, (count - 1).bit_length())
    backwards = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits))
    return list(dict.fromkeys(number * count >> bits for number in backwards))


def size_distance(sample: Iterable[int], sizes: Iterable[Sequence[int]]) -> float:
    """Return the Kolmogorov-Smirnov distance of a sample's sizes from all `sizes`, which come in batches in
    any order. It is the largest difference, 0 to 1, between the fractions of both that are below any size; 1
    if either is empty. Only the sample and a single batch are in memory."""
    ordered = sorted(sample)
    points = sorted(set(ordered))
    below, upto, total = [0] * len(points), [0] * len(points), 0
    for batch in sizes:
        whole = sorted(batch)
        total += len(whole)
        for place, point in enumerate(points):
            below[place] += bisect_left(whole, point)
            upto[place] += bisect_right(whole, point)
    if not ordered or not total:
        return 1.0

    # Between two sizes of the sample, the sample's fraction is constant and that of all sizes grows. So the
    # difference is largest at one of these two sizes.
    return max(
        abs(counted(ordered, point) / len(ordered) - of_all / total)
        for counted, counts in ((bisect_left, below), (bisect_right, upto))
        for point, of_all in zip(points, counts, strict=True)
    )


_LINE_WIDTH = 4  # bits of a class of sizes: its upper bound is 16 times that of the class below
_FIO_GLOBAL = """\
; Sizes of files of {dataset}, for {streams} streams. `cd` into a folder of the target, and `fio` this file.
[global]
directory=.
rw=write
ioengine=psync
bs=1m
fallocate=none
create_on_open=1
file_service_type=sequential
openfiles=1
{sync}=1
unlink=1
group_reporting=1
"""


def fio_job(dataset: str, sizes: Sequence[int], streams: int, durability: str) -> str:
    """Return the job file for files of these `sizes`, in bytes. At least one size is needed.

    Each class of sizes is a job. Its files have random sizes between the class's smallest and largest. The
    `streams` are divided among the classes by their work, with at least one process for each. Empty files get
    a byte, since fio makes no empty files. `durability`: `fsync` (each file), or `syncfs` (once at the end).
    """
    classes: dict[int, list[int]] = {}
    for size in sizes:
        classes.setdefault(-(-max(1, size).bit_length() // _LINE_WIDTH), []).append(max(1, size))
    whole = sum(sizes) + FILE_COST * len(sizes)
    sync = "fsync_on_close" if durability == "fsync" else "end_fsync"
    jobs = [_FIO_GLOBAL.format(dataset=dataset, streams=streams, sync=sync)]
    for number, members in sorted(classes.items()):
        part = (sum(members) + FILE_COST * len(members)) / whole
        processes = min(len(members), max(1, round(streams * part)))
        jobs.append(
            f"[below-2^{number * _LINE_WIDTH}]\n"
            f"filesize={min(members)}-{max(members)}\n"
            f"nrfiles={-(-len(members) // processes)}\n"
            f"numjobs={processes}\n"
        )
    return "\n".join(jobs)
