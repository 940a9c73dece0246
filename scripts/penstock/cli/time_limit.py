"""Stops a SLURM job tidily shortly before its time ends.

SLURM sends the signal of `sbatch --signal=B:USR1@LEAD` during a check every half minute, and always too
early: in a job of one minute, maybe after half of it. So the batch script notes when to stop, and the command
continues until that time.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from penstock.host.kernel_facts import JobEnvironment

# seconds by which SLURM's signal may come before the time limit; an even earlier signal is a preemption,
# which cannot wait
EARLY = 90.0


def pause(now: float, stop_at: float) -> float:
    """Return the seconds from the signal to the stop. A `stop_at` of 0 is unknown.

    until stop_at    | stop
    unknown, or past | now
    up to EARLY      | then
    more             | now: it is a preemption
    """
    left = stop_at - now
    return left if stop_at and 0 < left <= EARLY else 0.0


def watch(stop: Callable[[], None], environment: JobEnvironment) -> None:
    """In a job, call `stop` in the main thread when the job's time is about to end."""
    if not environment.job:
        return

    def near(_: int, __: FrameType | None) -> None:
        if wait := pause(time.time(), environment.stop_at):
            signal.setitimer(signal.ITIMER_REAL, wait)
        else:
            stop()

    signal.signal(signal.SIGUSR1, near)
    signal.signal(signal.SIGALRM, lambda _, __: stop())
