"""Measures the CPU time and memory of this process and the processes that it starts.

| figure         | read from                                  | of                                    |
|----------------|--------------------------------------------|---------------------------------------|
| CPU seconds    | getrusage                                  | this process, and children that ended |
|                | /proc/<pid>/stat                           | children that live                    |
| peak of memory | VmHWM of /proc/<pid>/status                | this process and its living children  |
| the job's peak | `memory.peak` (cgroup v2, Linux 5.19), or  | all that the job's own control group  |
|                | `memory.max_usage_in_bytes` (v1)           | was charged for, cached files too     |

The peak of memory is an upper bound: processes peak at different moments, shared pages count in each, and
helpers that come and go between two readings are missed. `ru_maxrss` is not used: an exec keeps it, so that a
small child shows the size of its parent (getrusage(2), fs/exec.c).

An element enters a `Meter`. Code that ends helper processes calls `look` shortly before: their peaks cannot
be read afterwards.
"""

from __future__ import annotations

import os
import resource
import time
from typing import TYPE_CHECKING

from penstock.host import cgroups
from penstock.host.proc import PROC, children, peak_memory, process_stat

if TYPE_CHECKING:
    from penstock.core.documents.element_usage import ElementUsage

_TICK = os.sysconf("SC_CLK_TCK")


class Meter:
    """Measures this process from its start on."""

    def __init__(self, cgroup: str = "", proc: str = PROC) -> None:
        """`cgroup`: the name of the job's own control group (`JobEnvironment.cgroup`)."""
        self._cgroup, self._proc = cgroup, proc
        age = _age(proc)
        self._start, self._began = time.monotonic() - age, time.time() - age
        self._peak, self._processes, self._others = 0, 0, 0.0
        self._job: tuple[int, str] = (0, "")

    def look(self) -> None:
        """Read the peaks of this process and of its living children now."""
        own = process_stat("self", self._proc)
        stats = children(own.pid, self._proc) if own is not None else []
        # A child that ends now counts in one of the two, or for this reading in neither.
        self._others = _cpu(resource.RUSAGE_CHILDREN) + sum(child.ticks for child in stats) / _TICK
        peaks = [peak_memory("self", self._proc), *(peak_memory(child.pid, self._proc) for child in stats)]
        if sum(peaks) > self._peak:
            self._peak, self._processes = sum(peaks), sum(map(bool, peaks))
        if self._cgroup:
            self._job = cgroups.memory_peak(self._cgroup, self._proc)

    def used(self, usage: ElementUsage) -> ElementUsage:
        """Return `usage` with the figures so far. Reads two small files of every child."""
        self.look()
        return usage._replace(
            began=round(self._began, 3),
            seconds=round(time.monotonic() - self._start, 3),
            cpu_seconds=round(_cpu(resource.RUSAGE_SELF) + self._others, 3),
            memory_peak=self._peak,
            processes=self._processes,
            job_memory_peak=self._job[0],
            job_memory_file=self._job[1],
        )


def _cpu(who: int) -> float:
    """Return seconds in user and kernel mode."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def _age(proc: str) -> float:
    """Return seconds since this process was started (an exec does not count); 0: not known."""
    own = process_stat("self", proc)
    if own is None or not own.start.isdecimal():
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - int(own.start) / _TICK)


_entered: list[Meter | None] = [None]


def enter(meter: Meter | None) -> None:
    """Let `look` read for this meter, in all threads of this process; None: for none."""
    _entered[0] = meter


def look() -> None:
    """Read the peaks for the entered meter, if any. Call it before helpers of this process end."""
    meter = _entered[0]
    if meter is not None:
        meter.look()
