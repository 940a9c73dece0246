"""The port to SLURM itself: what is asked of it, and how one talks to it left open.

The rules of the scheduler (what a requeue may still undo, what preflight refuses) stand in `cluster`, `site`,
`probe_job` and `requeues`, and know this port alone. `command_line.SlurmCommands` is the one way there is:
sbatch, squeue, sacct, scontrol, scancel, sinfo. Arrays on disk name the scheduler, never the way.

Every call raises TransientError while SLURM cannot be asked, and FailedError with SLURM's own words for what
it refuses, unless the call says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.port import ArraySpec
    from penstock.cluster.slurm.job_states import SlurmElement
    from penstock.cluster.slurm.nodes import Node
    from penstock.config.settings import JobOptions


class Facts(NamedTuple):
    """What the cluster's configuration says, as far as it matters here."""

    version: str
    max_array: int
    allows_core_spec: bool
    confines: bool
    """task/cgroup is there: reserved cores are kept free of the job's processes."""
    accounting: bool
    """slurmdbd can be asked for jobs that the controller has forgotten."""
    cluster: str = ""
    """ClusterName: two clusters count their jobs alike."""
    min_job_age: float = 300.0
    """Seconds that the controller keeps a job after its end: before that it forgets none."""


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

    way: str
    """Its name, for people."""

    def require(self) -> None:
        """Raises PreflightError where this way cannot be taken on this machine."""

    def facts(self) -> Facts:
        """What the cluster is."""

    def nodes(self) -> list[Node]:
        """All nodes of the cluster."""

    def node_states(self, names: Sequence[str]) -> dict[str, str]:
        """SLURM's word for each of these nodes, in small letters; a star at its end: it does not answer."""

    def default_partition(self) -> str | None:
        """Where jobs go that name none."""

    def time_limits(self, partition: str) -> list[str]:
        """The longest time of the partition's jobs, as SLURM writes it; several for several partitions."""

    def refusal(self, options: JobOptions) -> str:
        """SLURM's own words where it would refuse such a job now; "" where it would take it."""

    def submit_array(self, spec: ArraySpec, at_once: int, options: JobOptions, script: str) -> str:
        """Submit once; the array's id. After a TransientError nothing is known of the outcome."""

    def submit_job(self, name: str, options: JobOptions, script: str, *, node: str = "") -> str:
        """Submit a single job whose output nobody keeps, and which is never started again; its id. `node`:
        the only one that it may run on; "": any that the options allow."""

    def find(self, name: str) -> list[int]:
        """The ids of this account's arrays of this name that have not ended, sorted."""

    def elements(self, array: str) -> list[SlurmElement]:
        """All elements that the controller knows, by one query; [] of an array that it has forgotten."""

    def ended_elements(self, array: str) -> list[SlurmElement]:
        """All elements that accounting knows. To be asked only where `Facts.accounting`."""

    def job(self, job: str) -> JobSeen:
        """One job, or element, that the controller knows."""

    def job_states(self, job: str) -> list[str] | None:
        """SLURM's words for the states of a job's elements, by the controller. None: it does not know it."""

    def ended_states(self, job: str) -> list[str]:
        """The same by accounting. To be asked only where `Facts.accounting`."""

    def cancel(self, job: str, indices: Sequence[int] | None = None) -> None:
        """End a job, or these elements of an array. One that has ended is no error."""

    def throttle(self, array: str, at_once: int) -> None:
        """Let at most so many elements of an array run at once. One that has ended is no error."""
