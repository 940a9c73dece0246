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
from typing import TYPE_CHECKING, NamedTuple

from penstock.host import cgroups
from penstock.host.proc import PROC, children, peak_memory, process_stat

if TYPE_CHECKING:
    from penstock.host.proc import ProcessStat

EVERY = 5.0
"""Seconds between two looks at the children that `Meter.used` makes by itself: each reads two small files of
every child."""
_TICK = os.sysconf("SC_CLK_TCK")


class Used(NamedTuple):
    """What was used so far. Sizes are bytes; 0 where the kernel does not say."""

    began: float
    """Seconds since the epoch."""
    seconds: float
    """Of the wall clock, since then."""
    cpu_seconds: float
    memory_peak: int
    """The processes' own peaks, summed: see above."""
    processes: int
    """How many processes that sum is of."""
    job_memory_peak: int
    job_memory_file: str
    """Which file of the job's control group said so; "" where the job has none of its own."""


class Meter:
    """Measures this process from its start (`whole`), or from this call on."""

    def __init__(self, *, whole: bool = False, cgroup: str = "", proc: str = PROC) -> None:
        """`cgroup`: the name of the job's own control group (`JobEnvironment.cgroup`). Not `whole`: the peaks
        of children that live already are of what went before, and do not count."""
        self._cgroup, self._proc = cgroup, proc
        age = _age(proc) if whole else 0.0
        self._start = time.monotonic() - age
        self._began = time.time() - age
        self._peak, self._processes, self._others = 0, 0, 0.0
        self._earlier: frozenset[tuple[int, str]] = frozenset()
        if not whole:
            self._earlier = frozenset((one.pid, one.start) for one in self._children())
        self._job: tuple[int, str] = (0, "")
        self.look()
        self._before = 0.0 if whole else _cpu(resource.RUSAGE_SELF) + self._others

    def look(self) -> None:
        """Read the peaks of this process and of its living children now."""
        self._looked = time.monotonic()
        stats = self._children()
        # Those that end now are in one of the two, or for this look in neither.
        self._others = _cpu(resource.RUSAGE_CHILDREN) + sum(one.ticks for one in stats) / _TICK
        since = [one.pid for one in stats if (one.pid, one.start) not in self._earlier]
        peaks = [peak_memory("self", self._proc), *(peak_memory(pid, self._proc) for pid in since)]
        if sum(peaks) > self._peak:
            self._peak, self._processes = sum(peaks), sum(map(bool, peaks))
        if self._cgroup:
            self._job = cgroups.memory_peak(self._cgroup, self._proc)

    def _children(self) -> list[ProcessStat]:
        own = process_stat("self", self._proc)
        return children(own.pid, self._proc) if own is not None else []

    def used(self) -> Used:
        """What was used so far; looks at the children where the last look is older than `EVERY`."""
        if time.monotonic() - self._looked >= EVERY:
            self.look()
        return Used(
            began=self._began,
            seconds=time.monotonic() - self._start,
            cpu_seconds=max(0.0, _cpu(resource.RUSAGE_SELF) + self._others - self._before),
            memory_peak=self._peak,
            processes=self._processes,
            job_memory_peak=self._job[0],
            job_memory_file=self._job[1],
        )

    def final(self) -> Used:
        """As `used`, to be called when all children have ended: getrusage has their CPU time then."""
        self.look()
        return self.used()


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
