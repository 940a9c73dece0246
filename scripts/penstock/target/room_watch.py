"""The room of a target while it is being filled: who writes there ends before `target.keep_free` is reached.

Plan counts what fits. Afterwards anybody may write: runs below another root of the same file system, two
plans at one moment, the checkpoints of a job. So each process that copies calls a `RoomWatch` several times
a second; it reads statvfs and, once a minute, the quotas that the kernel counts.

| what is free beyond `keep_free`                       | then               |
|-------------------------------------------------------|--------------------|
| less than others take while this one ends, and than   | NoSpaceError       |
| it takes itself meanwhile, or has left to write       |                    |
| more                                                  | it looks later on  |

It looks once a minute where much is free, and the more often the sooner `keep_free` can be reached.

Rates are those of the last half second or more. On a file system that reserves the blocks of a file at once
(ext4, XFS) free space leaps, and shows no rate of the others: there it may be passed by the files that are
begun between two looks. Quotas that only a vendor's commands know are met as EDQUOT.
"""

from __future__ import annotations

import os
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import human
from penstock.core.errors import MAKE_ROOM, NoSpaceError
from penstock.fs import kernel_quotas

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EVERY, SHORTEST = 60.0, 0.1  # seconds between two looks, at most and at least
FASTEST = 16 << 30  # bytes a second that all writers together may take, before it was measured
ENDS = 1.0  # seconds in which a process that was stopped writes nothing more
LATEST = 2.0  # seconds by which it is expected to be called late, at most
WINDOW = 0.5  # seconds, at least, over which rates are measured
UNCOUNTED = 512 << 20  # bytes that this process has written and does not count yet, at most


class _Look(NamedTuple):
    at: float
    free: int
    moved: int
    taken: int  # by others, since the first look, at least: what this process writes may be taken earlier
    # than it is counted here, and later


class RoomWatch:
    """The room of the file system and the quotas of `folder`, of which `keep` bytes stay free. `gid`: the
    group of new files; None: as the folder gives it. `reserves`: blocks of files are reserved at once.
    `local`: what is written is counted at once, so that of a sparse file the holes are known to take nothing;
    a server's count comes later."""

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
        """Look, where it is time to. `moved`: bytes that this process has written; `left`: that it will still
        write. Raises NoSpaceError. What the file system does not say stops nobody."""
        now = self._clock()
        # A process that was called late once, on a loaded machine, may be so again.
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
        if self._last is None or free > last.free:  # somebody made room
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
        limits = kernel_quotas.of_new_files(self._folder, None, self._gid)
        full = [one for one in kernel_quotas.check(limits) if one.verdict == "stop"]
        if full:
            raise NoSpaceError(
                "a quota is used up",
                where=str(self._folder),
                why="; ".join(f"{one.about}: {one.found}" for one in full),
                hint=f"{full[0].mend}; the same command goes on where it stopped",
            )
