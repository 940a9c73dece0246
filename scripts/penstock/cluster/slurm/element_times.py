"""When elements (tasks of a job array) start, how long they may run, and which of them SLURM started again.
Also how long a controller waits between two queries of slurmctld.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.slurm.answers import PASSING
from penstock.cluster.slurm.facts import is_lost
from penstock.config.settings import AUTO_TIME
from penstock.core import estimates
from penstock.core.errors import FailedError, PreflightError, QueueFullError, TransientError
from penstock.core.run_steps import CheckResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.cluster.slurm.answers import SlurmElement
    from penstock.cluster.slurm.commands import SlurmCommands
    from penstock.cluster.slurm.facts import Facts, Partition
    from penstock.config.settings import JobOptions


# How long a controller waits between two queries of slurmctld.
#
# With `SlurmctldParameters=rl_enable` (23.02 and later), slurmctld makes clients that send too many requests
# back off. SLURM's own commands then sleep 1 s, 2 s, 3 s, ... and send again without a word, so only their
# run time shows it (src/common/slurm_protocol_api.c, `slurm_send_recv_controller_msg`). A command that gives
# up prints "Rate limit exceeded, please retry momentarily". A busy slurmctld answers just as late. So a slow
# answer, too, counts as a request to back off.
#
# | result of a query              | the next wait is at least                               |
# |--------------------------------|---------------------------------------------------------|
# | an answer within SLOW          | half of the last minimum; no minimum if that is < SLOW  |
# | a later answer                 | WAIT_FACTOR times the time that the answer took         |
# | "Rate limit exceeded"          | twice the last minimum, and at least FIRST_BACKOFF      |
#
# No wait is longer than LONGEST, so the end of elements is known at most a minute late. Meanwhile
# `array_runner` reads their receipts.

SLOW = 1.0  # seconds: the shortest sleep of a command that backs off; other commands take 50 ms
# With this factor slurmctld works for this controller at most 5 % of the time, if answers take up to 3 s.
WAIT_FACTOR = 20.0
FIRST_BACKOFF = 15.0  # seconds of the shortest wait after the first refusal
LONGEST = 60.0  # seconds of the longest wait


class QueryPace:
    """The pace of a controller's queries. `poll` is the usual time between two queries, in seconds
    (`ClusterConfig.poll`)."""

    def __init__(self, poll: float) -> None:
        self._poll = poll
        self._least = 0.0

    def answered(self, seconds: float) -> None:
        """Note that a query was answered after this many seconds."""
        if seconds >= SLOW:
            self._least = min(LONGEST, WAIT_FACTOR * seconds)
        else:
            self._least = self._least / 2 if self._least >= 2 * SLOW else 0.0

    def refused(self) -> None:
        """Note that SLURM refused a query, since there were too many."""
        self._least = min(LONGEST, max(FIRST_BACKOFF, 2 * self._least))

    def interval(self, waited: float) -> float:
        """Return the seconds until the next query, `waited` seconds after the last submission or change. It
        is 1 s at first, then `poll`, up to a minute after an hour, or the minimum of the module's table."""
        usual = min(1.0 + waited / 10.0, max(self._poll, min(LONGEST, waited / 60.0)))
        return max(usual, self._least)


# The longest time that an element may ask for.
#
# SLURM refuses a job beyond this limit only if the site wants that (EnforcePartLimits, a QOS's DenyOnLimit).
# By default the job waits in the queue for ever (PartitionTimeLimit, QOSMaxWallDurationPerJobLimit), although
# `sbatch --test-only` predicts a start.


class TimeLimit(NamedTuple):
    """The longest time that a job may ask for."""

    seconds: int
    by: str  # the setting that limits it, for people: `MaxWall of the QOS bulk`; "" if no limit is visible
    shown: bool = True  # False if the site hides partitions (PrivateData), so a lower limit may exist


def longest(slurm: SlurmCommands, options: JobOptions, facts: Facts, user: str) -> TimeLimit | None:
    """Return the partitions' MaxTime, or MaxWall if that is less; None if no limit is known. MaxWall counts
    if accounting enforces limits. Raises TransientError if slurmctld or slurmdbd does not answer."""
    asked = partitions(slurm.partitions(), options)
    wall, lifted = None, False
    if facts.enforces_limits:
        with contextlib.suppress(FailedError, PreflightError):
            wall, lifted = _wall(slurm, options, asked, facts.cluster, user)
    limits = [limit for limit in (wall, None if lifted else of_partitions(asked)) if limit]
    shown = [limit for limit in limits if limit.shown]
    return min(shown)._replace(shown=len(shown) == len(limits)) if shown else min(limits, default=None)


def _wall(
    slurm: SlurmCommands, options: JobOptions, asked: Sequence[Partition], cluster: str, user: str
) -> tuple[TimeLimit | None, bool]:
    """Return MaxWall, and whether the job's QOS lifts MaxTime (PartitionTimeLimit). MaxWall is that of the
    partition's QOS, else the job's QOS (which comes first if it has OverPartQOS), else the association."""
    mine = slurm.association(cluster, user, options)
    of_job = slurm.qos(options.qos or mine.default_qos or "normal")
    # A job with several partitions runs in any of them, so the QOS of none is sure to apply.
    alone = asked[0].qos if len(asked) == 1 else ""
    of_partition = slurm.qos(alone) if alone else None
    flags = of_job.flags if of_job else frozenset()
    ordered = [of_job, of_partition] if "OverPartQOS" in flags else [of_partition, of_job]
    walls = [
        TimeLimit(qos.max_wall, f"MaxWall of the QOS {qos.name}") for qos in ordered if qos and qos.max_wall
    ]
    if mine.max_wall:
        walls.append(TimeLimit(mine.max_wall, f"MaxWall of {user} in the account {mine.account}"))
    return next(iter(walls), None), "PartitionTimeLimit" in flags


def partitions(every: Sequence[Partition], options: JobOptions) -> list[Partition]:
    """Return the partitions that a job with these options names, or the default partition."""
    named = set(options.partition.split(",")) if options.partition else set()
    return [partition for partition in every if (partition.name in named if named else partition.default)]


def of_partitions(asked: Sequence[Partition]) -> TimeLimit | None:
    """Return the longest limit of these partitions, since the job waits for one that lets it run; None if any
    of them has no limit."""
    times = {partition.max_time or 0.0: partition.name for partition in asked}
    if not times:
        return TimeLimit(0, "", shown=False)
    if 0.0 in times:
        return None
    return TimeLimit(int(max(times)), f"MaxTime of the partition {times[max(times)]}")


def judged(options: JobOptions, limit: TimeLimit | None) -> list[CheckResult]:
    """Return a stop if `cluster.time` is above the limit; [] otherwise."""
    if limit is None or not limit.by or not options.time or options.time <= limit.seconds:
        return []
    return [
        CheckResult(
            "cluster.time",
            f"{span(options.time)} is more than such jobs may take: they would wait for ever",
            "stop",
            f"at most {span(limit.seconds)}: {limit.by}",
            f"set cluster.time to {limit.seconds}s or less (an element goes on where it stopped), or choose "
            "another partition or QOS",
        )
    ]


def span(seconds: int) -> str:
    """Write a time as `4 h`, `1 h 30 min`, `20 min`: whole minutes, rounded up, as SLURM counts."""
    hours, minutes = divmod(-(-seconds // 60), 60)
    return " ".join([f"{hours} h"] * bool(hours) + [f"{minutes} min"] * bool(minutes or not hours))


# Asks SLURM when an element would start, and whether it would start sooner with less time.
#
# `sbatch --test-only` predicts the start from running jobs and reservations. It ignores jobs that wait in the
# queue, and the number of elements. So the report says "not before".

LATE = 15 * 60.0  # seconds from now after which a start counts as late


def results(slurm: SlurmCommands, options: JobOptions, longest: float) -> list[CheckResult]:
    """Forecast the start of elements with these options. `longest`: the cluster's longest time limit, in
    seconds; 0: none. Raises as `SlurmCommands`."""
    seconds = estimates.asked_for((), 0, 1, longest) if options.time == AUTO_TIME else options.time
    try:
        return judged_forecast(
            lambda asked: slurm.trial(replace(options, time=asked)).start, seconds, time.time()
        )
    except QueueFullError:
        return []  # SLURM judges no further job of this account now, as `site.check` has reported


def judged_forecast(
    start: Callable[[int | None], float], seconds: int | None, now: float
) -> list[CheckResult]:
    """Judge the start. `start` returns when an element with a time limit of so many seconds would start; 0 if
    SLURM does not say. `seconds` is the elements' time limit; None for the partition's default.

    | the start      | `seconds` | asked again for            | verdict                               |
    |----------------|-----------|----------------------------|---------------------------------------|
    | is not known   | any       | nothing                    | none                                  |
    | is within LATE | any       | nothing                    | ok: now                               |
    | is late        | None      | nothing                    | note                                  |
    | is late        | given     | half and a quarter of it   | note; advice if one starts sooner     |
    """
    first = start(seconds)
    if not first:
        return []
    if first <= now + LATE:
        return [CheckResult("start", "now, but for jobs that are ahead in the queue")]
    shorter = [limit for limit in (seconds // 120 * 60, seconds // 240 * 60) if limit] if seconds else []
    starts = {limit: begins for limit in shorter if (begins := start(limit))}
    sooner = next((limit for limit, begins in starts.items() if begins <= first - LATE), None)
    texts = [f"{span(limit)}: {_moment(begins, now)}" for limit, begins in starts.items()]
    whole = f"{span(seconds)}: " if seconds else ""
    return [
        CheckResult(
            "start",
            f"{whole}not before {_moment(first, now)}"
            + "".join(f"; {text}" for text in texts)
            + " (jobs that are ahead in the queue are not counted)",
            "note",
            "",
            ""
            if sooner is None
            else f"cluster.time: {sooner // 60}min starts sooner, and an element goes on where it stopped",
        )
    ]


def _moment(when: float, now: float) -> str:
    return "now" if when <= now + LATE else time.strftime("%a %Y-%m-%d %H:%M", time.localtime(when))


class _Last(NamedTuple):
    restarts: int
    node: str
    word: str  # PREEMPTED or NODE_FAIL, if a query saw the element in that state


class Requeue(NamedTuple):
    """Why an element was started again."""

    why: str  # the reason, such as `preempted on n2`
    node: str  # the node on which it ran before; "" if no query showed it
    lost: bool  # whether that node failed


class Requeues:
    """Remembers restarts and nodes of elements between two queries."""

    def __init__(self, slurm: SlurmCommands) -> None:
        self._slurm = slurm
        self._last: dict[tuple[str, int], _Last] = {}

    def new(self, array: str, elements: Mapping[int, SlurmElement]) -> dict[int, Requeue]:
        """Return this array's elements that were requeued since the last call, by number. SLURM's errors are
        ignored."""
        again: dict[int, _Last] = {}
        for index, element in elements.items():
            key = (array, index)
            old = self._last.get(key)
            node = element.status.node or (old.node if old else "")
            word = element.word if element.word in PASSING else ""
            if old is not None and element.status.restarts > old.restarts:
                again[index] = old
            elif old is not None and element.word == "PENDING":
                word = old.word
            self._last[key] = _Last(element.status.restarts, node, word)
        if not again:
            return {}
        down = self._down(sorted({old.node for old in again.values() if old.node}))
        return {index: _cause(old, down) for index, old in again.items()}

    def _down(self, nodes: Sequence[str]) -> list[str]:
        """Return the nodes that do not answer now; [] if SLURM itself does not answer."""
        with contextlib.suppress(TransientError, FailedError, PreflightError):
            states = self._slurm.node_states(nodes)
            return [node for node, state in states.items() if is_lost(state)]
        return []


def _cause(old: _Last, down: Sequence[str]) -> Requeue:
    if old.word == "PREEMPTED":
        return Requeue(f"preempted on {old.node}", old.node, lost=False)
    if old.node in down or old.word in ("NODE_FAIL", "BOOT_FAIL"):
        return Requeue(f"lost with node {old.node}", old.node, lost=True)
    why = f"taken off {old.node or 'its node'} (preempted, or requeued by hand)"
    return Requeue(why, old.node, lost=False)
