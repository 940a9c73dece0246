"""Limit how many workers of a step run at once over all its arrays.

The limit is `cluster.max_elements`, or the number set by `penstock limit DATASET --nodes N`
(`dataset.orders`). A change goes into `arrays.jsonl` first, then to the scheduler (SLURM's
ArrayTaskThrottle). No worker stops amid a shard: surplus workers, those of the highest numbers, end before
their next one (`leaving`). Waits without a time limit for a silent scheduler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cluster.port import State
from penstock.core import human
from penstock.core.events import Started
from penstock.core.step_table import BY_NAME
from penstock.dataset import orders
from penstock.fs import small_files
from penstock.jobs.arrays.array_watch import patiently

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.dataset_documents import Throttle
    from penstock.core.layout import RunLayout
    from penstock.dataset.context import Context
    from penstock.dataset.run import Run
    from penstock.jobs.arrays.array_watch import Watch, WatchedArray


def read_slots(context: Context, run: RunLayout, step: str) -> int:
    """Return how many elements of the step may run at once, by the mark as it stands now."""
    return _slots(orders.read_throttle(run), step, context.cluster.slots(step))


def started_event(context: Context, run: Run, step: str, files: int) -> Started:
    shards, at_once = len(run.indices), read_slots(context, run.folder, step)
    return Started(run.dataset, step, files, run.plan.bytes, shards, at_once)


def watched_slots(watch: Watch) -> int:
    """Return how many elements may run at once by the mark that `obey` read last."""
    return _slots(watch.throttled, watch.step, watch.context.cluster.slots(watch.step))


def obey(watch: Watch) -> None:
    """Read the mark; report a change and share the new number out among the live arrays. `watch.widen` is
    called before the number rises."""
    mark, before = orders.read_throttle(watch.run), watched_slots(watch)
    if mark == watch.throttled:
        return
    watch.throttled = mark
    slots = watched_slots(watch)
    watch.note(f"at most {human.counted(slots, 'element')} at once from now on, {orders.throttled_by(mark)}")
    if slots > before:
        watch.widen(slots)
    let_go(watch)
    share_out(watch)


def let_go(watch: Watch) -> None:
    """Have surplus running workers, those of the highest numbers, end before their next shard."""
    running = sorted(n for live in watch.live for n, s in live.statuses.items() if s.state is State.RUNNING)
    path = watch.run.leaving(watch.step)
    small_files.make_dirs(path.parent)
    small_files.write_json(path, running[watched_slots(watch) :])


def share_out(watch: Watch, *, again: bool = False) -> None:
    """Set the limit of each array with waiting elements, so that all arrays together keep to the slots.
    `again`: also set a limit that did not change."""
    arrays = [live for live in watch.live if live.pending]
    # Arrays without waiting elements keep the slots of their running ones.
    free = watched_slots(watch) - sum(live.used for live in watch.live if not live.pending)
    alive = [live.alive for live in arrays]
    limits = shares(alive, [live.alive - live.pending for live in arrays], free)
    for live, limit in zip(arrays, limits, strict=True):
        # A limit at or above the number of live elements has no effect.
        if again or (limit != live.at_once and min(limit, live.at_once) < live.alive):
            throttle(watch, live, limit)


def throttle(watch: Watch, live: WatchedArray, at_once: int) -> None:
    """Set how many elements of this array may run at once, in the book and at the scheduler."""
    # In the book first: if this controller dies in between, the next one sets the number.
    watch.book.throttled(live.submission.name, at_once)
    patiently(watch, lambda: watch.context.cluster.throttle(live.array, at_once))
    live.at_once = at_once


def shares(alive: Sequence[int], running: Sequence[int], most: int) -> list[int]:
    """Return the limit of each array, at least 1, so that at most `most` elements run at once in all.

    `alive` counts each array's waiting and running elements, `running` those that run. Where more run than
    `most`, the array with the highest limit is lowered, again and again. Free slots go to the first array
    that can use them; the last array gets the rest.

    | alive    | running  | most | limits   | why                                                     |
    |----------|----------|------|----------|---------------------------------------------------------|
    | 100      | 4        | 2    | 2        | no element is stopped: the next starts when three ended |
    | 100      | 4        | 8    | 8        |                                                         |
    | 5        | 4        | 8    | 8        | a limit above the live elements has no effect           |
    | 100, 1   | 3, 0     | 8    | 7, 1     | each array gets one                                     |
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
    """
    | mark | step                             | elements at once               |
    |------|----------------------------------|--------------------------------|
    | none | any                              | as configured                  |
    | N    | audit, whose elements have fixed | N, and no more than configured |
    |      | shares of a rate (`--limit`)     |                                |
    | N    | another                          | N                              |
    """
    if not mark.at_once:
        return configured
    return min(mark.at_once, configured) if BY_NAME[step].shares_rate else mark.at_once
