"""How busy the CPUs are that an element may use: the pool asks, to tune its number of streams.

Reads /proc and this process's CPU affinity; writes nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.host.proc import PROC, process_stat

if TYPE_CHECKING:
    from collections.abc import Iterable

_TICK = os.sysconf("SC_CLK_TCK")
_IDLE = slice(4, 6)
"""Of a CPU's line in /proc/stat: idle, and idle while something waits for a disk."""
_ALL = slice(1, 9)
"""Without guests, which are in user and nice already."""


def busy_seconds(cpus: int, workers: Iterable[int], proc: str = PROC) -> float:
    """Seconds of CPU time spent so far, on `cpus` CPUs in all: the difference of two calls, divided by `cpus`
    and by the seconds between them, is the fraction of the time that these CPUs were busy.

    | this process may run on          | what is counted                                                    |
    |----------------------------------|--------------------------------------------------------------------|
    | no more CPUs than `cpus`         | the time of all processes on them, since others' work is in the    |
    |                                  | way of more streams as well; where the kernel shows another number |
    |                                  | of CPUs, their mean, times `cpus`                                  |
    | more (nothing binds the element) | the time of the processes `workers` (their ids); of one that has   |
    |                                  | ended, nothing                                                     |

    0.0 where /proc/stat cannot be read: the CPUs count as idle then, and further streams stay only where they
    move more.
    """
    allowed = os.sched_getaffinity(0)
    if len(allowed) > cpus:
        # One that just ended spends no more.
        seen = (process_stat(worker, proc) for worker in workers)
        return sum(one.ticks for one in seen if one) / _TICK
    names = {b"cpu%d" % number for number in allowed}
    try:
        with open(f"{proc}/stat", "rb") as stream:
            lines = [line.split() for line in stream if line.startswith(b"cpu")][1:]
    except OSError:
        return 0.0
    # Some containers count their CPUs anew.
    here = [line for line in lines if line[0] in names] or lines
    ticks = sum(sum(map(int, line[_ALL])) - sum(map(int, line[_IDLE])) for line in here)
    return ticks / _TICK / max(1, len(here)) * cpus
