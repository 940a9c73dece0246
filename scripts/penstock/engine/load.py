"""How busy this machine's CPUs are, with whatever keeps them so."""

from __future__ import annotations

import os

_TICK = os.sysconf("SC_CLK_TCK")
_IDLE = slice(4, 6)
"""Of a CPU's line in /proc/stat: idle, and idle while something waits for a disk."""
_ALL = slice(1, 9)
"""Without guests, which are in user and nice already."""


def busy_seconds(cpus: int) -> float:
    """Seconds that `cpus` CPUs were not idle so far: the mean of those on which this process may run, times
    `cpus`. Others' work counts, since it is in the way of more streams just the same."""
    allowed = {b"cpu%d" % number for number in os.sched_getaffinity(0)}
    with open("/proc/stat", "rb") as stream:
        lines = [line.split() for line in stream if line.startswith(b"cpu")]
    here = [line for line in lines if line[0] in allowed] or lines[:1]
    ticks = sum(sum(map(int, line[_ALL])) - sum(map(int, line[_IDLE])) for line in here)
    return ticks / _TICK / len(here) * cpus
