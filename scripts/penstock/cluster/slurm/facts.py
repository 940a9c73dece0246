"""Types for SLURM's reports of its configuration, users, jobs and nodes; and the choice of the nodes on which
an element may run, from partition, constraint and `exclude`. Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import range_lists
from penstock.core.range_lists import host_names

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
