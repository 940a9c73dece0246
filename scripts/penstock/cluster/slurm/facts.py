"""Types for SLURM's reports of its configuration, users, jobs and nodes; the choice of the nodes on which an
element may run, from partition, constraint and `exclude`; and whether a controller's own job leaves them
room. Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import range_lists
from penstock.core.range_lists import host_list, host_names
from penstock.core.run_steps import CheckResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.config.settings import JobOptions


_JOB_ROW = re.compile(r"\s*(\d+)(_[\d\[\],:%-]+)?(\.\w+)?\s*\|")
# fields of free text from people and programs; they come after all other fields
_FREE = re.compile(r" (?:Reason|Comment|Extra)=")


def job_rows(text: str) -> Iterator[str]:
    """Iterate over lines that begin with a job's number (`18|`, `18_3|`, `18_[4-9]|`, `18.batch|`), as
    answers of squeue and sacct do."""
    return (line for line in text.splitlines() if _JOB_ROW.match(line))


def fields(line: str) -> dict[str, str]:
    """Read the fields of a line of scontrol, by name. Free text is skipped, since a node's reason may contain
    `State=IDLE`.

    >>> fields("NodeName=n1 State=DOWN Reason=was State=IDLE [root@now]")
    {'State': 'DOWN', 'NodeName': 'n1'}
    """
    own = _FREE.split(line, maxsplit=1)[0]
    # If two fields have the same name, the first counts.
    return dict(reversed(re.findall(r"(\w+)=(\S*)", own)))


class Facts(NamedTuple):
    """The parts of the cluster's configuration that code needs."""

    version: str
    max_array: int
    allows_core_spec: bool
    accounting: bool  # whether slurmdbd remembers jobs that the controller has forgotten
    cluster: str = ""  # ClusterName; needed since two clusters may have jobs of the same number
    min_job_age: float = 300.0  # seconds for which slurmctld keeps an ended job; may be infinite
    # max_array_tasks of SchedulerParameters: the most elements of an array; if None, `max_array` is the limit
    max_tasks: int | None = None
    message_timeout: float = 10.0  # MessageTimeout: seconds that a client waits for slurmctld's answer
    # MaxJobCount: the most jobs, of all users, that the controller keeps; each element counts; None if
    # unknown
    max_jobs: int | None = None
    # AccountingStorageEnforce, in small letters: without `limits` (or `safe`) no limit of a QOS or an
    # association is enforced.
    enforced: frozenset[str] = frozenset()

    tracks_wckeys: bool = False  # TrackWCKey: without it `--wckey` is ignored

    @property
    def enforces_limits(self) -> bool:
        """Whether limits of QOS and associations are enforced, and accounting can report them."""
        return self.accounting and not self.enforced.isdisjoint({"limits", "safe", "all"})


class Partition(NamedTuple):
    """A partition's limits."""

    name: str
    default: bool = False  # whether this partition gets the jobs that name none
    max_time: float | None = None  # seconds that a job may run; None for no limit
    qos: str = ""  # the QOS whose limits apply to all its jobs; "" for none
    allowed: frozenset[str] = frozenset()  # AllowAccounts; empty if all accounts are allowed
    denied: frozenset[str] = frozenset()

    def takes(self, account: str) -> bool:
        """Return whether jobs of this account ("" if unknown) may start here. Without EnforcePartLimits
        slurmctld also accepts jobs of other accounts, but never starts them."""
        return not account or (account in (self.allowed or {account}) and account not in self.denied)


class Association(NamedTuple):
    """The settings that sacctmgr reports for a user in an account."""

    account: str = ""
    default_qos: str = ""
    max_wall: int = 0  # MaxWall, in seconds, possibly inherited from the account; 0 if unset


class Qos(NamedTuple):
    """The settings that sacctmgr reports for a QOS."""

    name: str
    flags: frozenset[str] = frozenset()  # flags such as OverPartQOS, PartitionTimeLimit
    max_wall: int = 0  # MaxWall in seconds; 0 if unset


class JobTrial(NamedTuple):
    """SLURM's judgement of a job that is not submitted."""

    refusal: str = ""  # SLURM's own words if it would refuse the job; "" if it would accept it
    # start predicted from running jobs and reservations, in seconds since the epoch; 0 if SLURM names none
    start: float = 0.0


class SlurmSettings(NamedTuple):
    """The cluster's configuration, word by word, to be judged and shown to people."""

    # the controller's current values from slurm.conf and cgroup.conf, by the names in these files
    values: Mapping[str, str]
    # text of slurm.conf on this machine, without included files; "" if unreadable. It may be newer than the
    # controller's.
    written: str = ""

    def words(self, name: str) -> list[str]:
        """Split a value at its commas; [] if it is unset."""
        value = self.values.get(name, "")
        return (
            [] if value.startswith("(null") else [word.strip() for word in value.split(",") if word.strip()]
        )


class JobSeen(NamedTuple):
    """A job as the controller shows it."""

    state: str  # SLURM's word for its state; "" if SLURM does not know the job
    status: int = 0  # the exit status of its script, once it has ended
    node: str = ""
    reason: str = ""


MIB = 1 << 20
# states in which an idle node cannot start a job at once
ELSEWHERE = frozenset(
    {
        "RESERVED", "MAINT", "MAINTENANCE", "PLANNED", "BLOCKED", "FUTURE", "COMPLETING", "INVAL",
        "INVALID_REG", "POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "POWER_UP",
        "REBOOT_ISSUED", "REBOOT_REQUESTED",
    }
)  # fmt: skip
AWAY = frozenset({"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "UNKNOWN"})
# power-saving states: SLURM switches the node off while nobody needs it, and on for the next job
SAVING = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "POWER_UP"})
# the same states as sinfo marks them after another state: off, coming up, about to go off, going off
SAVING_MARKS = frozenset("~#!%")


_REASON = re.compile(r" Reason=(.*?)(?: \[[^\]]*\])?(?: (?:Comment|Extra)=.*)?\s*$")


class Node(NamedTuple):
    """A node, as SLURM records it."""

    name: str
    cpus: int
    cores: int
    reserved: int  # cores that the site reserves (for WEKA's client, say): CoreSpecCount, or CpuSpecList
    memory: int  # bytes
    partitions: frozenset[str]
    features: frozenset[str]
    state: str = ""  # SLURM's words, such as IDLE+DRAIN
    reason: str = ""  # why it is drained or down: the text of the person or program that did so
    gpus: str = ""  # the node's GPUs, as in Gres
    sockets: int = 0  # sockets as SLURM counts them; 0 if unknown
    threads: int = 0  # threads of each core; 0 if unknown
    # CpuSpecList: the CPUs that it reserves, in SLURM's own numbers. Slurm shows it for CoreSpecCount, too.
    cpu_spec: str = ""
    memory_spec: int = 0  # MemSpecLimit, in bytes: memory that the node reserves for the system; 0 for none

    @property
    def away(self) -> bool:
        """Whether no job can start on it until it comes back or somebody resumes it.

        | state, such as                       | away | why                                        |
        |--------------------------------------|------|--------------------------------------------|
        | IDLE+DRAIN, DOWN, FAIL, UNKNOWN      | yes  | a person or a program has to resume it     |
        | DOWN+POWERED_DOWN, DOWN~             | yes  | it did not come up when last started       |
        | IDLE+NOT_RESPONDING, IDLE*           | yes  | it does not answer                         |
        | IDLE+POWERED_DOWN, IDLE~             | no   | SLURM switches it on for the next job      |
        | ALLOCATED+NOT_RESPONDING+POWERING_UP | no   | it does not answer yet, as it is coming up |
        | IDLE, ALLOCATED, MIXED, RESERVED     | no   | it is in service                           |
        """
        silent = "NOT_RESPONDING" in self._words or "*" in self.state
        return not AWAY.isdisjoint(self._words) or (silent and not self.saving)

    @property
    def saving(self) -> bool:
        """Whether it is switched off to save power, or is being switched off or on."""
        return not (SAVING.isdisjoint(self._words) and SAVING_MARKS.isdisjoint(self.state))

    @property
    def idle(self) -> bool:
        """Whether a small job would start on it at once, without switching it on."""
        idle = "IDLE" in self._words and ELSEWHERE.isdisjoint(self._words)
        return idle and not self.away and not self.saving

    @property
    def _words(self) -> list[str]:
        return re.findall(r"[A-Z_]+", self.state)


def fits(options: JobOptions, node: Node) -> bool:
    """Return whether the node is large enough for a job with these options, whatever its state."""
    cores = options.spec_cores
    cpus = node.cpus - (cores or 0) * (node.cpus // max(1, node.cores))
    return (
        (options.cpus or 1) <= cpus
        and (options.memory or 0) <= node.memory
        and (cores is None or node.cores > cores)
    )


def is_lost(state: str) -> bool:
    """Return whether a node in this state is lost to its jobs, since it is down or unresponsive. A star marks
    an unresponsive node, at the end in `sinfo -o %T` (`drained*`), or before flags (`idle*+drain`). A node
    that is off to save power (`idle~`, `powered_down`) is not lost."""
    return "down" in re.findall(r"[a-z_]+", state) or "*" in state


def spread(nodes: Sequence[Node], most: int) -> list[str]:
    """Choose at most `most` idle nodes, and return their names: the first, the last and others between them,
    since neighbours often share a switch and a mount."""
    idle = [node.name for node in nodes if node.idle]
    if most < 2 or len(idle) <= most:
        return idle[:most]
    return [idle[round(number * (len(idle) - 1) / (most - 1))] for number in range(most)]


def read_nodes(text: str) -> list[Node]:
    """Parse `scontrol show node --oneliner`."""
    nodes = []
    for line in text.splitlines():
        words = fields(line)
        if "NodeName" not in words:
            continue
        sockets, threads = int(words.get("Sockets", "1")), int(words.get("ThreadsPerCore", "1"))
        cores = int(words.get("CoresPerSocket", "1")) * sockets
        # `scontrol` of some releases writes CPUSpecList.
        listed = words.get("CPUSpecList", words.get("CpuSpecList", ""))
        listed = listed if re.fullmatch(r"[\d,-]*\d", listed) else ""
        nodes.append(
            Node(
                name=words["NodeName"],
                cpus=int(words.get("CPUTot", "0")),
                cores=cores,
                reserved=_reserved(words.get("CoreSpecCount", "0"), listed, threads),
                memory=int(words.get("RealMemory", "0")) * MIB,
                partitions=frozenset(words.get("Partitions", "").split(",")),
                features=frozenset(words.get("AvailableFeatures", "").split(",")),
                state=words.get("State", ""),
                reason=reason[1] if (reason := _REASON.search(line)) else "",
                gpus=words.get("Gres", "") if "gpu" in words.get("Gres", "") else "",
                sockets=sockets,
                threads=threads,
                cpu_spec=listed,
                memory_spec=int(words.get("MemSpecLimit", "0")) * MIB,
            )
        )
    return nodes


def _reserved(count: str, listed: str, threads: int) -> int:
    """Return CoreSpecCount, or else the number of cores with CPUs in CpuSpecList."""
    return int(count) or len({cpu // max(1, threads) for cpu in range_lists.cpus(listed)})


PLAIN = re.compile(r"[\w.-]+")  # a constraint of a single feature


def default(partitions: Sequence[Partition]) -> str | None:
    """Return the partition of jobs that name none; None if the cluster has no default."""
    return next((partition.name for partition in partitions if partition.default), None)


def asked(options: JobOptions) -> str:
    """Describe the share of a node that each element takes, from settled options.

    | core_spec | cpus  | an element takes                                  |
    |-----------|-------|---------------------------------------------------|
    | a number  | any   | a whole node, except this number of cores         |
    | none      | null  | a whole node (--exclusive)                        |
    | none      | given | this number of CPUs of a node shared with others  |
    """
    if options.spec_cores is not None:
        return f"a whole node, less {options.spec_cores} of its cores (--core-spec={options.spec_cores})"
    if options.whole_nodes:
        return "a whole node (--exclusive; `cluster.cpus` asks for less)"
    return f"{options.cpus} CPUs of a node that it shares (--cpus-per-task={options.cpus})"


def able(options: JobOptions, nodes: Sequence[Node], partition: str | None) -> list[Node]:
    """Return the nodes that a job with these options may use; of constraints, only a plain one is considered.
    `partition` is the partition of jobs that name none."""
    partition = options.partition or partition
    chosen = [node for node in nodes if partition is None or node.partitions & set(partition.split(","))]
    if options.constraint is not None and PLAIN.fullmatch(options.constraint):
        chosen = [node for node in chosen if options.constraint in node.features]
    excluded = frozenset(host_names(options.exclude or ""))
    return [node for node in chosen if node.name not in excluded]


# Checks whether a controller's own job on SLURM keeps the elements of its run from starting.
#
# An element of a whole node never starts on a node on which a controller's job has a core. A smaller element
# does not start if the controller leaves too little. If a controller runs on every node that elements may
# use, all elements wait until the first controller's time is over. The same happens if a limit admits no jobs
# except the controllers. Therefore preflight stops a controller whose job takes the only node
# (`stop_on_only_node`). If controllers wait for each other, the one submitted last ends itself
# (`why_kept_out`).

# the beginnings of controllers' job names (`workflow.controller_job`)
CONTROLLER_NAMES = ("penstock-submit-", "penstock-look-")
MEMORY = 1 << 30  # assumed bytes of a controller whose job names no memory
# SLURM's reasons for elements that wait for a node, rather than for a moment, a licence or a person
WAITS_FOR_NODES = re.compile(r"Resources|Priority|None|ReqNodeNotAvail|Nodes.required", re.IGNORECASE)
# SLURM's reasons for elements that wait until other jobs end, and the fields of `QueuedJob` in which these
# jobs equal the element.
LIMITS = {
    re.compile(r"QOSMax\w+PerUser"): ("user", "qos"),
    re.compile(r"QOSGrpJobsLimit"): ("qos",),
    re.compile(r"MaxJobsPerAccount"): ("account", "qos"),
    re.compile(r"AssocMaxJobsLimit"): ("user", "account"),
    re.compile(r"AssocGrpJobsLimit"): ("account",),
}
HINT = (
    "run `penstock run` where it takes no such node (a login node), or give the controller another partition "
    "(cluster.steps.submit.partition)"
)


class QueuedJob(NamedTuple):
    """A job of squeue, or the jobs of an array that wait together."""

    job: str
    array: str
    running: bool
    user: str
    account: str
    qos: str
    nodes: frozenset[str]
    reason: str  # SLURM's word for why it waits
    name: str

    def has_controller(self, own: str) -> bool:
        """Return whether it is the job `own`, or has the name of a controller's job."""
        return self.name.startswith(CONTROLLER_NAMES) or self.job == own


def stop_on_only_node(
    elements: JobOptions,
    candidates: Sequence[Node],
    places: Sequence[str],
    memory: int | None,
    *,
    shares_memory: bool,
) -> list[CheckResult]:
    """Return a stop if the controller's job would run on the elements' only node, and leave too little of it.

    `candidates` are the nodes that elements may use, including those that are down now (`Node.away`).
    `places` are the nodes that the controller's job may get, and `memory` is its bytes. If `shares_memory`,
    a job on this cluster that asks for no memory does not get all of the node's.

    | candidates        | places                | an element fits beside the controller (`_fits`) | result |
    |-------------------|-----------------------|-------------------------------------------------|--------|
    | none, or several  | any                   | any                                             | none   |
    | one node          | other nodes           | any                                             | none   |
    | one node          | this node and another | any                                             | none   |
    | one node          | this node alone       | yes                                             | none   |
    | one node          | this node alone       | no                                              | a stop |
    """
    names = {node.name for node in candidates}
    if len(names) != 1 or {*places} != names or _fits(elements, candidates[0], memory, shares_memory):
        return []
    (name,) = names
    return [
        CheckResult(
            "the controller's node",
            f"{name} is the only node that elements may use, and the controller's own job takes a core of "
            "it: they would never start",
            "stop",
            "a node for elements beside the controller's",
            HINT,
        )
    ]


def why_kept_out(
    elements: JobOptions,
    candidates: Sequence[Node],
    jobs: Sequence[QueuedJob],
    arrays: Sequence[str],
    own: str,
    memory: int | None,
    *,
    shares_memory: bool,
) -> str:
    """Explain why no waiting element of these arrays can start while this controller's job `own` runs.

    Returns "" if an element may start, or another controller must end first. `jobs` are all jobs of squeue.
    `memory` is the bytes of this controller; others are assumed to have as many. The other parameters are
    those of `stop_on_only_node`.

    | the elements wait for | candidates (not away), or other jobs   | the last controller is | result |
    |-----------------------|----------------------------------------|------------------------|--------|
    | a node                | a node has no controller, or has room  | any                    | ""     |
    |                       | for an element beside it               |                        |        |
    | a node                | controllers block all nodes            | another                | ""     |
    | a node                | controllers block all nodes            | this one               | why    |
    | an end of other jobs  | a running job is no controller         | any                    | ""     |
    | an end of other jobs  | all running jobs are controllers       | another                | ""     |
    | an end of other jobs  | all running jobs are controllers       | this one               | why    |
    | anything else         | any                                    | any                    | ""     |

    "Other jobs" are those that the limit counts (LIMITS). The last controller is the one submitted last.
    """
    waiting = [job for job in jobs if not job.running and job.array in arrays]
    running = [job for job in jobs if job.running]
    begun = any(job.array in arrays for job in running)
    if not waiting or begun or all(job.job != own for job in running):
        return ""
    reasons = sorted({job.reason for job in waiting})
    controllers: Sequence[QueuedJob] = ()
    why = ""
    if all(map(WAITS_FOR_NODES.match, reasons)):
        usable = [node for node in candidates if not node.away]
        controllers = _holding_all(usable, [job for job in running if job.has_controller(own)])
        if controllers and any(_fits(elements, node, memory, shares_memory) for node in usable):
            return ""
        away = host_list(sorted(node.name for node in candidates if node.away))
        names = host_list(sorted({node.name for node in usable}))
        why = f"each node that elements may use now ({names}) holds a controller's job"
        why += f"; {away} cannot be used" if away else ""
    elif limits := _limits(reasons):
        counted = [job for job in running if _is_counted(job, waiting[0], limits)]
        controllers = counted if all(job.has_controller(own) for job in counted) else ()
        why = f"this account may run no job beside controllers now ({', '.join(reasons)})"
    if all(job.job != own for job in controllers) or any(int(job.job) > int(own) for job in controllers):
        return ""
    numbers = ", ".join(job.job for job in controllers)
    return f"{why}: job {numbers}; of controllers that wait for each other the last one ends"


def _holding_all(nodes: Sequence[Node], controllers: Sequence[QueuedJob]) -> list[QueuedJob]:
    """Return the controllers that run on the nodes; [] if any node has no controller."""
    names = {node.name for node in nodes}
    holding = [job for job in controllers if job.nodes & names]
    return holding if all(any(name in job.nodes for job in holding) for name in names) else []


def _fits(elements: JobOptions, node: Node, memory: int | None, shares_memory: bool) -> bool:
    """Return whether an element fits beside a controller of one core and this much memory. An element with a
    whole node, or specialised cores (`--core-spec`), never fits."""
    if elements.spec_cores is not None or elements.whole_nodes:
        return False
    if elements.memory is None and not shares_memory:
        return False
    left = node._replace(cpus=node.cpus - max(1, node.threads), memory=node.memory - (memory or MEMORY))
    return fits(elements, left)


def _limits(reasons: Sequence[str]) -> list[Sequence[str]]:
    """Return the fields by which each of these limits counts jobs; [] if any reason is no limit."""
    each = [[fields for words, fields in LIMITS.items() if words.match(reason)] for reason in reasons]
    return [fields for matches in each for fields in matches] if all(each) else []


def _is_counted(job: QueuedJob, waiting: QueuedJob, limits: Sequence[Sequence[str]]) -> bool:
    """Return whether one of these limits, which block `waiting`, counts the job."""
    return any(all(getattr(job, field) == getattr(waiting, field) for field in fields) for fields in limits)
