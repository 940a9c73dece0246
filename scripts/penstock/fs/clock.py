"""The clock of a file system, by which the ages of its files are judged.

The times of a file come from a clock that may not be this host's: the server's (NFS, BeeGFS), or the writing
node's (Lustre, GPFS). A host with a wrong clock would confuse young and old files, and would mislead every
other host by its time stamps. So ages, and the history's times, are taken from the file system (`now`,
`stamp`). Commands that remove files by age refuse to work if the two clocks differ (`checked`), since either
may be wrong. Reading the clock changes only the folder's change time.

Limits: if files get the writing node's clock, the two clocks are the same, so that an error of it stays
hidden. If this account may not touch the folder, `now` is this host's clock.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from penstock.core.errors import PreflightError
from penstock.core.grades import Now
from penstock.fs.safe_open import OPEN_FOLDER

if TYPE_CHECKING:
    from pathlib import Path

# seconds by which the clocks may differ: as many as munge, which SLURM needs, allows
BOUND = 300.0


def now(folder: Path) -> float:
    """Return seconds since the epoch on the file system's clock, or on this host's clock if the folder cannot
    be touched. Never raises. Touching the folder and reading its change time needs no inode and no block, so
    this also works on a full file system."""
    try:
        fd = os.open(folder, OPEN_FOLDER)
        try:
            return touch(fd) / 1e9
        finally:
            os.close(fd)
    except OSError:
        return time.time()


def touch(folder: int) -> int:
    """Return the same time as `now`, in nanoseconds, for the folder with this descriptor."""
    os.utime(folder)
    return os.fstat(folder).st_ctime_ns


def both(folder: Path) -> Now:
    """Return the result of `now`, and this host's clock at the same moment."""
    times = time.time(), now(folder)
    return Now(min(times), max(times))


def checked(folder: Path) -> float:
    """Return the same time as `now`, for removals by age. Raises PreflightError if this host's clock and the
    file system's clock differ by more than BOUND."""
    before = time.time()
    fs_now = now(folder)
    ahead, behind = before - fs_now, fs_now - time.time()
    if max(ahead, behind) <= BOUND:
        return fs_now
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
    """Return `now` in the form of documents: UTC, ISO 8601, in seconds."""
    return datetime.fromtimestamp(now(folder), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
