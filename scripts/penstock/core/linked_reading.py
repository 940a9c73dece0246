"""Which linked files verify reads back, where they may be carried over (`verify.linked`).

The problem: all files of a release were read in one night, so their time runs out in one night, too. Each
release therefore reads some of them early: the bytes that were read longest ago, so much of all as the time
since the release before is of `within`. With a release each night and `within: 30d` that is a thirtieth a
night.
"""

# Annotations are read at run time (`core.documents.typed_json`): no `from __future__ import annotations`.
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

AHEAD = 86_400
"""Seconds: a reading that lies further in the future than clocks differ counts as none."""
DUE, SAMPLE = "due", "sample"


@dataclass(frozen=True)
class LinkedReading:
    """What plan decided for all shards of a run. Times are seconds since the epoch."""

    at: float
    """When it was decided."""
    within: float
    """Seconds after which a file is read in any case."""
    sample: float
    """The share of the others that is read."""
    until: int = 0
    """What was last read before is due."""
    share: float = 0.0
    """The share that is due of what was last read at `until`."""
    salt: int = 0
    """Drawn anew for each plan: nobody can know which files will be sampled."""

    def overdue(self, read_at: int) -> bool:
        """Whether the file's time has run out, or nothing is known of its last reading."""
        return read_at <= self.at - self.within or read_at > self.at + AHEAD

    def is_due(self, read_at: int) -> bool:
        """Whether all files are due that were last read then; of those at `until`, a `share` is."""
        return self.overdue(read_at) or read_at < self.until


class Share(NamedTuple):
    """What of a release is read early."""

    until: int
    share: float
    due_bytes: int
    """What is due, with what is overdue."""
    overdue_bytes: int
    sample: float
    """The share of what is not due that is drawn: less than was asked for where `limit` leaves less."""


def share_due(
    ages: Mapping[int, int], now: float, last: float, within: float, limit: int | None, sample: float
) -> Share:
    """`ages`: bytes by the time of their last reading; `last`: when the release before was sealed.

    | bytes                                                         | are read                     |
    |---------------------------------------------------------------|------------------------------|
    | last read `within` ago or longer, or nobody knows when        | all                          |
    | of the others a random `sample`                               | as many as `limit` allows    |
    | of the others, oldest first: (now - last) / within of all     | as many as `limit` leaves    |
    |                                                               | beside the sample            |
    """
    rule = LinkedReading(now, within, sample)
    total = sum(ages.values())
    overdue = sum(size for read_at, size in ages.items() if rule.overdue(read_at))
    wanted = min(1.0, max(0.0, now - last) / within) * total
    if limit is not None and total > overdue:
        sample = min(sample, limit / (total - overdue))
        wanted = min(wanted, limit - sample * (total - overdue))
    left = max(0.0, wanted - overdue)
    due = overdue
    for read_at in sorted(read_at for read_at in ages if not rule.overdue(read_at)):
        size = ages[read_at]
        if left < size:
            return Share(read_at, left / size, due + int(left), overdue, sample)
        left -= size
        due += size
    return Share(math.ceil(now) + 1, 0.0, due, overdue, sample)


def at_most_95(carried: int, sampled: int) -> int | None:
    """How many of so many files that were not read can have other bytes, with 95 % confidence, when a random
    draw of as many as `sampled` found none: by the rule of three. None without a draw."""
    if not sampled:
        return None
    return min(carried, math.ceil(3 * (carried + sampled) / sampled))
