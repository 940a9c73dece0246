"""The longest time that an element may ask for.

SLURM refuses a job beyond it only where the site says so (EnforcePartLimits, a QOS's DenyOnLimit). By default
the job waits in the queue for ever (PartitionTimeLimit, QOSMaxWallDurationPerJobLimit), and `sbatch
--test-only` still names a start.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.errors import FailedError, PreflightError
from penstock.core.events import CheckResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.slurm.command_line import SlurmCommands
    from penstock.cluster.slurm.facts import Facts, Partition
    from penstock.config.settings import JobOptions


class TimeLimit(NamedTuple):
    """The longest time that a job may ask for."""

    seconds: int
    by: str  # what sets it, for people: `MaxWall of the QOS bulk`; "": no limit is visible
    shown: bool = True  # False: the site hides these partitions (PrivateData), so a lower limit may exist


def longest(slurm: SlurmCommands, options: JobOptions, facts: Facts, user: str) -> TimeLimit | None:
    """Return the partitions' MaxTime, or MaxWall if less; None: no known limit. MaxWall counts where
    accounting enforces limits. Raises TransientError where slurmctld or slurmdbd does not answer."""
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
    """Return MaxWall, and whether the job's QOS lifts MaxTime (PartitionTimeLimit). MaxWall of the
    partition's QOS, else of the job's (this first with OverPartQOS), else of the user's association."""
    mine = slurm.association(cluster, user, options)
    of_job = slurm.qos(options.qos or mine.default_qos or "normal")
    # With several partitions the job runs in any: no single limit holds.
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
    """Return the partitions that such a job names, or the default."""
    named = set(options.partition.split(",")) if options.partition else set()
    return [partition for partition in every if (partition.name in named if named else partition.default)]


def of_partitions(asked: Sequence[Partition]) -> TimeLimit | None:
    """Return the limit of these partitions; None where one has no limit. The longest counts: the job waits
    for a partition that lets it run."""
    times = {partition.max_time or 0.0: partition.name for partition in asked}
    if not times:
        return TimeLimit(0, "", shown=False)
    if 0.0 in times:
        return None
    return TimeLimit(int(max(times)), f"MaxTime of the partition {times[max(times)]}")


def judged(options: JobOptions, limit: TimeLimit | None) -> list[CheckResult]:
    """Stop where `cluster.time` is above the limit; [] otherwise."""
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
