"""Submissions whose outcome nobody knows: the cluster did not answer, or the controller was killed.

The array may appear late: slurmctld carries out requests whose sender has gone. So nothing is submitted
again, and no submission counts as never made, before the time in which it can appear is over
(`Cluster.appears_within`). What appears later all the same is a second array of the same elements: the one
that is watched stays, the others are ended.

`jobs.arrays.array_runner` calls it at each submission and when it finds those of earlier controllers. It
queries the cluster, submits, cancels arrays that are there twice, and writes the run's `arrays.jsonl` (the
"book").
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING

from penstock.core import events
from penstock.core.errors import InterruptedRunError, PenstockError, TransientError
from penstock.core.job_time import CLOCKS
from penstock.dataset import holder as holders
from penstock.jobs.arrays.array_watch import patiently

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.cluster.port import ArraySpec
    from penstock.core.documents.array_line import ArrayLine
    from penstock.jobs.arrays.array_watch import Watch, WatchedArray


def once(watch: Watch, spec: ArraySpec) -> Callable[[], str]:
    """A call that submits the array and returns its id, to be repeated after each TransientError: it submits
    again only once the array of the last try can appear no more. It notes a refusal as `ended`, and raises
    it.

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
            if found := cluster.find(name):
                return one_of(watch, name, found)
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
            # An array that was submitted, and is being ended since it is not as it was asked for, is left to
            # the next controller.
            with contextlib.suppress(TransientError):
                if not cluster.find(name):
                    watch.book.ended(name)
            raise

    return submitted


def array_of(watch: Watch, submission: ArrayLine) -> str:
    """The id of the array of which a controller that is gone noted no more than that it was about to submit
    it; "" where it was never submitted. Raises TransientError while it may yet appear.

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
    if there := cluster.find(name):
        watch.doubted[name] = now
        return one_of(watch, name, there)
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
    """The array that stays of several of one name: `keep`, or the oldest. The others are ended."""
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
    """End further arrays of the same elements, where a submission had no answer and may be carried out late:
    as long as such an array can appear."""
    for live in [one for one in watch.live if one.submission.name in watch.doubted]:
        patiently(watch, partial(_end_doubles, watch, live))


def _end_doubles(watch: Watch, live: WatchedArray) -> None:
    cluster, name = watch.context.cluster, live.submission.name
    one_of(watch, name, cluster.find(name), keep=live.array)
    if time.monotonic() - watch.doubted[name] > cluster.appears_within(ended=False):
        del watch.doubted[name]
