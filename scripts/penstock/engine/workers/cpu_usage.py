"""How busy the CPUs are that an element may use; the pool tunes its streams by it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.host.proc import PROC, process_stat

if TYPE_CHECKING:
    from collections.abc import Iterable

_TICK = os.sysconf("SC_CLK_TCK")
_IDLE = slice(4, 6)  # of a CPU's line in /proc/stat: idle, and idle during disk I/O
_ALL = slice(1, 9)  # without guests, which user and nice include


def busy_seconds(cpus: int, workers: Iterable[int], proc: str = PROC) -> float:
    """Return the seconds of CPU time spent so far on `cpus` CPUs.

    The difference of two calls, divided by `cpus` and by the seconds between, is the fraction that they were
    busy.

    | this process may run on          | what is counted                                                    |
    |----------------------------------|--------------------------------------------------------------------|
    | no more CPUs than `cpus`         | all processes on them, as others' work slows more streams too;     |
    |                                  | where the kernel shows another number of CPUs: their mean, times   |
    |                                  | `cpus`                                                             |
    | more (nothing binds the element) | the processes `workers` (their ids) that have not ended            |

    0.0 where /proc/stat cannot be read: the CPUs then count as idle, and more streams stay only where they
    move more bytes.
    """
    allowed = os.sched_getaffinity(0)
    if len(allowed) > cpus:
        # A worker that just ended spends no more.
        stats = (process_stat(worker, proc) for worker in workers)
        return sum(stat.ticks for stat in stats if stat) / _TICK
    names = {b"cpu%d" % number for number in allowed}
    try:
        with open(f"{proc}/stat", "rb") as stream:
            lines = [line.split() for line in stream if line.startswith(b"cpu")][1:]
    except OSError:
        return 0.0
    # Some containers renumber their CPUs.
    counted = [line for line in lines if line[0] in names] or lines
    ticks = sum(sum(map(int, line[_ALL])) - sum(map(int, line[_IDLE])) for line in counted)
    return ticks / _TICK / max(1, len(counted)) * cpus
