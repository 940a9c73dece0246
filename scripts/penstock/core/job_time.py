"""Which time limit a worker (an element of a job array) asks for: by the estimate of the shards that are
open. Pure; the submission of arrays calls it.

A scheduler backfills a job only where it knows how long the job may take: a limit above the need costs
waiting, one below it costs a second job, and a job without any (UNLIMITED) is never backfilled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

BEFORE = 15 * 60
"""Seconds for what no estimate knows: the node's prolog, an interpreter on a shared file system, a busy file
system."""
MARGIN = 1.5
"""How many times an estimate is asked for."""
SHORTEST = 30 * 60
UNKNOWN = 4 * 3600
"""Seconds where nothing is estimated, and at most: a limit of days is not backfilled."""
LONGEST = 7 * 86_400
"""Seconds that are asked for at most, where the cluster sets no limit."""
MINUTE = 60
"""Seconds."""
CLOCKS = 300.0
"""Seconds by which the clocks of two nodes may differ: munge refuses what is older (its TTL), so nodes that
differ by more have no SLURM."""


class Estimate(NamedTuple):
    """How long an element takes."""

    seconds: float
    measured: bool
    """Whether by rates that were measured."""


def asked_for(estimates: Sequence[Estimate], shards: int, workers: int, longest: float) -> int:
    """Seconds that a worker asks for, in whole minutes: its part of these shards, since what it does not
    finish another worker goes on with. `longest`: what the cluster allows, 0 where it sets no limit.

    | the estimates                       | asked for                                                   |
    |-------------------------------------|-------------------------------------------------------------|
    | of all shards                       | BEFORE, and MARGIN times the work by the number of workers; |
    |                                     | at least SHORTEST, at most UNKNOWN                          |
    | of some, or none                    | UNKNOWN                                                     |
    | any                                 | never more than the cluster allows                          |
    """
    if not shards or len(estimates) < shards:
        return _bounded(UNKNOWN, longest)
    work = sum(estimate.seconds for estimate in estimates) / max(1, workers)
    return _bounded(min(UNKNOWN, max(SHORTEST, BEFORE + MARGIN * work)), longest)


def unestimated(longest: float) -> int:
    """Seconds to ask for by a job that is to last as long as a whole run: all that the cluster allows."""
    return _bounded(LONGEST, longest)


def _bounded(seconds: float, longest: float) -> int:
    """Rounded up to whole minutes, and down to them where the bound is none."""
    most = int(longest or LONGEST) // MINUTE * MINUTE
    return max(MINUTE, min(-int(-seconds // MINUTE) * MINUTE, most))
