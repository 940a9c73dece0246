"""Watches the free space of a target while it is filled, so that writers stop before `target.keep_free`.

Plan checks whether the data fits, but others write later: runs of other roots, runs planned at the same time,
a job's checkpoints. So each process that copies calls a `RoomWatch` several times a second. It reads statvfs
and, once a minute, the kernel's quotas.

| free space beyond `keep_free`                         | result             |
|-------------------------------------------------------|--------------------|
| less than other processes will write until this one   | NoSpaceError       |
| has ended, plus what it will write itself             |                    |
| more                                                  | it checks later    |

If much space is free, it checks once a minute, and more often the sooner `keep_free` can be reached. Rates
are measured over half a second or more. On ext4 and XFS a file's blocks are reserved at once. Free space then
drops in steps, which show no rate of others, and files that are begun between two checks may use some of
`keep_free`. If only a vendor's commands know a quota, the writes fail with EDQUOT.
"""

from __future__ import annotations

import os
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import human
from penstock.core.errors import MAKE_ROOM, NoSpaceError
from penstock.fs import quotas

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EVERY, SHORTEST = 60.0, 0.1  # seconds between two checks, at most and at least
FASTEST = 16 << 30  # bytes a second that all writers together are assumed to write, before it is measured
ENDS = 1.0  # seconds after which a stopped process writes nothing more
LATEST = 2.0  # seconds by which the next call is expected to be late, at most
WINDOW = 0.5  # seconds over which rates are measured, at least
UNCOUNTED = 512 << 20  # bytes that this process has written but does not count yet, at most


class _Look(NamedTuple):
    at: float
    free: int
    moved: int
    taken: int  # the fewest bytes that others took since the first look: free space may shrink before or
    # after this process counts the bytes that it wrote


class RoomWatch:
    """Watches the free space and quotas of `folder`, so that `keep` bytes stay free.

    `gid` is the group of new files; None means the folder's. `reserves`: a file's blocks are reserved at
    once. `local`: writes change the free space at once, so that holes take no space.
    """

    def __init__(
        self,
        folder: Path,
        keep: int,
        gid: int | None,
        *,
        reserves: bool,
        local: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._keep, self._gid, self._reserves = folder, keep, gid, reserves
        self._local = local
        self._clock = clock
        self._called = clock()
        self._due = self._quotas_due = float("-inf")
        self._looks: deque[_Look] = deque(maxlen=2)
        self._first = _Look(0.0, 0, 0, 0)
        self._last: _Look | None = None

    def __call__(self, moved: int = 0, left: int = 0) -> None:
        """Check if a check is due. This process has written `moved` bytes, and will still write `left` bytes.

        Raises NoSpaceError. If the file system is unresponsive, the work continues.
        """
        now = self._clock()
        # If this call is late, as on a loaded machine, the next may be late too.
        ends, self._called = ENDS + min(LATEST, now - self._called), now
        if now < self._due:
            return
        try:
            space = os.statvfs(self._folder)
            if now >= self._quotas_due:
                self._quotas_due = now + EVERY
                self._check_quotas()
        except OSError:
            self._due = now + EVERY
            return
        free = space.f_bavail * space.f_frsize
        last = self._last or _Look(now, free, moved, 0)
        if self._last is None or free > last.free:  # space was freed
            self._first = last._replace(free=free, moved=moved)
        own_bytes = moved - self._first.moved + min(left, UNCOUNTED)
        by_others = self._first.taken + self._first.free - free - own_bytes
        look = self._last = _Look(now, free, moved, max(last.taken, by_others))
        before = self._looks[0] if self._looks else look
        seconds = max(now - before.at, SHORTEST)
        rate, own = max(0.0, (before.free - look.free) / seconds), (moved - before.moved) / seconds
        own = min(own, rate) if self._local else own
        others = 0.0 if self._reserves else (look.taken - before.taken) / seconds
        spare = look.free - self._keep
        if spare < min(1 + own * ends, left) + others * ends:
            taken = f"; {human.rate(rate)} are written there" if rate else ""
            raise NoSpaceError(
                "the target has no room left",
                where=str(self._folder),
                why=f"{human.size(look.free)} are free, and target.keep_free is "
                f"{human.size(self._keep)}{taken}",
                hint=f"{MAKE_ROOM}, or lower target.keep_free; the same command goes on where it stopped",
            )
        if not self._looks or now - self._looks[-1].at >= WINDOW:
            self._looks.append(look)
        self._due = now + min(EVERY, max(SHORTEST, spare / max(rate, FASTEST) / 4))

    def _check_quotas(self) -> None:
        limits = quotas.of_new_files(self._folder, None, self._gid)
        full = [quota for quota in quotas.check(limits) if quota.verdict == "stop"]
        if full:
            raise NoSpaceError(
                "a quota is used up",
                where=str(self._folder),
                why="; ".join(f"{quota.about}: {quota.found}" for quota in full),
                hint=f"{full[0].mend}; the same command goes on where it stopped",
            )
