"""What SLURM reports of itself, of its users and of jobs, as types."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Facts(NamedTuple):
    """What matters here of the cluster's configuration."""

    version: str
    max_array: int
    allows_core_spec: bool
    accounting: bool  # slurmdbd remembers jobs that the controller has forgotten
    cluster: str = ""  # ClusterName: two clusters number their jobs alike
    min_job_age: float = 300.0  # seconds slurmctld keeps an ended job; inf: for ever
    # max_array_tasks of SchedulerParameters: the most elements of an array; None: `max_array`
    max_tasks: int | None = None
    message_timeout: float = 10.0  # MessageTimeout: seconds that a client waits for slurmctld's answer
    # MaxJobCount: jobs of all users that the controller keeps; each element counts; None: unknown
    max_jobs: int | None = None
    # AccountingStorageEnforce, in small letters: without `limits` (or `safe`) no limit of a QOS or an
    # association holds.
    enforced: frozenset[str] = frozenset()

    tracks_wckeys: bool = False  # TrackWCKey: without it `--wckey` is ignored

    @property
    def enforces_limits(self) -> bool:
        """Whether limits of QOS and associations hold, and accounting can report them."""
        return self.accounting and not self.enforced.isdisjoint({"limits", "safe", "all"})


class Partition(NamedTuple):
    """A partition's limits."""

    name: str
    default: bool = False  # gets the jobs that name no partition
    max_time: float | None = None  # seconds that a job may run; None: no limit
    qos: str = ""  # the QOS whose limits hold for all its jobs; "": none
    allowed: frozenset[str] = frozenset()  # AllowAccounts; empty: all accounts
    denied: frozenset[str] = frozenset()

    def takes(self, account: str) -> bool:
        """Return whether jobs of this account ("": unknown) may start here. Without EnforcePartLimits
        slurmctld accepts others too, and never starts them."""
        return not account or (account in (self.allowed or {account}) and account not in self.denied)


class Association(NamedTuple):
    """What sacctmgr reports of a user in an account."""

    account: str = ""
    default_qos: str = ""
    max_wall: int = 0  # MaxWall, in seconds, also inherited from the account; 0: unset


class Qos(NamedTuple):
    """What sacctmgr reports of a QOS."""

    name: str
    flags: frozenset[str] = frozenset()  # such as OverPartQOS, PartitionTimeLimit
    max_wall: int = 0  # as in `Association`


class JobTrial(NamedTuple):
    """SLURM's judgement of a job that is not submitted."""

    refusal: str = ""  # SLURM's own words where it would refuse the job; "": it would accept it
    # when it would start, by running jobs and reservations, in seconds since the epoch; 0: not said
    start: float = 0.0


class SlurmSettings(NamedTuple):
    """The cluster's configuration, word by word, to be judged and shown to people."""

    # as the controller runs with it, of slurm.conf and cgroup.conf, by the names in these files
    values: Mapping[str, str]
    # slurm.conf on this machine without included files; "": unreadable. It may be newer than the
    # controller's.
    written: str = ""

    def words(self, name: str) -> list[str]:
        """Split a value at its commas; [] for an unset one."""
        value = self.values.get(name, "")
        return (
            [] if value.startswith("(null") else [word.strip() for word in value.split(",") if word.strip()]
        )


class JobSeen(NamedTuple):
    """A job as the controller shows it."""

    state: str  # SLURM's word; "" where it does not know the job
    status: int = 0  # the exit status of its script, once it has ended
    node: str = ""
    reason: str = ""
