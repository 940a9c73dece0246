"""What SLURM says of itself, of its users and of jobs, as types, for this package alone. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Facts(NamedTuple):
    """What the cluster's configuration says, as far as it matters here."""

    version: str
    max_array: int
    allows_core_spec: bool
    accounting: bool
    """slurmdbd can be asked for jobs that the controller has forgotten."""
    cluster: str = ""
    """ClusterName: two clusters count their jobs alike."""
    min_job_age: float = 300.0
    """Seconds that the controller keeps a job after its end: before that it forgets none. Infinite where it
    never does."""
    max_tasks: int | None = None
    """max_array_tasks of SchedulerParameters: the most elements of one array; None: as many as there are
    numbers, `max_array`."""
    message_timeout: float = 10.0
    """MessageTimeout: seconds that a client waits for slurmctld's answer to one message."""
    max_jobs: int | None = None
    """MaxJobCount: jobs of all users that the controller keeps; each element counts. None: not known."""
    enforced: frozenset[str] = frozenset()
    """AccountingStorageEnforce, in small letters: without `limits` (or `safe`) no limit of a QOS or an
    association counts."""

    tracks_wckeys: bool = False
    """TrackWCKey: without it `--wckey` is ignored."""

    @property
    def enforces_limits(self) -> bool:
        """Whether limits of QOS and associations hold, and accounting can be asked for them."""
        return self.accounting and not self.enforced.isdisjoint({"limits", "safe", "all"})


class Partition(NamedTuple):
    """A partition's limits."""

    name: str
    default: bool = False
    """Where jobs go that name none."""
    max_time: float | None = None
    """Seconds that a job of it may run; None: no limit."""
    qos: str = ""
    """The QOS whose limits hold for all its jobs; "" where it has none."""
    allowed: frozenset[str] = frozenset()
    """AllowAccounts; empty: all accounts."""
    denied: frozenset[str] = frozenset()
    """DenyAccounts."""

    def takes(self, account: str) -> bool:
        """Whether jobs of this account ("": not known) may start in it. Without EnforcePartLimits slurmctld
        takes others too, and never starts them."""
        return not account or (account in (self.allowed or {account}) and account not in self.denied)


class Association(NamedTuple):
    """What sacctmgr says of a user in an account."""

    account: str = ""
    default_qos: str = ""
    max_wall: int = 0
    """MaxWall, in seconds, also where it is inherited of the account; 0: none is set."""


class Qos(NamedTuple):
    """What sacctmgr says of a QOS."""

    name: str
    flags: frozenset[str] = frozenset()
    """Such as OverPartQOS, PartitionTimeLimit."""
    max_wall: int = 0
    """As in `Association`."""


class JobTrial(NamedTuple):
    """What SLURM says of a job that is not submitted."""

    refusal: str = ""
    """SLURM's own words where it would refuse the job; "" where it would take it."""
    start: float = 0.0
    """When it would start, by the jobs that run now and by reservations, in seconds since the epoch; 0 where
    SLURM does not say."""


class SlurmSettings(NamedTuple):
    """The cluster's configuration, word by word: what is judged and shown to people."""

    values: Mapping[str, str]
    """As the controller runs with it, of slurm.conf and cgroup.conf, by the names that these files have."""
    written: str = ""
    """slurm.conf as it lies on this machine, without the files that it includes; "" where it cannot be read.
    It may be newer than what the controller runs with."""

    def words(self, name: str) -> list[str]:
        """The parts of a value with commas; [] of one that is not set."""
        found = self.values.get(name, "")
        return [] if found.startswith("(null") else [one.strip() for one in found.split(",") if one.strip()]


class JobSeen(NamedTuple):
    """A single job as the controller shows it."""

    state: str
    """SLURM's word; "" where it does not know the job."""
    status: int = 0
    """The exit status of its script, once it has ended."""
    node: str = ""
    reason: str = ""
