"""The clock of a file system, by which ages of files on it are judged.

The times of a file come from a clock that need not be this host's: the server's (NFS, BeeGFS), or that of the
node that wrote it (Lustre, GPFS). A host whose own clock is wrong would take a young file for an old one, or
the reverse, and documents that it stamps would mislead every host after it. So what is compared with the
times of files, and the times that the history holds, are taken from the file system (`now`, `stamp`).
Commands that remove by age refuse where the two clocks differ (`checked`): one of them is wrong, and it is
not known which. Asking changes the folder's own change time, and nothing else.

Limits: on a file system that takes the writing node's clock both are the same clock, and an error of it is
not seen. A file system on which this account may change nothing has no clock for it: `now` is this host's.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from penstock.core.errors import PreflightError
from penstock.core.linked_reading import Now
from penstock.fs.safe_open import OPEN_FOLDER

if TYPE_CHECKING:
    from pathlib import Path

BOUND = 300.0
"""Seconds by which both clocks may differ; munge, without which SLURM does not run, allows as much."""


def now(folder: Path) -> float:
    """Seconds since the epoch, by the clock of the file system that holds this folder; by this host's where
    the folder cannot be touched. Never raises.

    The folder itself is touched, and its change time is read: that needs no inode and no block, so a file
    system that is full answers, too.
    """
    try:
        fd = os.open(folder, OPEN_FOLDER)
        try:
            return touch(fd) / 1e9
        finally:
            os.close(fd)
    except OSError:
        return time.time()


def touch(folder: int) -> int:
    """As `now`, of the folder of a descriptor, in nanoseconds. Raises OSError."""
    os.utime(folder)
    return os.fstat(folder).st_ctime_ns


def both(folder: Path) -> Now:
    """`now`, and this host's clock at the same moment."""
    times = time.time(), now(folder)
    return Now(min(times), max(times))


def checked(folder: Path) -> float:
    """As `now`, for removals by age. Raises PreflightError where this host's clock is more than BOUND ahead
    of the file system's, or behind it."""
    before = time.time()
    there = now(folder)
    ahead, behind = before - there, there - time.time()
    if max(ahead, behind) <= BOUND:
        return there
    apart = timedelta(seconds=round(max(ahead, behind)))
    how = f"{apart} ahead of" if ahead > 0 else f"{apart} behind"
    raise PreflightError(
        "this host's clock and the file system's do not agree",
        where=str(folder),
        why=f"this host's is {how} the time that the file system gives a file now: how old pins and releases "
        "are is not known, and nothing was removed",
        hint="set the clock that is wrong (`chronyc tracking` shows this host's), or give the command on a "
        "host whose clock is right",
    )


def stamp(folder: Path) -> str:
    """`now` as documents hold it: UTC, ISO 8601, in seconds."""
    return datetime.fromtimestamp(now(folder), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
