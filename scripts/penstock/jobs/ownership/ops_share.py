"""How many metadata operations a second this process may make below a root, of what `target.ops` allows all.

Elements, repairs and steps that change many files ask an `OpsShare`; copy and repair call `begin` before an
array; status prints `holders_of`. The promises are files below the root, by which runs there know of one
another. This module reads them, touches their folder to read the file system's clock, and writes the number
of elements into this run's own.

Each run's promise (`promises`) says how many of its elements may run at once; 0 while none does; so
does a repair's. The budget is divided evenly among the accounts with living runs whose elements may run, so
that no account takes more than its share, however many elements its promises name. An element, and a step
that removes a tree, sets modes or puts repaired files in their places, takes its account's share divided by
the elements of this account's living runs, and its own. The smallest budget that one of this account's runs
names counts; what another account names is its own.

The promises are read again after EVERY seconds: a listing, and an open for each run. A run whose process
dies on this machine loses its share within that time; one that dies elsewhere within PATIENCE (120 s) more.
Until a run that just began was read by the others, for EVERY seconds, the sum would be beyond the budget: so
a step posts its number of elements, then reads, and where other living runs have shares it waits for SEEN
seconds before its first operation (`begin` before an array, `OpsShare` with `wait` in a step's own process).
Of two that begin at once each has posted before it reads, so at least one waits.

Limits: what plan removes before it has posted its promise is not counted by others. A run that could not
write a promise takes its share and is not counted by others. The shares of elements that wait in a queue are
not used. Where folders are listed with a delay (NFS), the sum can be beyond the budget for that time. Audits
and verify only read, and have no share.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.documents.promise import REMOVAL
from penstock.core.text import printable
from penstock.fs import clock
from penstock.fs.owners import user_name
from penstock.jobs.ownership import promises
from penstock.jobs.ownership.promise_judgement import LIVING, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.core.documents.promise import Promise
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.jobs.ownership.promise_judgement import PostedPromise

EVERY = 5.0
"""Seconds between two readings of the promises."""
NAMED = 20
"""Promises that `holders_of` names, each in LONGEST characters at most: other accounts wrote what they
say."""
LONGEST = 300
SEEN = EVERY + 1.0
"""Seconds after which all living runs have read a promise: they look at the clock several times a second."""


def begin(context: Context, layout: DatasetLayout, run: str, elements: int) -> None:
    """Post that so many elements of the run (or repair) may be at work at once. Where these are more than
    before, there is a budget and other runs have shares of it, this waits for SEEN seconds: on return they
    have read it. Raises InterruptedRunError."""
    posted = promises.read_all(layout)
    own = promises.own_of(posted, layout, run)
    promises.at_once(context, layout, run, elements)
    if context.ops and own and elements > own.promise.at_once:
        posted = promises.read_all(layout)
        own = promises.own_of(posted, layout, run)
        if any(_others(layout, posted, own)):
            context.stop.wait(SEEN)


def _others(
    layout: DatasetLayout, posted: Iterable[PostedPromise], own: PostedPromise | None
) -> Iterator[Promise]:
    """Those of the living that have shares."""
    now = own.made if own else clock.now(layout.promises)
    for one in posted:
        if one is not own and one.promise.at_once > 0 and verdict(one, now) == LIVING:
            yield one.promise


def holders_of(layout: DatasetLayout) -> list[str]:
    """Who has shares of the budget now, a phrase for each promise: account, elements, dataset, host, since
    when. Of more than NAMED the rest is counted. [] where the promises cannot be read."""
    seen = promises.read_all(layout)
    now = clock.now(layout.promises)
    living = [one for one in seen if one.promise.at_once > 0 and verdict(one, now) == LIVING]
    words = [_words(one) for one in living[:NAMED]]
    return [*words, f"and {len(living) - NAMED} more"] if len(living) > NAMED else words


def _words(posted: PostedPromise) -> str:
    by = posted.by
    who = user_name(posted.promise.uid) or f"uid {posted.promise.uid}"
    where = f" on {by.host} since {by.since}" if by else ""
    work = "a removal" if posted.promise.run == REMOVAL else human.counted(posted.promise.at_once, "element")
    return printable(f"{who}: {work} at once, dataset {posted.promise.dataset}{where}"[:LONGEST])


class OpsShare:
    """A function that gives this process's share now, in operations a second. It reads the promises at most
    once in EVERY seconds. For one thread, or for callers that share a lock."""

    def __init__(
        self,
        layout: DatasetLayout,
        run: str,
        ops: int,
        elements: int,
        *,
        wait: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`run`: the id of the run or repair; `ops`: the budget of all, in operations a second, as this run
        is configured; `elements`: of this run, where it has no promise that says so. `wait` is called once,
        with SEEN, before the first share where others have shares as well; None: they have read this run's
        promise already (`begin`). `clock`: seconds, monotonic."""
        self._layout, self._run = layout, run
        self._ops, self._elements, self._clock = ops, max(1, elements), clock
        self._wait, self._read = wait, float("-inf")
        self._share = 0.0

    def __call__(self) -> float:
        now = self._clock()
        if now - self._read >= EVERY:
            self._read = now
            self._share = self._reckoned()
        return self._share

    def _reckoned(self) -> float:
        share, new = self._counted()
        if new and self._wait is not None:
            self._wait(SEEN)
            share, _ = self._counted()
        self._wait = None
        return share

    def _counted(self) -> tuple[float, bool]:
        """The share, and whether this run's is one beside others'."""
        posted = promises.read_all(self._layout)
        own = promises.own_of(posted, self._layout, self._run)
        ops, elements = self._ops, own.promise.at_once or self._elements if own else self._elements
        others = list(_others(self._layout, posted, own))
        for promise in others:
            if promise.uid == os.geteuid():
                elements += promise.at_once
                ops = min(ops, promise.ops or ops)
        accounts = len({os.geteuid(), *(one.uid for one in others)})
        return ops / accounts / elements, own is not None and bool(others)
