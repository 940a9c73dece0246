"""The port to SLURM itself: what is asked of it, and how one talks to it left open.

The rules of the scheduler (what a requeue may still undo, what preflight refuses) stand in `cluster`, `site`,
`probe_job` and `requeues`, and know this port alone. There are two ways: `command_line.SlurmCommands`
(sbatch, squeue, sacct, scontrol, scancel, sinfo) and `bindings.slurm_bindings.SlurmBindings` (the same, but
for submissions, cancels, throttles, nodes and partitions, which go through pyslurm). Arrays on disk name the
scheduler, never the way; receipts of steps do.

Every call raises TransientError while SLURM cannot be asked, and FailedError with SLURM's own words for what
it refuses, unless the call says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.cluster.port import Accounted, ArraySpec
    from penstock.cluster.slurm.controller_room import QueuedJob
    from penstock.cluster.slurm.job_states import SlurmElement
    from penstock.cluster.slurm.nodes import Node
    from penstock.config.settings import JobOptions


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


class Trial(NamedTuple):
    """What SLURM says of a job that is not submitted."""

    refusal: str = ""
    """SLURM's own words where it would refuse the job; "" where it would take it."""
    start: float = 0.0
    """When it would start, by the jobs that run now and by reservations, in seconds since the epoch; 0 where
    SLURM does not say."""


class Settings(NamedTuple):
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


class Slurm(Protocol):
    """One way to talk to the SLURM of this machine."""

    @property
    def way(self) -> str:
        """Its name, for people and receipts."""

    def require(self) -> None:
        """Raises PreflightError where this way cannot be taken on this machine."""

    def facts(self) -> Facts:
        """What the cluster is."""

    def settings(self) -> Settings:
        """How the cluster is configured."""

    def nodes(self) -> list[Node]:
        """All nodes of the cluster."""

    def node_states(self, names: Sequence[str]) -> dict[str, str]:
        """SLURM's word for each of these nodes, in small letters; a star at its end: it does not answer."""

    def partitions(self) -> list[Partition]:
        """All partitions that this account may see."""

    def association(self, cluster: str, user: str, options: JobOptions) -> Association:
        """Of this user, for jobs with these options; empty where accounting knows none. To be asked, as the
        next one, only where `Facts.accounting`."""

    def qos(self, name: str) -> Qos | None:
        """The QOS of this name; None where accounting knows none."""

    def trial(self, options: JobOptions, exclude: Sequence[str] = ()) -> Trial:
        """What SLURM would do now with such a job, which may run on none of the nodes `exclude`. Raises
        QueueFullError where it judges none, since this account has too many."""

    def submit_array(self, spec: ArraySpec, at_once: int, options: JobOptions, script: str) -> str:
        """Submit once; the array's id. After a TransientError nothing is known of the outcome. Raises
        QueueFullError where this account may have no more jobs now."""

    def submit_job(self, name: str, options: JobOptions, script: str, *, node: str = "") -> str:
        """Submit a single job whose output nobody keeps, and which is never started again; its id. `node`:
        the only one that it may run on; "": any that the options allow."""

    def find(self, name: str) -> list[int]:
        """The ids of this account's arrays of this name, sorted: also of those that have ended, as long as
        the controller knows them."""

    def elements_of(self, arrays: Sequence[str]) -> dict[str, list[SlurmElement]]:
        """All elements of each of these arrays that the controller knows, by one query; [] of an array that
        it has forgotten."""

    def ended_elements(self, array: str) -> list[SlurmElement]:
        """All elements that accounting knows. To be asked only where `Facts.accounting`."""

    def accounting(self, array: str) -> Sequence[Accounted]:
        """What accounting keeps of the array's elements that have started. To be asked only where
        `Facts.accounting`."""

    def job(self, job: str) -> JobSeen:
        """One job, or element, that the controller knows."""

    def job_states(self, job: str) -> list[str] | None:
        """SLURM's words for the states of a job's elements, by the controller. None: it does not know it."""

    def ended_states(self, job: str) -> list[str]:
        """The same by accounting. To be asked only where `Facts.accounting`."""

    def jobs(self) -> list[QueuedJob]:
        """All jobs that wait or run, of everybody whom this account may see."""

    def cancel(self, job: str, indices: Sequence[int] | None = None) -> None:
        """End a job, or these elements of an array. One that has ended is no error."""

    def keep_off(self, array: str, nodes: Sequence[str]) -> None:
        """Elements that have not started go to none of these nodes, whatever was said before. No error where
        all have."""

    def throttle(self, array: str, at_once: int) -> None:
        """Let at most so many elements of an array run at once. One that has ended is no error."""
