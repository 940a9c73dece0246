"""What an element (the process that does one shard of a step) used: part of its receipt, and of its progress
file while it runs. Pure; `host.resource_usage` measures it.

Each attempt reads what the attempt before it left in the progress file, also one that was killed, and goes on
adding: so the figures of the last attempt stand for all of them. What an attempt used after its last line of
progress is missing, and so is an attempt that was killed before its first one.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from typing import NamedTuple


class EarlierUsage(NamedTuple):
    """The attempts of the same shard and step before this one, summed; peaks are the highest of any."""

    attempts: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    granted_seconds: float = 0.0
    """CPUs granted, times seconds, over the attempts."""
    memory_peak: int = 0
    job_memory_peak: int = 0
    array_attempts: int = 0
    """Those of `attempts` that ran in the same array: the scheduler started the element again.
    `array_seconds` likewise."""
    array_seconds: float = 0.0


class ElementUsage(NamedTuple):
    """What one attempt used, from its process's start on. `host.resource_usage` has the table of where the
    figures come from; times are seconds, sizes bytes, and 0 is not known."""

    attempt: str = ""
    array: str = ""
    """The scheduler's number of its array; "" of a local element."""
    restarts: int = 0
    """How often the scheduler had started it again in that array."""
    host: str = ""
    began: float = 0.0
    """Seconds since the epoch, by the node's clock."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of the element, its workers, and whatever else it started."""
    cpus: int = 0
    """CPUs that it was granted."""
    node_cpus: int = 0
    """CPUs that the node has."""
    memory_peak: int = 0
    """Of its processes: an upper bound, since it is the sum of their own peaks."""
    processes: int = 0
    """How many processes that sum is of."""
    job_memory_peak: int = 0
    """Of the job's own control group, cached files included."""
    job_memory_file: str = ""
    """The file that said so: `memory.peak` or `memory.max_usage_in_bytes`."""
    earlier: EarlierUsage = EarlierUsage()


NOT_MEASURED = ElementUsage()


def after(before: ElementUsage | None, array: str) -> EarlierUsage:
    """What earlier attempts used, for an attempt that begins now in this array. `before`: what the last of
    them left; None: there was none.

    >>> first = ElementUsage(array="7", seconds=10.0, cpus=4, memory_peak=5)
    >>> second = ElementUsage(array="7", seconds=1.0, cpus=2, earlier=after(first, "7"))
    >>> third = after(second, "8")
    >>> third.attempts, third.seconds, third.granted_seconds, third.memory_peak, third.array_seconds
    (2, 11.0, 42.0, 5, 0.0)
    """
    if before is None:
        return EarlierUsage()
    old = before.earlier
    same = bool(array) and before.array == array
    return EarlierUsage(
        attempts=old.attempts + 1,
        seconds=round(old.seconds + before.seconds, 3),
        cpu_seconds=round(old.cpu_seconds + before.cpu_seconds, 3),
        granted_seconds=round(old.granted_seconds + before.cpus * before.seconds, 3),
        memory_peak=max(old.memory_peak, before.memory_peak),
        job_memory_peak=max(old.job_memory_peak, before.job_memory_peak),
        array_attempts=old.array_attempts + 1 if same else 0,
        array_seconds=round(old.array_seconds + before.seconds, 3) if same else 0.0,
    )
