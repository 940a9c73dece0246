"""Tasks of an array's controller besides watching: it limits how many workers run at once, clarifies
submissions with an unknown outcome, and finds local elements that may still write. The controller ends if its
own job keeps its elements from starting.
"""

from __future__ import annotations

import contextlib
import os
import time
from functools import partial
from typing import TYPE_CHECKING

from penstock.cluster.port import State
from penstock.core import human, run_steps
from penstock.core.errors import (
    FailedError,
    InterruptedRunError,
    PenstockError,
    PreflightError,
    TransientError,
)
from penstock.core.estimates import CLOCKS
from penstock.core.run_steps import BY_NAME, Started
from penstock.dataset import holder as holders
from penstock.dataset import submitted_arrays
from penstock.fs import small_files
from penstock.host import kernel_facts, waits
from penstock.jobs.array_watch import patiently

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.cluster.port import ArraySpec
    from penstock.core.dataset_documents import Throttle
    from penstock.core.element_documents import ArrayLine
    from penstock.core.layout import DatasetLayout, RunLayout
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run
    from penstock.jobs.array_watch import Watch, WatchedArray


# Limit how many workers of a step run at once over all its arrays.
#
# The limit is `cluster.max_elements`, or the number set by `penstock limit DATASET --nodes N`
# (`dataset.submitted_arrays`). A change is written to `arrays.jsonl` first, then passed to the scheduler
# (SLURM's ArrayTaskThrottle). No worker stops amid a shard: surplus workers, those of the highest numbers,
# end before their next shard (`leaving`). For an unresponsive scheduler, these functions wait without a time
# limit.


def read_slots(context: Context, run: RunLayout, step: str) -> int:
    """Return how many elements of the step may run at once, according to the present mark of `limit`."""
    return _slots(submitted_arrays.read_throttle(run), step, context.cluster.slots(step))


def started_event(context: Context, run: Run, step: str, files: int) -> Started:
    shards, at_once = len(run.indices), read_slots(context, run.folder, step)
    return Started(run.dataset, step, files, run.plan.bytes, shards, at_once)


def watched_slots(watch: Watch) -> int:
    """Return how many elements may run at once, according to the mark that `obey` read last."""
    return _slots(watch.throttled, watch.step, watch.context.cluster.slots(watch.step))


def obey(watch: Watch) -> None:
    """Read the mark; report a changed number, and divide it among the live arrays. Calls `watch.widen` before
    the number rises."""
    mark, before = submitted_arrays.read_throttle(watch.run), watched_slots(watch)
    if mark == watch.throttled:
        return
    watch.throttled = mark
    slots = watched_slots(watch)
    watch.note(
        f"at most {human.counted(slots, 'element')} at once from now on, "
        f"{submitted_arrays.throttled_by(mark)}"
    )
    if slots > before:
        watch.widen(slots)
    let_go(watch)
    share_out(watch)


def let_go(watch: Watch) -> None:
    """Make surplus running workers, those of the highest numbers, end before their next shard."""
    running = sorted(n for live in watch.live for n, s in live.statuses.items() if s.state is State.RUNNING)
    path = watch.run.leaving(watch.step)
    small_files.make_dirs(path.parent)
    small_files.write_json(path, running[watched_slots(watch) :])


def share_out(watch: Watch, *, again: bool = False) -> None:
    """Set the limit of each array with waiting elements, so that all arrays together keep to the slots.
    `again`: also set a limit that did not change."""
    arrays = [live for live in watch.live if live.pending]
    # Arrays without waiting elements keep the slots of their running elements.
    free = watched_slots(watch) - sum(live.used for live in watch.live if not live.pending)
    alive = [live.alive for live in arrays]
    limits = shares(alive, [live.alive - live.pending for live in arrays], free)
    for live, limit in zip(arrays, limits, strict=True):
        # A limit at or above the number of live elements has no effect.
        if again or (limit != live.at_once and min(limit, live.at_once) < live.alive):
            throttle(watch, live, limit)


def throttle(watch: Watch, live: WatchedArray, at_once: int) -> None:
    """Set how many elements of this array may run at once, in the book and at the scheduler."""
    # Write to the book first: if this controller dies in between, the next controller sets the number.
    watch.book.throttled(live.submission.name, at_once)
    patiently(watch, lambda: watch.context.cluster.throttle(live.array, at_once))
    live.at_once = at_once


def shares(alive: Sequence[int], running: Sequence[int], most: int) -> list[int]:
    """Return the limit of each array, at least 1, so that at most `most` elements run at once in all.

    `alive` counts each array's waiting and running elements, `running` only the running elements. While the
    limits add up to more than `most`, the highest limit is lowered by one. Free slots go to the first array
    that can use them; the last array gets the rest.

    | alive    | running  | most | limits   | why                                                     |
    |----------|----------|------|----------|---------------------------------------------------------|
    | 100      | 4        | 2    | 2        | no element is stopped: the next starts when three ended |
    | 100      | 4        | 8    | 8        |                                                         |
    | 5        | 4        | 8    | 8        | a limit above the live elements has no effect           |
    | 100, 1   | 3, 0     | 8    | 7, 1     | each array gets at least one slot                       |
    | 2, 100   | 1, 3     | 8    | 2, 6     | the first has only two live elements                    |
    | 100, 100 | 3, 5     | 8    | 3, 5     | no slot is free: 4, 4 would let nine run for a while    |
    | 9, 9, 9  | 0, 0, 0  | 1    | 1, 1, 1  | no array can be stopped: SLURM takes 0 as no limit      |
    """
    limits = [max(1, number) for number in running]
    while sum(limits) > most and max(limits, default=1) > 1:
        limits[limits.index(max(limits))] -= 1
    for place, number in enumerate(alive):
        limits[place] += max(0, min(number - limits[place], most - sum(limits)))
    if limits:
        limits[-1] += max(0, most - sum(limits))
    return limits


def _slots(mark: Throttle, step: str, configured: int) -> int:
    """Return how many elements of the step may run at once, according to the mark of `penstock limit`.
    | mark | step                             | elements at once               |
    |------|----------------------------------|--------------------------------|
    | none | any                              | as configured                  |
    | N    | audit, whose elements have fixed | N, but no more than configured |
    |      | shares of a rate (`--limit`)     |                                |
    | N    | any other                        | N                              |
    """
    if not mark.at_once:
        return configured
    return min(mark.at_once, configured) if BY_NAME[step].shares_rate else mark.at_once


ASKED = 60.0  # seconds for which all elements must wait before each query for a deadlock
# Seconds from the first report of a deadlock to the controller's end. Other jobs may end meanwhile.
BOUND = 300.0
HINT = (
    "run `penstock run` outside a job that takes a node of its elements (on a login node), or give the "
    "controller another partition or QOS: cluster.steps.submit"
)


class KeptOut:
    """The deadlock check for one step's arrays: whether this process's own job keeps them from starting."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._asked: float | None = None
        self._since: float | None = None

    def check(self) -> None:
        """Raise PreflightError once the cluster has reported a deadlock for BOUND seconds.

        | this process is a job | its elements     | the cluster reports a deadlock | then                   |
        |-----------------------|------------------|--------------------------------|------------------------|
        | no                    | any              | not queried                    | nothing                |
        | yes                   | one runs or none | not queried                    | the times start again  |
        | yes                   | all wait         | no, or it does not answer      | the times start again  |
        | yes                   | all wait         | yes                            | a note, then the error |
        """
        now = time.monotonic()
        if not self._all_wait():
            self._asked = self._since = None
            return
        if self._asked is None:
            self._asked = now
        if now - self._asked < ASKED:
            return
        self._asked = now
        watch = self._watch
        try:
            why = watch.context.cluster.kept_out([watch.step], [live.array for live in watch.live])
        except (TransientError, FailedError):
            why = ""
        if not why:
            self._since = None
        elif self._since is None:
            self._since = now
            watch.note(f"elements cannot start: {why}; {human.duration(BOUND)} on, this controller ends")
        elif now - self._since >= BOUND:
            raise PreflightError(
                "the controller's own job keeps its elements from starting",
                where=watch.dataset,
                why=why,
                hint=HINT,
            )

    def _all_wait(self) -> bool:
        if not kernel_facts.current_job().proven or self._watch.asked_in_vain is not None:
            return False
        left = [s for live in self._watch.live for s in live.statuses.values() if not s.state.ended]
        return bool(left) and all(s.state is State.PENDING and not s.held for s in left)


# Whether elements of a local array (processes beside their controller) may still write.
#
# The kernel ends these elements when their controller dies. They survive if the controller is only frozen (a
# suspended process, a hanging node).


def may_write(context: Context, layout: DatasetLayout, run: RunLayout, submission: ArrayLine) -> str:
    """Return a phrase naming the controller if a local array's elements may still write, or else "".

    May wait for `waits.PATIENCE` seconds.

    | the controller (`holder.lives`)    | progress files of its elements              | may write |
    |------------------------------------|---------------------------------------------|-----------|
    | is not known                       | any                                         | no        |
    | is this process, or is dead        | any                                         | no        |
    | is alive                           | any                                         | yes       |
    | is on a host not visible from here | none, or unchanged for `waits.PATIENCE` | no        |
    | is on a host not visible from here | changed meanwhile                           | yes       |
    """
    by = holders.from_json(submission.by)
    if by is None or (holders.is_here(by) and by.pid == os.getpid()):
        return ""
    lives = holders.lives(by)
    if lives is None:
        lives = _moves(context, layout, run, submission)
    return by.describe() if lives else ""


def _moves(context: Context, layout: DatasetLayout, run: RunLayout, submission: ArrayLine) -> bool:
    """Return whether a progress file of the array changes within `waits.PATIENCE`, by this process's
    clock. Only a change counts, since other nodes' clocks set the files' times."""
    first = _progress(run, submission)
    if not first:
        return False
    patience = waits.PATIENCE
    by = holders.from_json(submission.by)
    who = by.describe() if by else "another run"
    text = f"waiting for elements of {who}: they count as ended when nothing moves for {patience:.0f} s"
    context.emit(run_steps.Noted(layout.dataset, submission.step, text))
    return not waits.stands_still(
        patience,
        waits.HEARTBEAT,
        context.stop.wait,
        lambda: _progress(run, submission) != first,
    )


def _progress(run: RunLayout, submission: ArrayLine) -> dict[int, int]:
    written = {}
    for index in submission.indices:
        try:
            written[index] = os.stat(run.progress(submission.step, index)).st_mtime_ns
        except OSError:
            continue
    return written


# Submissions with an unknown outcome: the cluster did not answer, or the controller was killed.
#
# The array may appear late: slurmctld carries out requests whose sender has gone. For the time that
# `Cluster.appears_within` states, nothing is submitted again, and no submission counts as never made. If a
# second array of the same elements appears even later, the watched array stays and the others are ended.


def once(watch: Watch, spec: ArraySpec) -> Callable[[], str]:
    """Return a function that submits the array and returns its id; repeat its call after a TransientError.

    The function submits again only when the last try's array can no longer appear. If the cluster refuses the
    array, the book records the array as ended, and the error is raised.

    | this try is | `find` returns | since the last try's end | then                                     |
    |-------------|----------------|--------------------------|------------------------------------------|
    | the first   | (not called)   |                          | submit: the name is new                  |
    | a later try | an array       | any time                 | return it; the oldest of several stays   |
    | a later try | none           | it may yet appear        | TransientError                           |
    | a later try | none           | longer                   | record the try, and submit again         |
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
            # An array that was submitted wrongly, and is ending, stays in the book for the next controller.
            with contextlib.suppress(TransientError):
                if not cluster.find(name):
                    watch.book.ended(name)
            raise

    return submitted


def array_of(watch: Watch, submission: ArrayLine) -> str:
    """Return the id of the array that a lost controller was about to submit; "" if there never was an array.

    Raises TransientError while the array may yet appear. "Within" is `Cluster.appears_within`.

    | `find` returns | recorded in the book, by this     | this process has looked | then           |
    |                | machine's clock                   | for it                  |                |
    |----------------|-----------------------------------|-------------------------|----------------|
    | an array       | any time ago                      | for any time            | that array     |
    | none           | longer ago than "within", plus    | for any time            | ""             |
    |                | CLOCKS if on another machine      |                         |                |
    | none           | more recently                     | for "within"            | ""             |
    | none           | more recently                     | for less than "within"  | TransientError |
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
    """End all of these arrays of one name except `keep`, or the oldest if "". Return the array that stays."""
    keep = keep or arrays[0]
    for array in arrays:
        if array != keep and array not in watch.superfluous:
            watch.context.cluster.cancel(array)
            watch.superfluous.add(array)
            text = (
                f"array {array} has the elements of array {keep}: the cluster carried out a submission late "
                f"whose answer was lost ({name}); {array} is cancelled"
            )
            watch.context.emit(run_steps.Warned(watch.dataset, watch.step, text))
    return keep


def end_doubles(watch: Watch) -> None:
    """End further arrays of the same elements, as long as an unanswered submission may produce them."""
    for live in [array for array in watch.live if array.submission.name in watch.doubted]:
        patiently(watch, partial(_end_doubles, watch, live))


def _end_doubles(watch: Watch, live: WatchedArray) -> None:
    cluster, name = watch.context.cluster, live.submission.name
    one_of(watch, name, cluster.find(name), keep=live.array)
    if time.monotonic() - watch.doubted[name] > cluster.appears_within(ended=False):
        del watch.doubted[name]
