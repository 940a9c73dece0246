"""How many elements the site lets one account have, and how long each may take: by slurm.conf, partition,
QOS and account.

SLURM refuses a job beyond such a limit only where its configuration says so (EnforcePartLimits, the QOS's
DenyOnLimit). By default the job waits in the queue for ever, with a reason such as
QOSMaxWallDurationPerJobLimit.

Each limit is taken from where SLURM takes it (its page "Resource Limits"):

| order | where the limit is set                                                                     |
|-------|--------------------------------------------------------------------------------------------|
| 1     | the partition's QOS                                                                        |
| 2     | the job's QOS; with the flag OverPartQOS it goes before the partition's                    |
| 3     | Max limits: the user's association; sacctmgr shows with it what it inherits of its account |
| 3     | Grp limits: the user's association, and each account above it: the smallest                |

What the first place says holds, also where a later one says less. The partition's own MaxTime holds beside
them, but for a QOS with the flag PartitionTimeLimit. A limit that is not set is empty, and is none. Limits of
QOS and associations count only where AccountingStorageEnforce has `limits` or `safe`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.slurm.port import Bound, Limits
from penstock.cluster.slurm.times import written
from penstock.core.checks import CheckResult
from penstock.errors import FailedError, PreflightError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.cluster.slurm.port import Association, Facts, Partition, Qos, Slurm
    from penstock.config.settings import JobOptions

BESIDE = 1
"""Places in the queue that are left to the controller's own job."""
OF_ALL = "MaxJobCount of slurm.conf, for all users"
_SUBMITTED = (("MaxSubmitPU", "MaxSubmit"), ("MaxSubmitPA", ""), ("GrpSubmit", "GrpSubmit"))
_RUNNING = (("MaxJobsPU", "MaxJobs"), ("MaxJobsPA", ""), ("GrpJobs", "GrpJobs"))
_WALL = (("MaxWall", "MaxWall"),)
"""The QOS's name of a limit, and the association's."""
_DEPTH = 16
"""Accounts above an account that are read, at most."""


class Places(NamedTuple):
    """Where the limits of a job are set."""

    partitions: Sequence[Partition] = ()
    """Those that the job names, or the default one."""
    of_partition: Qos | None = None
    """The partition's QOS."""
    of_job: Qos | None = None
    chain: Sequence[Association] = ()
    """The user's association, then the accounts above it."""
    complete: bool = True
    """False where slurmdbd did not answer: it may say more another time."""


def places(slurm: Slurm, options: JobOptions, known: Facts, user: str) -> Places:
    """Where the limits of such a job of this user are set. What accounting does not answer is left out."""
    named = set(options.partition.split(",")) if options.partition else set()
    partitions = [one for one in slurm.partitions() if (one.name in named if named else one.default)]
    found = Places(partitions)
    if not known.enforces_limits:
        return found
    try:
        chain = _chain(slurm, options, known.cluster, user)
        found = found._replace(chain=chain)
        qos = options.qos or (chain[0].default_qos if chain else "") or "normal"
        found = found._replace(of_job=slurm.qos(qos))
        # Of several partitions the job runs in any: the limits of one alone cannot be told.
        if len(partitions) == 1 and partitions[0].qos:
            found = found._replace(of_partition=slurm.qos(partitions[0].qos))
    except TransientError:
        return found._replace(complete=False)
    except (FailedError, PreflightError):
        return found
    return found


def _chain(slurm: Slurm, options: JobOptions, cluster: str, user: str) -> list[Association]:
    account = options.account or slurm.default_account(user)
    chain: list[Association] = []
    for _ in range(_DEPTH):
        rows = slurm.associations(cluster, account) if account else []
        if not chain:
            mine = [one for one in rows if one.user == user and one.partition in ("", options.partition)]
            chain += sorted(mine, key=lambda one: one.partition == "")[:1]
        own = next((one for one in rows if not one.user), None)
        if own is None:
            return chain
        chain.append(own)
        account = own.parent
    return chain


def limits(known: Facts, found: Places) -> Limits:
    """The limits of a job, each with where it is set."""
    submitted = [*_bounds(_SUBMITTED, found)]
    if known.max_jobs is not None:
        submitted.append(Bound(known.max_jobs, OF_ALL))
    wall = [*_bounds(_WALL, found), *_partition_time(found)]
    return Limits(_smallest(submitted), _smallest([*_bounds(_RUNNING, found)]), _smallest(wall))


def _bounds(names: Sequence[tuple[str, str]], found: Places) -> Iterator[Bound]:
    over = found.of_job is not None and "OverPartQOS" in found.of_job.flags
    ordered = [found.of_job, found.of_partition] if over else [found.of_partition, found.of_job]
    for of_qos, of_association in names:
        first = next((one for one in ordered if one is not None and of_qos in one.limits), None)
        if first is not None:
            yield Bound(first.limits[of_qos], f"{of_qos} of the QOS {first.name}")
            continue
        # The Max limits of accounts are shown with their users, who inherit them.
        chain = found.chain if of_association.startswith("Grp") else found.chain[:1]
        for one in chain:
            if of_association in one.limits:
                whose = (
                    f"{one.user} in the account {one.account}" if one.user else f"the account {one.account}"
                )
                yield Bound(one.limits[of_association], f"{of_association} of {whose}")


def _partition_time(found: Places) -> list[Bound]:
    """Of several partitions the longest counts: the job waits for one that lets it run."""
    flags = found.of_job.flags if found.of_job else frozenset()
    times = [one.max_time for one in found.partitions]
    if not times or None in times or "PartitionTimeLimit" in flags:
        return []
    longest = max(found.partitions, key=lambda one: one.max_time or 0)
    return [Bound(int(longest.max_time or 0), f"MaxTime of the partition {longest.name}")]


def _smallest(bounds: Sequence[Bound]) -> Bound | None:
    return min(bounds, key=lambda one: one.value, default=None)


def queued(limit: Bound | None) -> int | None:
    """How many elements of a step may wait or run at once; None: as many as there are."""
    return None if limit is None else max(1, limit.value - BESIDE)


def judged(options: JobOptions, found: Places, bounds: Limits, *, in_job: bool) -> list[CheckResult]:
    """What of these limits stops such elements, or holds them back. `in_job`: the controller is a job itself.

    | limit                                             | verdict |
    |---------------------------------------------------|---------|
    | `time` (not `auto`) above the longest time        | stop    |
    | no partition takes jobs of one node               | stop    |
    | one running job, which is the controller          | stop    |
    | one running job, and the controller is none       | warning |
    | fewer running jobs than `max_elements`            | note    |
    | fewer queued elements than an array may have      | note    |
    """
    return [
        *_time(options, bounds.wall),
        *_nodes(found),
        *_at_once(options, bounds.running, in_job=in_job),
        *_in_queue(bounds.submitted),
    ]


def _time(options: JobOptions, wall: Bound | None) -> list[CheckResult]:
    if wall is None or not options.time or options.time <= wall.value:
        return []
    return [
        CheckResult(
            "cluster.time",
            f"{options.time} s are more than such jobs may take: they would wait for ever",
            "stop",
            f"at most {written(wall.value)}: {wall.by}",
            f"set cluster.time to {wall.value}s or less (an element goes on where it stopped), or choose "
            "another partition or QOS",
        )
    ]


def _nodes(found: Places) -> list[CheckResult]:
    flags = found.of_job.flags if found.of_job else frozenset()
    refused = []
    for one in found.partitions:
        if one.min_nodes > 1 and "PartitionMinNodes" not in flags:
            refused.append(f"MinNodes={one.min_nodes} of the partition {one.name}")
        elif one.max_nodes == 0 and "PartitionMaxNodes" not in flags:
            refused.append(f"MaxNodes=0 of the partition {one.name}")
    if not refused or len(refused) < len(found.partitions):
        return []
    return [
        CheckResult(
            "cluster.partition",
            f"it takes no job of one node, which an element is: {', '.join(refused)}",
            "stop",
            "MinNodes of 0 or 1",
            "choose another cluster.partition: `scontrol show partition` lists them",
        )
    ]


def _at_once(options: JobOptions, running: Bound | None, *, in_job: bool) -> list[CheckResult]:
    if running is None:
        return []
    found = f"no more than {running.value} of your jobs run at once: {running.by}"
    if running.value <= 1:
        return [
            CheckResult(
                "jobs at once",
                f"{found}; the controller is that job" if in_job else found,
                "stop" if in_job else "warning",
                "2 or more, since the controller of `penstock submit` is a job beside its elements",
                "run `penstock run` on a login node, not by `penstock submit`, or choose another QOS",
            )
        ]
    if running.value >= options.max_elements:
        return []
    told = "the others wait in the queue: a lower cluster.max_elements asks for no more than can run"
    return [
        CheckResult("jobs at once", found, "note", f"{options.max_elements} (cluster.max_elements)", told)
    ]


def _in_queue(submitted: Bound | None) -> list[CheckResult]:
    most = queued(submitted)
    if submitted is None or most is None or most >= USUAL:
        return []
    return [
        CheckResult(
            "jobs in the queue",
            f"no more than {submitted.value} of them at once: {submitted.by}",
            "note",
            f"{USUAL}, as many elements as an array usually may have",
            f"a plan of more than {most} shards is submitted in parts, one after the other; larger "
            "plan.shard_bytes and plan.shard_files give fewer elements",
        )
    ]


USUAL = 1000
"""Elements of the largest array of a cluster that sets no MaxArraySize."""
