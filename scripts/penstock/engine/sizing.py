"""Decides how many worker processes and streams (threads that move rows) an element (a process of the job
array) has, and explains the numbers. Also tunes the number of active streams while the engine runs.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.host import kernel_facts

if TYPE_CHECKING:
    from penstock.config.settings import EngineConfig
    from penstock.host.kernel_facts import JobEnvironment


# How the number of active streams changes while the engine runs (an increase is called a climb):
#
# a store reported overload (503, SlowDown)  halved at once, but at most once a second; then it climbs by a
#                                            quarter after every 5 s without such a report
# the share of the link feeds fewer streams  reduced at once to the number that the share feeds
# CPUs busy                                  unchanged: more streams would only wait for each other
# CPUs idle, last climb helped               doubled, up to the most
# CPUs idle, last climb did not help         the number before the climb, for at least 10 s
# parts of large objects                     doubled until the CPUs are busy, or a climb did not help: only a
#                                            climb shows whether the store limits each connection

WINDOW = 0.4  # seconds over which rate and load are measured
# fraction of busy CPU time from which CPUs count as busy; FULL applies to parts of large objects
BUSY, FULL = 0.75, 0.9
BETTER = 1.1  # the factor by which the rate must grow for a climb to have helped
HOLD = 10.0  # seconds without a climb after a climb that did not help
CALM = 5.0  # seconds without a climb after a store reported overload


class Tuner:
    """Decides the number of active streams, `streams`, which its caller applies. Times are seconds of one
    monotonic clock."""

    def __init__(self, first: int, least: int, most: int, cpus: int, now: float, busy: float) -> None:
        """Begin with `first` streams, and stay between `least` and `most`.

        `cpus` is the number of CPUs that the element may use. `busy` is explained at `step`.
        """
        self.streams = max(least, min(first, most))
        self.peak = self.streams  # the most streams that were active at a time
        self.probing = False  # whether parts of large objects are copied, and each climb helped so far
        self.words: list[str] = []  # the first dozen changes, each with its reason
        self._least, self._most, self.cpus = least, most, cpus
        self._since, self._work, self._busy = now, 0.0, busy
        self._before: tuple[int, float] | None = None
        self._hold = now
        self._pressed = now - CALM
        self._pressures = 0

    def pressure(self, now: float) -> bool:
        """Halve the streams, as a store reported overload. Returns whether `streams` changed."""
        self._pressures += 1
        self._hold = now + CALM
        self._before = None
        if now - self._pressed < 1.0:
            return False
        self._pressed = now
        self.probing = False
        return self._set(max(self._least, self.streams // 2), "the store asked for less")

    def bound(self, most: int) -> bool:
        """Allow no more than `most` streams from now on, but at least `least`. Returns whether `streams`
        changed."""
        self._most = max(self._least, most)
        if self.streams <= self._most:
            return False
        self._before = None
        return self._set(self._most, "its share feeds no more")

    def due(self, now: float) -> bool:
        """Return whether `step` would measure now, so that the caller computes the totals only then."""
        return now - self._since >= WINDOW

    def restart(self, now: float, work: float, busy: float) -> None:
        """Drop the current window, and begin a new window with these totals."""
        self._since, self._work, self._busy = now, work, busy

    def step(self, now: float, work: float, busy: float) -> bool:
        """Measure, change `streams` according to the table above, and return whether it changed.

        `work` is the bytes moved so far, `busy` the CPU seconds used so far (`pool.busy_seconds`).
        """
        span = now - self._since
        if span < WINDOW:
            return False
        rate, load = (work - self._work) / span, (busy - self._busy) / span / self.cpus
        self.restart(now, work, busy)
        before, self._before = self._before, None
        if rate <= 0 or now < self._hold:
            return False
        if before and rate < before[1] * BETTER:
            self._hold = now + HOLD
            self.probing = False
            return self._set(before[0], "more did not help")
        if load >= (FULL if self.probing else BUSY) or self.streams >= self._most:
            return False
        self._before = (self.streams, rate)
        more = self.streams * 2 if not self._pressures else self.streams + max(1, self.streams // 4)
        if self._pressures:
            self._hold = now + CALM
        return self._set(min(self._most, more), "CPUs were idle" if load < BUSY else "each may be limited")

    def _set(self, streams: int, why: str) -> bool:
        if streams == self.streams:
            return False
        if len(self.words) < 12:
            self.words.append(f"{self.streams} -> {streams} streams: {why}")
        self.streams = streams
        self.peak = max(self.peak, streams)
        return True

    @property
    def story(self) -> str:
        """The changes with their reasons, for the receipt."""
        text = "; ".join(self.words)
        if self._pressures:
            text += f"; asked for less {self._pressures} times"
        return text.lstrip("; ")


# The numbers of worker processes and streams of an element:
#
#     configured            processes                        streams (processes x threads)
#     workers, streams      as configured                    as configured, at least one a process
#     local source+target   one a CPU                        one a CPU at first, up to 4 a CPU
#     small objects of S3   one a CPU                        one a CPU at first, up to 64
#     anything else, fsync  one a CPU                        4 a CPU at first, up to 64
#     parts of objects      one a CPU                        8 a CPU at first, up to 64
#     few rows              no more than rows                no more than rows
#     little memory         no more than fit into it         no more than fit into it
#     ulimit -u, pids.max   no more than they allow          no more than they allow
#     a byte limit          -                                no more than the limit feeds
#
# "At first" means that `Tuner` increases the number while that helps. Small objects of S3 are prefetched,
# with no more than 64 pending requests in all.

MOST_STREAMS = 64  # the most streams of an element in all, and the most objects that they prefetch
AHEAD = 16  # the most small objects that a stream prefetches
WORKER_BYTES = 64 << 20  # memory that is reckoned for a worker process
STREAM_BYTES = 2 << 20  # memory that is reckoned for a stream
# threads besides the streams, in the element's process (heartbeat, display, a helper) and in a worker
OWN_THREADS, WORKER_THREADS = 4, 3
# Streams of each worker at first, if calls wait for a network or an fsync. EACH_LARGE applies to parts of
# large objects, since a store limits each connection.
EACH = 4
EACH_LARGE = 8
SMALL = 1 << 20  # bytes of the largest object that fits into one block (`stream.BLOCK`) and may be prefetched
ROWS_A_WORKER = 64  # small rows that are worth the start of a worker


class Sizing(NamedTuple):
    """The decision of `size`. `streams` and `most` are numbers for all workers together."""

    workers: int
    streams: int  # active streams at first
    most: int
    why: str  # the reason for each number, for people and the outcome


def size(
    *,
    cpus: int,
    cpus_from: str,
    memory: int,
    local: bool,
    rows: int,
    total: int,
    workers: int | None = None,
    streams: int | None = None,
    limit: int | None = None,
    each: int = 4,
    processes: int | None = None,
) -> Sizing:
    """Decide the numbers by the table above, with at least one worker and one stream.

    - `rows`, `total`: the rows left to do, and their bytes.
    - `memory`: bytes of memory free for the engine.
    - `local`: whether source and target are disks of this machine.
    - `workers`, `streams`: the configured numbers, if any.
    - `limit`: the byte limit a second, if any.
    - `each`: streams of a worker at first, if calls wait for a network or an fsync.
    - `processes`: the number of processes and threads that may be started; None: any number.
    """
    processes = sys.maxsize if processes is None else max(0, processes - OWN_THREADS)
    mean = total // rows if rows else 0
    words = [f"{cpus} CPUs ({cpus_from})", f"{rows} rows of {mean} bytes on average"]
    # A worker is worth its start if it gets a few dozen small rows, or one large row.
    useful = rows if mean >= SMALL else -(-rows // ROWS_A_WORKER)
    bounds = [
        (MOST_STREAMS, f"no more than {MOST_STREAMS} streams"),
        (streams or MOST_STREAMS, "the streams configured"),
        (useful, "so few rows"),
        (memory // (WORKER_BYTES + STREAM_BYTES), "so little memory"),
        (processes // (WORKER_THREADS + 1), "so few processes: ulimit -u, pids.max"),
    ]
    count, why = (workers, "configured") if workers else _least(cpus, "one a CPU", bounds)
    words.append(f"{count} workers ({why})")
    if streams:
        first = most = max(count, streams)
        words.append(f"{first} streams (configured)")
        return Sizing(count, first, most, "; ".join(words))
    bounds = [
        (rows, "so few rows"),
        ((memory - count * WORKER_BYTES) // STREAM_BYTES, "so little memory"),
        (processes - count * WORKER_THREADS, "so few threads: ulimit -u, pids.max"),
    ]
    if limit is not None:
        # A stream that waits long for its share of the limit would lose its connection.
        bounds.append((limit // SMALL, f"a limit of {limit} bytes a second"))
    top, why = (
        (4 * count, "local disks") if local else (MOST_STREAMS, "calls that wait for a network or an fsync")
    )
    most, why = _least(min(MOST_STREAMS, top), why, bounds)
    most = max(count, most)
    first = min(most, count if local else each * count)
    words.append(f"{first} streams at first, up to {most} ({why})")
    return Sizing(count, first, most, "; ".join(words))


def asked_ahead(streams: int) -> int:
    """Return the number of small objects that each stream may prefetch, from 1 to AHEAD."""
    return max(1, min(AHEAD, MOST_STREAMS // streams))


def _least(value: int, why: str, bounds: list[tuple[int, str]]) -> tuple[int, str]:
    """Return the least of a value and its bounds, but at least 1, with its reason."""
    for bound, reason in bounds:
        if bound < value:
            value, why = max(1, bound), reason
    return max(1, value), why


def cpus(environment: JobEnvironment, machine: int | None = None) -> tuple[int, str]:
    """Return the number of CPUs that this element may use, and where the number comes from.

    | cluster or site states | the kernel lets the element run on | result                                 |
    |------------------------|------------------------------------|----------------------------------------|
    | no number              | any number                         | the kernel's number                    |
    | a number               | as many, or more                   | the stated number                      |
    | a number               | fewer, and fewer than `machine`    | the kernel's: the element is confined  |
    | a number               | fewer, but all `machine` CPUs      | the stated number: nothing confines it |
    """
    allowed = len(os.sched_getaffinity(0))
    confined = allowed < (machine or os.cpu_count() or 1)
    if environment.cpus is not None and not (confined and allowed < environment.cpus):
        return environment.cpus, environment.cpus_from
    return allowed, "CPU affinity"


def beside(engine: EngineConfig) -> EngineConfig:
    """Return the settings of an engine that reads back while another engine copies.

    It gets a quarter of the CPUs and an eighth of the memory, as a cold read mostly waits for its device.
    """
    environment = kernel_facts.current_job()
    bounds = [
        (engine.workers or cpus(environment)[0]) // 4,
        free_memory(environment, kernel_facts.memory_limit()) // 8 // (WORKER_BYTES + EACH * STREAM_BYTES),
        MOST_STREAMS // EACH,
    ]
    if (room := kernel_facts.room()) is not None:
        bounds.append(room // 8 // (WORKER_THREADS + 1 + EACH))
    workers = max(1, min(bounds))
    return replace(engine, workers=workers, streams=min(engine.streams or EACH * workers, EACH * workers))


def free_memory(environment: JobEnvironment, limit: int | None = None) -> int:
    """Return half of the free memory, the cluster's grant, or the cgroups' limit, whichever is least."""
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) << 10
    return min(available for available in (free, environment.memory, limit) if available is not None) // 2
