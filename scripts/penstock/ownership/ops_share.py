"""How many metadata operations a second this process may make below a root, of what `target.ops` allows all.

Each run's promise (`ownership.promises`) says how many of its elements may run at once; 0 while none does; so
does a repair's. An element, and a step that removes a tree, sets modes or puts repaired files in their
places, takes the budget divided by all parts of the living runs, and its own. The smallest budget that any
of them names counts.

The promises are read again after EVERY seconds: a listing, and an open for each run. A run whose process dies
on this machine loses its part within that time; one that dies elsewhere within PATIENCE (120 s) more. Until a
run that just began was read by the others, for EVERY seconds, the sum may be beyond the budget.

Limits: a run that could not write a promise takes its part and is not counted by others. The parts of
elements that wait in a queue are not used. Audits and verify only read, and have no part.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.ownership import promises
from penstock.ownership.promise_judgement import LIVING, verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.layout import DatasetLayout
    from penstock.storage.port import Storage

EVERY = 5.0
"""Seconds between two readings of the promises."""


class OpsShare:
    """Called for the share of now, in operations a second. For one thread, or where a lock is held."""

    def __init__(
        self,
        storage: Storage,
        layout: DatasetLayout,
        run: str,
        ops: int,
        parts: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`parts`: of this run, where it has no promise that says so."""
        self._storage, self._layout, self._run = storage, layout, run
        self._ops, self._parts, self._clock = ops, max(1, parts), clock
        self._read = float("-inf")
        self._share = 0.0

    def __call__(self) -> float:
        now = self._clock()
        if now - self._read >= EVERY:
            self._read = now
            self._share = self._reckoned()
        return self._share

    def _reckoned(self) -> float:
        seen = promises.read_all(self._storage, self._layout)
        own = promises.own_of(seen, self._layout, self._run)
        now = own.made if own else time.time()
        ops, parts = self._ops, own.promise.at_once or self._parts if own else self._parts
        for one in seen:
            if one is not own and one.promise.at_once > 0 and verdict(one, now) == LIVING:
                parts += one.promise.at_once
                ops = min(ops, one.promise.ops or ops)
        return ops / parts
