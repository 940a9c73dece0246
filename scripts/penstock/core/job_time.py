"""Which time limit an element of a job array asks for: by the estimate of its shard (the work of one
element), and a longer one after a limit that did not suffice. Pure; the submission of arrays calls it.

A scheduler backfills a job only where it knows how long the job may take: a limit above the need costs
waiting, one below it costs a second attempt, and a job without any (UNLIMITED) is never backfilled.
"""

from __future__ import annotations

from typing import NamedTuple

BEFORE = 15 * 60
"""Seconds for what no estimate knows: the node's prolog, an interpreter on a shared file system, a busy file
system."""
MEASURED, ASSUMED = 3.0, 10.0
"""How many times an estimate is asked for: one by the rates of an earlier release, one by assumed rates."""
UNKNOWN = 4 * 3600
"""Seconds where nothing is estimated."""
LONGEST = 7 * 86_400
"""Seconds that are asked for at most, where the cluster sets no limit."""
RAISES = 4
"""How often in a row an element's limit is raised while the element finishes nothing: one that hangs ends."""
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


def first(estimate: Estimate | None, longest: float) -> int:
    """Seconds to ask for at first, in whole minutes. `longest`: what the cluster allows, 0 where it sets no
    limit.

    | the estimate       | asked for                           |
    |--------------------|-------------------------------------|
    | by measured rates  | BEFORE and MEASURED times as much   |
    | by assumed rates   | BEFORE and ASSUMED times as much    |
    | none               | UNKNOWN                             |
    | any                | never more than the cluster allows, |
    |                    | or LONGEST where it says nothing    |
    """
    if estimate is None:
        return _bounded(UNKNOWN, longest)
    times = MEASURED if estimate.measured else ASSUMED
    return _bounded(BEFORE + times * estimate.seconds, longest)


def unestimated(longest: float) -> int:
    """Seconds to ask for by a job that is to last as long as a whole run: all that there is, bounded as in
    `first`."""
    return _bounded(LONGEST, longest)


def raised(limit: int, longest: float) -> int:
    """Seconds to ask for after this limit did not do: twice as much, bounded as in `first`; never less than
    `limit`."""
    return max(limit, _bounded(2 * limit, longest))


def _bounded(seconds: float, longest: float) -> int:
    """Rounded up to whole minutes, and down to them where the bound is none."""
    most = int(longest or LONGEST) // MINUTE * MINUTE
    return max(MINUTE, min(-int(-seconds // MINUTE) * MINUTE, most))
