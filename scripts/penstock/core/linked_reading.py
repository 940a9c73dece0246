"""Decides when a linked file, which shares an inode with an earlier release, is read back again
(`verify.linked`).

The problem: all files of a first release were read in the same night, and would fall due in the same night.
So each file's path decides its own age, between half of the duration and all of it.

| the last reading                                    | the file is                |
|-----------------------------------------------------|----------------------------|
| is not known, or lies more than `AHEAD` ahead       | due                        |
| is as old as the duration, or older                 | due                        |
| is younger than half of it                          | not due                    |
| else                                                | due from the file's own age|
"""

from __future__ import annotations

from typing import NamedTuple

AHEAD = 86_400.0  # seconds: a reading further in the future than clocks differ counts as none


class Now(NamedTuple):
    """The time in seconds since the epoch, by two clocks: a host's and a file system's. Each is used so that
    a wrong clock has files read early, and readings stated too old."""

    earliest: float  # dates a reading, and limits the future
    latest: float  # the end of ages


def is_known(read_at: float, now: Now) -> bool:
    """Return whether this can be the time of a reading; 0 stands for none."""
    return 0 < read_at <= now.earliest + AHEAD


def is_overdue(read_at: float, now: Now, longest: float) -> bool:
    """Return whether every file last read at `read_at` is due. `longest`: the duration in seconds."""
    return not is_known(read_at, now) or now.latest - read_at >= longest


def due_fraction(read_at: float, now: Now, longest: float) -> float:
    """Return the due fraction of files last read at `read_at`: those whose path decides a lower one."""
    if is_overdue(read_at, now, longest):
        return 1.0
    return max(0.0, 2.0 * (now.latest - read_at) / longest - 1.0)
