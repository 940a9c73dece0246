"""When a linked file is read back again (`verify.linked`). A linked file is one that a release shares with an
earlier one by a hard link. Pure; verify and publish call it.

The problem: all files of a first release were read in one night, so all would fall due in one night. So each
file falls due at an age of its own, between half of the duration and all of it, which its path decides.

| the last reading                                    | the file is                |
|-----------------------------------------------------|----------------------------|
| is not known, or lies more than `AHEAD` ahead       | due                        |
| is as old as the duration, or older                 | due                        |
| is younger than half of it                          | not due                    |
| else                                                | due from the file's own age|
"""

from __future__ import annotations

from typing import NamedTuple

AHEAD = 86_400.0
"""Seconds: a reading that lies further in the future than clocks differ counts as none."""


class Now(NamedTuple):
    """The time, in seconds since the epoch, of a host and of a file system whose clocks may differ. Each is
    used so that a wrong clock has files read early, and a reading stated too old."""

    earliest: float
    """What a reading is dated with, and what the future is measured from."""
    latest: float
    """What ages are measured to."""


def is_known(read_at: float, now: Now) -> bool:
    """Whether this can be the time of a reading; 0 stands for none."""
    return 0 < read_at <= now.earliest + AHEAD


def is_overdue(read_at: float, now: Now, longest: float) -> bool:
    """Whether every file is due that was last read at `read_at`. Times are in seconds since the epoch,
    `longest` is the duration in seconds."""
    return not is_known(read_at, now) or now.latest - read_at >= longest


def due_fraction(read_at: float, now: Now, longest: float) -> float:
    """The fraction, 0 to 1, of files last read at `read_at` that is due. A file is due where the fraction
    that its path decides is below. Units as of `is_overdue`."""
    if is_overdue(read_at, now, longest):
        return 1.0
    return max(0.0, 2.0 * (now.latest - read_at) / longest - 1.0)
