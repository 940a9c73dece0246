"""How many elements of a step run at once: as the configuration says, or as a person said last
(`penstock limit DATASET --nodes N`), over all arrays of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.step_table import BY_NAME
from penstock.dataset import throttle_mark
from penstock.jobs.array_watch import patiently

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.documents.marks import Throttle
    from penstock.core.layout import RunLayout
    from penstock.dataset.context import Context
    from penstock.jobs.array_watch import Watch, WatchedArray


def slots(context: Context, run: RunLayout, step: str) -> int:
    """How many elements of the step may run at once now."""
    return _most(throttle_mark.read(run), step, context.cluster.slots(step))


def slots_of(watch: Watch) -> int:
    """The same, as the watch read it last: `obey` reads it anew."""
    return _most(watch.throttled, watch.step, watch.context.cluster.slots(watch.step))


def _most(said: Throttle, step: str, configured: int) -> int:
    """
    | said | step     | elements at once                |
    |------|----------|---------------------------------|
    | none | any      | as configured                   |
    | N    | audit    | N, and no more than configured  |
    | N    | another  | N                               |
    """
    if not said.at_once:
        return configured
    return min(said.at_once, configured) if BY_NAME[step].shares_rate else said.at_once


def obey(watch: Watch) -> None:
    """Read what a person said last. Where that changed, the arrays that live get their shares of it."""
    said, before = throttle_mark.read(watch.run), slots_of(watch)
    if said == watch.throttled:
        return
    watch.throttled = said
    most = slots_of(watch)
    watch.note(f"at most {human.counted(most, 'element')} at once from now on, {throttle_mark.by_whom(said)}")
    if most > before:
        watch.widen(most)
    share_out(watch)


def share_out(watch: Watch, *, again: bool = False) -> None:
    """Tell the cluster how many elements of each array that has waiting ones may run at once, so that all of
    the step together keep to its slots. `again`: also what did not change."""
    arrays = [live for live in watch.live if live.pending]
    rest = slots_of(watch) - sum(live.used for live in watch.live if not live.pending)
    alive = [live.alive for live in arrays]
    then = shares(alive, [live.alive - live.pending for live in arrays], rest)
    for live, at_once in zip(arrays, then, strict=True):
        # Above the number of those that live, one number is as good as another.
        if again or (at_once != live.at_once and min(at_once, live.at_once) < live.alive):
            throttle(watch, live, at_once)


def throttle(watch: Watch, live: WatchedArray, at_once: int) -> None:
    """Let so many elements of this array run at once, durably."""
    # Noted before the call: where this controller dies in between, the next one knows the number.
    watch.book.throttled(live.submission.name, at_once)
    patiently(watch, lambda: watch.context.cluster.throttle(live.array, at_once))
    live.at_once = at_once


def shares(alive: Sequence[int], running: Sequence[int], most: int) -> list[int]:
    """How many elements of each array may run at once, so that all together are at most so many. `alive`: how
    many of each wait or run; `running`: how many run. Where there are too few slots for those that run, the
    array with the most of them is lowered; where there are more, earlier arrays come first.

    | alive    | running  | most | then     | why                                                     |
    |----------|----------|------|----------|---------------------------------------------------------|
    | 100      | 4        | 2    | 2        | nothing is stopped: two that end have no successor      |
    | 100      | 4        | 8    | 8        |                                                         |
    | 5        | 4        | 8    | 8        | what is left over does no harm                          |
    | 100, 1   | 3, 0     | 8    | 7, 1     | each array gets one                                     |
    | 2, 100   | 1, 3     | 8    | 2, 6     | the first has no more that could run                    |
    | 100, 100 | 3, 5     | 8    | 3, 5     | one raised before the other's have ended were too many  |
    | 9, 9, 9  | 0, 0, 0  | 1    | 1, 1, 1  | no array can be stopped: to SLURM 0 means any number    |
    """
    at_once = [max(1, number) for number in running]
    while sum(at_once) > most and max(at_once, default=1) > 1:
        at_once[at_once.index(max(at_once))] -= 1
    for place, number in enumerate(alive):
        at_once[place] += max(0, min(number - at_once[place], most - sum(at_once)))
    if at_once:
        at_once[-1] += max(0, most - sum(at_once))
    return at_once
