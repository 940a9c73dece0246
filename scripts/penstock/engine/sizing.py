"""How many worker processes and streams (threads that move rows) an element runs, and why, in words; and how
the number of active streams is tuned while the engine runs.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.host import resources

if TYPE_CHECKING:
    from penstock.config.settings import EngineConfig
    from penstock.host.resources import JobEnvironment


# Tunes the number of active streams (threads that move rows) while the engine runs.
#
# the store asked for less (503, SlowDown)   half, at once, no more than once a second; then the
#                                            number climbs again by a quarter every 5 s without
# its share of the network link feeds fewer  as many as it feeds, at once
# CPUs busy                                  stays: more streams would only wait for each other
# CPUs idle, last climb helped               double, up to the most
# CPUs idle, last climb did not help         back to what it was, and hold for 10 s
# parts of large objects                     double until the CPUs have no time left, or a climb did not help:
#                                            only a climb shows whether the store limits each connection

WINDOW = 0.4  # seconds over which rate and load are measured
# fraction of busy CPU time from which CPUs count as busy; FULL for parts of large objects
BUSY, FULL = 0.75, 0.9
BETTER = 1.1  # a climb helped where it multiplied the rate by this
HOLD = 10.0  # seconds without a climb after one that did not help
CALM = 5.0  # seconds without a climb after the store asked for less


class Tuner:
    """Decides the number of streams; its caller runs `streams` of them. Times are seconds of one monotonic
    clock."""

    def __init__(self, first: int, least: int, most: int, cpus: int, now: float, busy: float) -> None:
        """Begin with `first` streams, and stay between `least` and `most`.

        `cpus`: CPUs that the element may use; `busy`: as in `step`.
        """
        self.streams = max(least, min(first, most))
        self.peak = self.streams  # the most streams active at a time
        self.probing = False  # parts of large objects are copied, and each climb has helped so far
        self.words: list[str] = []  # the first dozen changes, each with its reason
        self._least, self._most, self.cpus = least, most, cpus
        self._since, self._work, self._busy = now, 0.0, busy
        self._before: tuple[int, float] | None = None
        self._hold = now
        self._pressed = now - CALM
        self._pressures = 0

    def pressure(self, now: float) -> bool:
        """Halve the streams: the store asked for less. Returns whether `streams` changed."""
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
        """Begin a new window with these totals; the old one says nothing."""
        self._since, self._work, self._busy = now, work, busy

    def step(self, now: float, work: float, busy: float) -> bool:
        """Measure, and change `streams` by the table; return whether they changed.

        `work`: bytes moved so far; `busy`: seconds of busy CPUs so far (`pool.busy_seconds`).
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
        """The changes and their reasons, for the receipt."""
        text = "; ".join(self.words)
        if self._pressures:
            text += f"; asked for less {self._pressures} times"
        return text.lstrip("; ")


# How many worker processes and streams (threads that move rows) an element runs, and why, in words.
#
#     configured            processes                        streams (processes x threads)
#     workers, streams      as configured                    as configured, at least one a process
#     local source+target   one a CPU                        one a CPU at first, up to 4 a CPU
#     small objects of S3   one a CPU                        one a CPU at first, up to 64
#     anything else, fsync  one a CPU                        4 a CPU at first, up to 64
#     parts of objects      one a CPU                        8 a CPU at first, up to 64
#     few rows              no more than rows                no more than rows
#     little memory         no more than it holds            the same
#     ulimit -u, pids.max   no more than they leave          the same
#     a byte limit          -                                no more than the limit feeds
#
# "At first": the pool climbs from there while that helps (`stream_tuning`). Small objects of S3 are
# prefetched, with no more than 64 requests on their way in all.

MOST_STREAMS = 64  # of one element, in all its workers; the limit of prefetched objects too
AHEAD = 16  # small objects that a stream prefetches, at most
WORKER_BYTES = 64 << 20  # memory reckoned for a worker process
STREAM_BYTES = 2 << 20  # memory reckoned for a stream
# threads beside the streams: of the element (heartbeat, display, a helper), of a worker
OWN_THREADS, WORKER_THREADS = 4, 3
# Streams of each worker at first, where calls wait; EACH_LARGE for parts of large objects, since a store
# limits each connection.
EACH = 4
EACH_LARGE = 8
SMALL = 1 << 20  # bytes of the largest object that comes in one block (`stream.BLOCK`) and may be prefetched
ROWS_A_WORKER = 64  # small rows that make up for the start of a worker


class Sizing(NamedTuple):
    """The decision of `size`; `streams` and `most` are of all workers together."""

    workers: int
    streams: int  # at first
    most: int
    why: str  # what decided each number, for people and the outcome


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
    """Decide the sizes by the table above; at least one worker and one stream.

    - `rows`, `total`: rows left to do, and their bytes.
    - `memory`: bytes free for the engine.
    - `local`: source and target are disks of this machine.
    - `workers`, `streams`: the configured numbers, if any.
    - `limit`: bytes a second, if limited.
    - `each`: streams of a worker at first, where calls wait.
    - `processes`: processes and threads that may be started; None: any number.
    """
    processes = sys.maxsize if processes is None else max(0, processes - OWN_THREADS)
    mean = total // rows if rows else 0
    words = [f"{cpus} CPUs ({cpus_from})", f"{rows} rows of {mean} bytes on average"]
    # A worker is worth its start for a few dozen small rows, or a large one.
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
        # A stream that waits long for its turn would lose its connection.
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
    """Return how many small objects each stream may prefetch, from 1 to AHEAD."""
    return max(1, min(AHEAD, MOST_STREAMS // streams))


def _least(value: int, why: str, bounds: list[tuple[int, str]]) -> tuple[int, str]:
    """Return the least of a value and its bounds, at least 1, and its reason."""
    for bound, reason in bounds:
        if bound < value:
            value, why = max(1, bound), reason
    return max(1, value), why


def cpus(environment: JobEnvironment, machine: int | None = None) -> tuple[int, str]:
    """Return the CPUs that this element may use, and where the number comes from. `machine`: CPUs of this
    machine.

    | the cluster or the site says | the kernel lets it run on       | counts                                |
    |------------------------------|---------------------------------|---------------------------------------|
    | nothing                      | any number                      | the kernel's                          |
    | a number                     | as many, or more                | the cluster's                         |
    | a number                     | fewer, not all of the machine's | the kernel's: the element is confined |
    | a number                     | fewer, all of the machine's     | the cluster's: nothing confines it    |
    """
    allowed = len(os.sched_getaffinity(0))
    confined = allowed < (machine or os.cpu_count() or 1)
    if environment.cpus is not None and not (confined and allowed < environment.cpus):
        return environment.cpus, environment.cpus_from
    return allowed, "CPU affinity"


def beside(engine: EngineConfig) -> EngineConfig:
    """Configure an engine that reads back beside one that copies.

    It gets a quarter of the CPUs and an eighth of the memory: a cold read mostly waits for its device.
    """
    environment = resources.current_job()
    bounds = [
        (engine.workers or cpus(environment)[0]) // 4,
        free_memory(environment, resources.memory_limit()) // 8 // (WORKER_BYTES + EACH * STREAM_BYTES),
        MOST_STREAMS // EACH,
    ]
    if (room := resources.room()) is not None:
        bounds.append(room // 8 // (WORKER_THREADS + 1 + EACH))
    workers = max(1, min(bounds))
    return replace(engine, workers=workers, streams=min(engine.streams or EACH * workers, EACH * workers))


def free_memory(environment: JobEnvironment, limit: int | None = None) -> int:
    """Return half of the memory that is free, granted by the cluster, or allowed by cgroups, whichever is
    less."""
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) << 10
    return min(available for available in (free, environment.memory, limit) if available is not None) // 2
