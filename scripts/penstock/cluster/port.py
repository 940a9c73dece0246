"""The port of clusters: job arrays of elements. `local` runs them here, `slurm` on nodes.

An element is the process that does one shard, one index of a job array. It does its work from the state on
the target alone: its command line names the run's folder, the step and its index. What the cluster provides
beside that (job, node, CPUs, memory) is a `JobEnvironment`, read by `registry.read_job_environment`. That it
did its work is proven by its receipt, a small file on the target; this port only reports how the process
ended.

For `jobs`, which submits and watches arrays, and for preflight. This module has the types alone, and touches
nothing; an implementation starts processes, or runs SLURM's commands. Where a method says no more of errors,
it raises TransientError while the cluster does not answer, and FailedError where it refuses.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.abilities import abilities_of
from penstock.core.errors import FailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from penstock.cluster.abilities import Abilities
    from penstock.core.checks import CheckResult
    from penstock.core.documents.node_cores import NodeCores


class State(enum.Enum):
    """What became of one element, as far as the cluster can say."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    """The process ended with exit status 0."""
    FAILED = "failed"
    """Ended otherwise: exit status, out of memory, time limit, node failure not requeued."""
    CANCELLED = "cancelled"
    LOST = "lost"
    """The cluster no longer knows it, and cannot say how it ended."""

    @property
    def ended(self) -> bool:
        return self not in (State.PENDING, State.RUNNING)


class Cause(enum.Enum):
    """What the cluster itself ended an element for; code checks this, people read `Status.reason`."""

    NONE = ""
    """Nothing: its process ended by itself or by a signal, or it has not ended."""
    TIME = "time"
    """It ran to the end of its time limit."""
    NODE = "node"
    """Its node failed, and the cluster does not start it again."""
    LAUNCH = "launch"
    """It could not be started on its node."""
    PREEMPTED = "preempted"
    """Another job took its place, and the cluster does not start it again."""


@dataclass(frozen=True)
class Status:
    """One element's state, with what people want to know of it."""

    state: State
    reason: str = ""
    """The cluster's own words, for people only: `OutOfMemory`, `exit 1`, `Priority`."""
    node: str = ""
    started: float = 0.0
    """Seconds since the epoch; 0 when not known."""
    ended: float = 0.0
    restarts: int = 0
    starting: bool = False
    """Its node is being switched on, rebooted or prepared for it: it runs as soon as that is done."""
    unknown: bool = False
    """The cluster does not know it now, too soon for it to have been forgotten: it may be at work or not."""
    completing: bool = False
    """Its processes have ended, or are being ended, and the cluster still cleans up after it."""
    held: bool = False
    """A person or the site holds it: it waits until somebody releases it."""
    beyond_limit: bool = False
    """It waits, and asks for more than a single job may have: it never starts, whatever else ends."""
    expected: float = 0.0
    """When the cluster expects a pending element to start, in seconds since the epoch; 0 when it
    does not say."""
    requeued: str = ""
    """Why it was started again (`preempted on n2`), at the query that first sees it."""
    exit_code: int | None = None
    """The exit status of its process. None while it has not ended, where a signal or the cluster itself (time
    limit, memory, node) ended it, and where the cluster does not say."""
    signal: int | None = None
    """The number of the signal that killed its process, where the cluster says so; else None."""
    out_of_memory: bool = False
    """The cluster says that processes of it were killed because it took more memory than it was given."""
    cause: Cause = Cause.NONE
    lost_node: str = ""
    """The node that failed under it, at the query that first sees it started again or not started."""


class LiveJob(NamedTuple):
    """A job, or an array of them, of any account, that waits or runs."""

    uid: int | None  # of its account; None: the cluster shows other accounts' jobs to nobody
    waits_for: str = ""  # SLURM's reason while it has not started; "": it runs


class Accounted(NamedTuple):
    """What the cluster's own accounting keeps of one element, over all its starts. Times are seconds since
    the epoch, 0 where it has none; sizes are bytes."""

    element: int
    starts: int = 1
    """How often it was started."""
    submitted: float = 0.0
    started: float = 0.0
    """The last start, and `ended` its end."""
    ended: float = 0.0
    waited: float = 0.0
    """Seconds that it was in the queue, summed over its starts."""
    seconds: float = 0.0
    """Seconds that it ran, summed over its starts."""
    granted_seconds: float = 0.0
    """CPUs that were allocated, times seconds; those that core-spec reserves may be among them."""
    cpu_seconds: float | None = None
    """CPU time that its processes used; None where the cluster gathers none."""
    memory_peak: int | None = None
    """Of its processes, as the cluster sampled them; None where it gathers none."""


@dataclass(frozen=True)
class ArraySpec:
    """One array to be submitted."""

    name: str
    """Unique to the dataset, run, step and submission: an array whose id was lost is found by
    it. Only `[A-Za-z0-9._-]`."""
    step: str
    """Chooses the job options (`cluster.steps`)."""
    indices: Sequence[int]
    """The elements' numbers in the array, each below `Cluster.max_array`."""
    command: Sequence[str]
    """The argument vector without the index, absolute interpreter first. The element appends
    its own index: `base` and its number in the array."""
    logs: Path
    """Folder for the elements' output: `<step>-<index>.log` (SLURM: `<log_stem>-%A_%a.log`)."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What people want to see of it in the cluster's own listings: dataset, release, step. Keys and
    values like `name`."""
    at_once: int = 0
    """How many of its elements may run at once; 0: `slots(step)`."""
    mail: str = ""
    """An address, or an account, that gets mail when it ends or fails; "": nobody does."""
    after: Sequence[str] = ()
    """The ids of jobs that must have ended, however, before it starts."""
    base: int = 0
    """What is added to an element's number in the array to make its index: a step of more elements than one
    array holds is submitted as several."""
    time: int = 0
    """The time limit of each element, in seconds; 0: what the configuration asks for."""
    exclude: Sequence[str] = ()
    """Nodes that none of its elements is to run on, beside those that the configuration names."""


def log_stem(step: str, base: int) -> str:
    """How the logs of an array of this `ArraySpec.base` begin: their names end with the elements' numbers in
    their array, which are not their indices where there is a base."""
    return f"{step}-from{base}" if base else step


BAD_NODE = 84
"""The exit status of a worker that did no shard on its node, where each one that it took failed."""
VISIT_FAILED = 85
"""The exit status of a visit that failed: none that a shell (126, 127) or a cluster itself gives."""


class VisitAnswer(NamedTuple):
    """What a visit wrote."""

    text: str
    uid: int
    """Of the file, as this machine sees it."""
    gid: int


def _as_it_stands(_: str, answer: VisitAnswer) -> str:
    return answer.text


@dataclass(frozen=True)
class Visit:
    """A command of penstock that preflight's probe job runs on a node: it opens the dataset's sources there,
    and looks at that node's mounts."""

    words: Sequence[str]
    """The command's words. The cluster adds `--answer FILE`: the command writes its answer there, and exits
    with 0, or with `VISIT_FAILED`."""
    given: str
    """The command's standard input: one line."""
    answers: Path
    """The folder for FILE, visible here and on the node; preflight removes FILE."""
    hint: str = ""
    """What a person can do when the visit fails."""
    read: Callable[[str, VisitAnswer], str] = _as_it_stands
    """Takes a node's name and its answer, as it stands in FILE; returns why the visit failed there, "" where
    it did not."""


class Cluster(ABC):
    """Where elements run. What is not abstract answers for a machine without a scheduler."""

    kind: str
    """The backend's name, for people and for files on disk: `local` or `slurm`."""

    @property
    def abilities(self) -> Abilities:
        """What its elements can and cannot do. Code checks this instead of `kind`."""
        return abilities_of(self.kind)

    @property
    def way(self) -> str:
        """How this process talks to the scheduler, as receipts name it: `commands`, `pyslurm 25.11.2`, or
        `pyslurm 25.11.2, then commands`. "" where there is no scheduler."""
        return ""

    def name(self) -> str:
        """The cluster's own name: a job's number means nothing without it. "" where jobs have no number.
        Raises TransientError while the cluster's controller does not answer."""
        return ""

    def remembers(self) -> float:
        """Seconds after its submission for which the cluster surely remembers an element: one that is LOST
        sooner may yet be found. 0 where LOST is final."""
        return 0.0

    def check(self, steps: Sequence[str], visit: Visit | None = None, *, met: bool = False) -> Sequence[str]:
        """Preflight for these steps. Raises PreflightError or ConfigError for what cannot work, quoting the
        cluster's own words; returns warnings. `met`: elements of an earlier submission still live, so nothing
        is tried on a node, and refusals become warnings."""
        return ()

    def core_results(
        self, steps: Sequence[str], cores: Mapping[str, NodeCores | None]
    ) -> Mapping[str, Sequence[CheckResult]]:
        """After `check`: how the cluster keeps the jobs of these steps off cores that its nodes need for
        themselves, by the names of nodes, "" for the cluster as a whole; what is said of a node ends with
        ` on <name>`. `cores` is what nodes said of their cores; None: nothing. Empty where the cluster
        reserves no cores, or was not reached. Raises TransientError and FailedError."""
        return {}

    @abstractmethod
    def slots(self, step: str) -> int:
        """How many elements of this step may run at once (a node each on SLURM)."""

    def asks(self, step: str) -> str:
        """What an element of this step takes of a node, for people; "" where elements are processes of this
        machine. Raises TransientError."""
        return ""

    @abstractmethod
    def max_array(self) -> int:
        """What the number of each element in its array is below."""

    def max_elements(self) -> int:
        """The most elements of one array. Raises TransientError."""
        return self.max_array()

    @abstractmethod
    def submit(self, spec: ArraySpec) -> str:
        """Submit once; returns the array's id, which the caller makes durable before it waits. After a
        TransientError it is not known whether the array was submitted: `find` says it. Raises FailedError
        where it was refused."""

    def find(self, name: str) -> Sequence[str]:
        """The ids of the arrays that were submitted under this name and that the cluster knows, the oldest
        first: one whose answer was lost may have ended before it is looked for. More than one: a submission
        whose answer was lost was carried out late, beside its repetition."""
        return ()

    def appears_within(self, *, ended: bool) -> float:
        """Seconds in which the array of a submission without an answer appears to `find`, if it ever does:
        from the end of `submit`, where that is known to have `ended`; else, since it may have been killed,
        from its beginning. 0: at once. Raises TransientError."""
        return 0.0

    def recall(self, array: str, name: str, spec_cores: int | None = None) -> None:
        """An array that an earlier controller submitted under this name: from now on a job of the same id and
        another name, which a cluster that lost its state may have, is not it. `spec_cores`: as
        `spec_cores` of its step was then; the next query reads it back, as after `submit`. It makes no
        query."""

    def spec_cores(self, step: str) -> int | None:
        """How many cores of its node each element of this step leaves to the node itself (`--core-spec`);
        None: nothing is asked for. Raises TransientError and FailedError."""
        return None

    @abstractmethod
    def states(self, array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        """The states of all these elements, by ONE query. An element it knows nothing of is
        LOST. Raises TransientError while the cluster's controller does not answer."""

    def accounting(self, array: str) -> Sequence[Accounted]:
        """What the cluster's accounting keeps of the array's elements that have started; () where there is
        none, or it does not know the array. Raises TransientError and FailedError where it cannot be
        asked."""
        return ()

    def states_of(self, arrays: Mapping[str, Sequence[int]]) -> Mapping[str, Mapping[int, Status]]:
        """`states` of each of these arrays, all by ONE query."""
        return {array: self.states(array, indices) for array, indices in arrays.items()}

    @abstractmethod
    def cancel(self, array: str, indices: Sequence[int] | None = None) -> None:
        """End the elements (without `indices` all of them). Returns when the cluster has accepted the order:
        elements may still run."""

    @abstractmethod
    def throttle(self, array: str, at_once: int) -> None:
        """Let at most so many elements of a living array (at least 1) run at once from now on. Those
        that run stay. An array that has ended is no error."""

    def longest(self, step: str) -> float | None:
        """The longest time limit that an element of this step may ask for, in seconds; 0 where there is none,
        None where the cluster does not show it: nothing is to be asked for then. Raises TransientError while
        the cluster's controller does not answer."""
        return 0.0

    def longest_anywhere(self) -> float:
        """The longest time limit of any partition, in seconds; 0 where none of them has one. Raises
        TransientError, FailedError."""
        return 0.0

    def spares(self, step: str, nodes: Sequence[str]) -> bool:
        """Whether elements of this step can run without these nodes. Raises TransientError while the
        cluster's controller does not answer."""
        return False

    def keep_off(self, array: str, step: str, nodes: Sequence[str]) -> None:
        """Elements of a living array that have not started go to none of these nodes, as far as the cluster
        lets this account say so."""

    @abstractmethod
    def interval(self, waited: float) -> float:
        """Seconds until the next query, after `waited` seconds of waiting."""

    def holder_ended(self, job: str) -> bool | None:
        """Of a lock's holder: True only when the cluster names this job as ended, False when it names
        it as alive (suspended is alive). None for a job that it does not know or may not show: that is
        not ended either, and the lock watches the heartbeat instead."""
        return None

    def live_job(self, job: str) -> LiveJob | None:
        """The job of this number, decimal, by one query; None where it has ended, or the cluster knows none.
        Where the cluster hides other accounts' jobs, one that it does not show counts as there. Raises
        TransientError, FailedError and PreflightError where the cluster cannot be asked."""
        return None

    def requeue(self, job: str) -> None:
        """End this job of a submitted controller, and let it wait to be started again under its number.
        Raises FailedError where that is refused, TransientError."""
        raise FailedError(
            "the job is not started again", why="SLURM alone does that", hint="give the command again"
        )

    def start_results(self, steps: Sequence[str]) -> Sequence[CheckResult]:
        """After `check`: when elements of these steps would start, and what would keep them from it. Empty
        where the cluster was not reached. Raises TransientError and FailedError."""
        return ()

    def kept_out(self, steps: Sequence[str], arrays: Sequence[str] = ()) -> str:
        """Why the controller's own job keeps elements of one of these steps from ever starting: without
        `arrays` a job of the step `submit` that is still to be submitted; else the job that this process is
        in, and elements of these arrays, which wait. "" where it does not, or that is not known. Raises
        TransientError and FailedError."""
        return ""
