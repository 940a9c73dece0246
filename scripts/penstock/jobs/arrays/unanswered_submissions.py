"""Submissions with an unknown outcome: the cluster did not answer, or the controller was killed.

The array may appear late: slurmctld carries out requests whose sender has gone. Until that time is over
(`Cluster.appears_within`), nothing is submitted again, and no submission counts as never made. If a second
array of the same elements appears later all the same, the watched array stays and the others are ended.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING

from penstock.core import events
from penstock.core.errors import InterruptedRunError, PenstockError, TransientError
from penstock.core.estimates import CLOCKS
from penstock.dataset import holder as holders
from penstock.jobs.arrays.array_watch import patiently

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.cluster.port import ArraySpec
    from penstock.core.element_documents import ArrayLine
    from penstock.jobs.arrays.array_watch import Watch, WatchedArray


def once(watch: Watch, spec: ArraySpec) -> Callable[[], str]:
    """Return a call that submits the array and returns its id; repeat it after a TransientError.

    It submits again only once the last try's array can no longer appear. A refusal is noted as `ended` and
    raised.

    | this try is | `find` says | since the last try's end | then                                        |
    |-------------|-------------|--------------------------|---------------------------------------------|
    | the first   | not asked   |                          | it is submitted: its name is new            |
    | a later one | an array    | any                      | that one; the oldest of several stays       |
    | a later one | none        | it may yet appear        | TransientError                              |
    | a later one | none        | longer                   | it is noted and submitted again             |
    """
    cluster, name = watch.context.cluster, spec.name
    last = 0.0

    def submitted() -> str:
        nonlocal last
        if last:
            if arrays := cluster.find(name):
                return one_of(watch, name, arrays)
            if time.monotonic() - last < cluster.appears_within(ended=True):
                raise TransientError("nothing is known of a submission yet", where=name)
            watch.book.tried(name)
        try:
            return cluster.submit(spec)
        except (TransientError, InterruptedRunError):
            last = time.monotonic()
            watch.doubted[name] = last
            raise
        except PenstockError:
            # An array that was submitted wrongly, and is being ended, is left to the next controller.
            with contextlib.suppress(TransientError):
                if not cluster.find(name):
                    watch.book.ended(name)
            raise

    return submitted


def array_of(watch: Watch, submission: ArrayLine) -> str:
    """Return the id of the array that a lost controller was about to submit; "" if it never did.

    Raises TransientError while the array may yet appear.

    | `find` says | noted, by the clock of this machine | this process has looked | then           |
    |-------------|-------------------------------------|-------------------------|----------------|
    | an array    | any                                 | any                     | that one       |
    | none        | longer ago than it appears within,  | any                     | ""             |
    |             | on another machine and CLOCKS       |                         |                |
    | none        | later                               | for so long             | ""             |
    | none        | later                               | less                    | TransientError |
    """
    cluster, name = watch.context.cluster, submission.name
    now = time.monotonic()
    if arrays := cluster.find(name):
        watch.doubted[name] = now
        return one_of(watch, name, arrays)
    within = cluster.appears_within(ended=False)
    first = watch.unknown.setdefault(name, now)
    by = holders.from_json(submission.by)
    here = by is not None and holders.is_here(by)
    old = time.time() - submission.at > within + (0.0 if here else CLOCKS)
    if old or now - first >= within:
        return ""
    raise TransientError(
        f"an array of {submission.step} may yet appear, whose controller ended while it submitted it",
        where=name,
        why=f"{within:.0f} s after that it counts as never submitted",
    )


def one_of(watch: Watch, name: str, arrays: Sequence[str], keep: str = "") -> str:
    """Return the array that stays of several of one name, `keep` or the oldest; end the others."""
    keep = keep or arrays[0]
    for array in arrays:
        if array != keep and array not in watch.superfluous:
            watch.context.cluster.cancel(array)
            watch.superfluous.add(array)
            text = (
                f"array {array} has the elements of array {keep}: the cluster carried out a submission late "
                f"whose answer was lost ({name}); {array} is cancelled"
            )
            watch.context.emit(events.Warned(watch.dataset, watch.step, text))
    return keep


def end_doubles(watch: Watch) -> None:
    """End further arrays of the same elements, as long as an unanswered submission can produce one."""
    for live in [array for array in watch.live if array.submission.name in watch.doubted]:
        patiently(watch, partial(_end_doubles, watch, live))


def _end_doubles(watch: Watch, live: WatchedArray) -> None:
    cluster, name = watch.context.cluster, live.submission.name
    one_of(watch, name, cluster.find(name), keep=live.array)
    if time.monotonic() - watch.doubted[name] > cluster.appears_within(ended=False):
        del watch.doubted[name]
