"""What this process, and the processes that it starts, use: CPU time and memory by the kernel's accounts.

| figure         | read from                                  | of                                    |
|----------------|--------------------------------------------|---------------------------------------|
| CPU seconds    | getrusage                                  | this process, and children that ended |
|                | /proc/<pid>/stat                           | children that live                    |
| peak of memory | VmHWM of /proc/<pid>/status                | this process and its living children  |
| the job's peak | `memory.peak` (cgroup v2, Linux 5.19), or  | all that the job's own control group  |
|                | `memory.max_usage_in_bytes` (v1)           | was charged for, cached files too     |

The peak of memory is an upper bound of what the processes held at one moment: each process reached its own
peak at a moment of its own, and pages that several share are counted for each. Of helpers that come and go
between two looks it knows nothing. `ru_maxrss` is not used: an
exec keeps it, so that a small child shows the size of its parent (getrusage(2), fs/exec.c).

A process that wants to be measured, as each element does, enters a `Meter`. Code that ends helper processes
calls `look` shortly before, since nobody can read their peaks afterwards. Reads /proc and cgroups; changes
nothing.
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
        # Those that end now are in one of the two, or for this look in neither.
        self._others = _cpu(resource.RUSAGE_CHILDREN) + sum(one.ticks for one in stats) / _TICK
        peaks = [peak_memory("self", self._proc), *(peak_memory(one.pid, self._proc) for one in stats)]
        if sum(peaks) > self._peak:
            self._peak, self._processes = sum(peaks), sum(map(bool, peaks))
        if self._cgroup:
            self._job = cgroups.memory_peak(self._cgroup, self._proc)

    def used(self, usage: ElementUsage) -> ElementUsage:
        """With what was used so far: reads two small files of every child."""
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
    """Seconds in user and kernel mode."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def _age(proc: str) -> float:
    """Seconds since this process was started (an exec starts none); 0 where /proc does not say."""
    own = process_stat("self", proc)
    if own is None or not own.start.isdecimal():
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - int(own.start) / _TICK)


_entered: list[Meter | None] = [None]


def enter(meter: Meter | None) -> None:
    """Let `look` read for this meter, in all threads of this process; None: for none."""
    _entered[0] = meter


def look() -> None:
    """Read the peaks for the entered meter: to be called where helpers of this process are about to end. Does
    nothing where no meter is entered."""
    meter = _entered[0]
    if meter is not None:
        meter.look()
