"""The end of a SLURM job's time: a tidy stop shortly before it.

SLURM sends the signal of `sbatch --signal=B:USR1@LEAD` at one of its checks, half a minute apart, and always
early: with a limit of a minute it may come at half of it. So the batch script notes when the element is to
stop, and a signal that comes before that moment waits for it.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from penstock.host.job_environment import JobEnvironment

EARLY = 90.0
"""Seconds by which SLURM may be early. A signal before that is a preemption's: it cannot wait."""


def pause(now: float, stop_at: float) -> float:
    """Seconds from the signal to the stop; `stop_at` is 0 where nobody noted it.

    until stop_at    | stop
    unknown, or past | now
    up to EARLY      | then
    more             | now: it is a preemption
    """
    left = stop_at - now
    return left if stop_at and 0 < left <= EARLY else 0.0


def watch(stop: Callable[[], None], environment: JobEnvironment) -> None:
    """In a job: call `stop`, in the main thread, when the job's time is about to end."""
    if not environment.job:
        return

    def near(_: int, __: FrameType | None) -> None:
        if wait := pause(time.time(), environment.stop_at):
            signal.setitimer(signal.ITIMER_REAL, wait)
        else:
            stop()

    signal.signal(signal.SIGUSR1, near)
    signal.signal(signal.SIGALRM, lambda _, __: stop())
