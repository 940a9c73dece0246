"""Computes the time limit that a worker requests, from estimates of the open shards.

A scheduler backfills only jobs with a known limit. A limit above the need costs waiting, one below it a
second job; a job without a limit (UNLIMITED) is never backfilled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# seconds beyond any estimate: the node's prolog, an interpreter on a shared file system, a busy file system
BEFORE = 15 * 60
MARGIN = 1.5  # factor on an estimate
SHORTEST = 30 * 60
UNKNOWN = 4 * 3600  # seconds without an estimate, and at most: a limit of days is not backfilled
LONGEST = 7 * 86_400  # seconds requested at most, if the cluster sets no limit
MINUTE = 60  # seconds
# Seconds by which the clocks of two nodes may differ: munge refuses older messages (its TTL), so SLURM works
# on no nodes that differ by more.
CLOCKS = 300.0


class Estimate(NamedTuple):
    """How long an element takes."""

    seconds: float
    measured: bool  # by measured rates


def asked_for(estimates: Sequence[Estimate], shards: int, workers: int, longest: float) -> int:
    """Return the seconds that a worker requests, in whole minutes, for its part of these shards: another
    worker continues what it does not finish. `longest`: the cluster's limit, 0: none.

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
    """Return the seconds for a job that lasts as long as a whole run: all that the cluster allows."""
    return _bounded(LONGEST, longest)


def _bounded(seconds: float, longest: float) -> int:
    """Round up to whole minutes, within `longest` rounded down to them."""
    most = int(longest or LONGEST) // MINUTE * MINUTE
    return max(MINUTE, min(-int(-seconds // MINUTE) * MINUTE, most))
