"""When an element would start, and whether it would start sooner with less time, by SLURM.

`sbatch --test-only` names the start by running jobs and reservations. Jobs that wait in the queue do not
count, nor does the number of elements: hence "not before".
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cluster.slurm.time_limits import span
from penstock.config.settings import AUTO_TIME
from penstock.core import estimates
from penstock.core.errors import QueueFullError
from penstock.core.events import CheckResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.cluster.slurm.command_line import SlurmCommands
    from penstock.config.settings import JobOptions

LATE = 15 * 60.0  # seconds from now; a later start is late


def results(slurm: SlurmCommands, options: JobOptions, longest: float) -> list[CheckResult]:
    """Forecast the start of elements with these options. `longest`: the cluster's longest time limit, in
    seconds; 0: none. Raises as `SlurmCommands`."""
    seconds = estimates.asked_for((), 0, 1, longest) if options.time == AUTO_TIME else options.time
    try:
        return judged(lambda asked: slurm.trial(replace(options, time=asked)).start, seconds, time.time())
    except QueueFullError:
        return []  # SLURM judges no further job of this account now: `site.check` has said so


def judged(start: Callable[[int | None], float], seconds: int | None, now: float) -> list[CheckResult]:
    """Judge the start. `start` returns when an element of so many seconds would start; 0: SLURM does not say.
    `seconds`: what elements ask for; None: the partition's default.

    | the start      | `seconds` | asked again                | verdict                               |
    |----------------|-----------|----------------------------|---------------------------------------|
    | is not said    | any       | no                         | none                                  |
    | within LATE    | any       | no                         | ok: now                               |
    | is late        | None      | no                         | note                                  |
    | is late        | given     | with a half and a quarter  | note; what to do, where one is sooner |
    """
    first = start(seconds)
    if not first:
        return []
    if first <= now + LATE:
        return [CheckResult("start", "now, but for jobs that are ahead in the queue")]
    shorter = [limit for limit in (seconds // 120 * 60, seconds // 240 * 60) if limit] if seconds else []
    starts = {limit: begins for limit in shorter if (begins := start(limit))}
    sooner = next((limit for limit, begins in starts.items() if begins <= first - LATE), None)
    texts = [f"{span(limit)}: {_moment(begins, now)}" for limit, begins in starts.items()]
    whole = f"{span(seconds)}: " if seconds else ""
    return [
        CheckResult(
            "start",
            f"{whole}not before {_moment(first, now)}"
            + "".join(f"; {text}" for text in texts)
            + " (jobs that are ahead in the queue are not counted)",
            "note",
            "",
            ""
            if sooner is None
            else f"cluster.time: {sooner // 60}min starts sooner, and an element goes on where it stopped",
        )
    ]


def _moment(when: float, now: float) -> str:
    return "now" if when <= now + LATE else time.strftime("%a %Y-%m-%d %H:%M", time.localtime(when))
