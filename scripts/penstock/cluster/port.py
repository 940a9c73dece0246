"""The port of clusters: job arrays of elements, and what differs between the backends. `local` runs elements
here, `slurm` on nodes; callers ask for an ability, never for a backend's name.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.errors import FailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from penstock.core.events import CheckResult
    from penstock.core.node_answer import NodeCores


# What differs between the backends: callers check an ability here, never a backend's name.
#
# | backend | its elements end with the controller | it has nodes |
# |---------|--------------------------------------|--------------|
# | local   | yes                                  | no           |
# | slurm   | no                                   | yes          |
#
# How long a cluster remembers an ended element, the cluster itself says (`Cluster.remembers`).


class Abilities(NamedTuple):
    """What the elements of a backend can and cannot do."""

    # Elements end with the process that submitted them. No other process can find, watch or cancel them, and
    # a controller cannot be submitted itself.
    elements_end_with_controller: bool
    # Elements run on other machines: their writes may appear here some seconds late, and one machine may read
    # what another wrote.
    has_nodes: bool


_TABLE = {
    "local": Abilities(elements_end_with_controller=True, has_nodes=False),
    "slurm": Abilities(elements_end_with_controller=False, has_nodes=True),
}
_UNKNOWN = _TABLE["slurm"]  # a backend of another version: its elements may still run somewhere


def abilities_of(backend: str) -> Abilities:
    """Return the abilities of a backend, by its name in `cluster.backend` and `arrays.jsonl`. An unknown name
    counts as a cluster with nodes whose elements run on."""
    return _TABLE.get(backend, _UNKNOWN)


# The port of clusters: job arrays of elements. `local` runs them here, `slurm` on nodes.
#
# An element is the process of a shard, an index of a job array. It works from the state on the target alone:
# its command line names the run's folder, the step and its index. What the cluster provides beside that (job,
# node, CPUs, memory) is a `JobEnvironment`. An element's receipt on the target proves its work; this port
# only reports how its process ended.
#
# Unless a method says more of errors, it raises TransientError while the cluster does not answer, and
# FailedError where it refuses.


class State(enum.Enum):
    """What became of an element, as far as the cluster can say."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"  # its process ended with exit status 0
    FAILED = "failed"  # ended otherwise: exit status, out of memory, time limit, node failure without requeue
    CANCELLED = "cancelled"
    LOST = "lost"  # the cluster no longer knows it, and cannot say how it ended

    @property
    def ended(self) -> bool:
        return self not in (State.PENDING, State.RUNNING)


class Cause(enum.Enum):
    """Why the cluster itself ended an element, for code; people read `Status.reason`."""

    NONE = ""  # the process ended by itself or by a signal, or has not ended
    TIME = "time"  # it reached its time limit
    NODE = "node"  # its node failed, and the cluster does not start it again
    LAUNCH = "launch"  # it could not be started on its node
    PREEMPTED = "preempted"  # another job took its place, and the cluster does not start it again


@dataclass(frozen=True)
class Status:
    """An element's state, with details for people."""

    state: State
    reason: str = ""  # in the cluster's own words, for people only: `OutOfMemory`, `exit 1`, `Priority`
    node: str = ""
    started: float = 0.0  # seconds since the epoch; 0: unknown
    ended: float = 0.0
    restarts: int = 0
    starting: bool = False  # its node is being switched on, rebooted or prepared; then it runs
    unknown: bool = False  # the cluster does not know it, but cannot have forgotten it yet: it may be at work
    completing: bool = False  # its processes have ended, or are being ended; the cluster still cleans up
    held: bool = False  # a person or the site holds it, until somebody releases it
    # it waits for more than a single job may have: it never starts, whatever else ends
    beyond_limit: bool = False
    expected: float = 0.0  # when the cluster expects it to start, in seconds since the epoch; 0: not said
    requeued: str = ""  # why it was started again (`preempted on n2`), at the query that first shows it
    # The exit status of its process. None: not ended, ended by a signal or by the cluster itself (time limit,
    # memory, node), or not reported.
    exit_code: int | None = None
    signal: int | None = None  # that killed its process, where the cluster reports it
    # the cluster reports that processes of it were killed for taking too much memory
    out_of_memory: bool = False
    cause: Cause = Cause.NONE
    # The node that failed under it, at the query that first shows it started again or not started.
    lost_node: str = ""


class LiveJob(NamedTuple):
    """A job, or a job array, of any account, that waits or runs."""

    uid: int | None  # of its account; None: the cluster shows other accounts' jobs to nobody
    waits_for: str = ""  # SLURM's reason while it has not started; "": it runs


class Accounted(NamedTuple):
    """What the cluster's accounting keeps of an element, over all its starts. Times are seconds since the
    epoch, 0 where unknown; sizes are bytes."""

    element: int
    starts: int = 1
    submitted: float = 0.0
    started: float = 0.0  # the last start; `ended` is its end
    ended: float = 0.0
    waited: float = 0.0  # seconds in the queue, summed over its starts
    seconds: float = 0.0  # seconds that it ran, summed over its starts
    granted_seconds: float = 0.0  # allocated CPUs times seconds; may include those that core-spec reserves
    cpu_seconds: float | None = None  # CPU time of its processes; None where the cluster gathers none
    memory_peak: int | None = None  # of its processes, as the cluster sampled it; None where it gathers none


@dataclass(frozen=True)
class ArraySpec:
    """A job array to be submitted."""

    # Unique to the dataset, run, step and submission: it finds an array whose id was lost. Only
    # `[A-Za-z0-9._-]`.
    name: str
    step: str  # chooses the job options (`cluster.steps`)
    indices: Sequence[int]  # the elements' numbers in the array, each below `Cluster.max_array`
    # The argument vector, absolute interpreter first. The element's own index (`base` plus its number in the
    # array) is appended.
    command: Sequence[str]
    logs: Path  # folder for output: `<step>-<index>.log` (SLURM: `<log_stem>-%A_%a.log`)
    # For the cluster's own listings: dataset, release, step. Keys and values like `name`.
    labels: Mapping[str, str] = field(default_factory=dict)
    at_once: int = 0  # elements that may run at once; 0: `slots(step)`
    mail: str = ""  # an address or account that gets mail when it ends or fails; "": none
    after: Sequence[str] = ()  # ids of jobs that must have ended, however, before it starts
    # Added to an element's number in the array to get its index: a step of more elements than an array holds
    # is submitted as several.
    base: int = 0
    time: int = 0  # time limit of each element, in seconds; 0: as configured
    exclude: Sequence[str] = ()  # nodes that none of its elements may run on, beside the configured ones


def log_stem(step: str, base: int) -> str:
    """Return the beginning of log names of arrays with this `ArraySpec.base`. These names end with numbers in
    the array, which differ from indices where there is a base."""
    return f"{step}-from{base}" if base else step


BAD_NODE = 84  # exit status of a worker that did no shard on its node, since every shard that it took failed
VISIT_FAILED = 85  # exit status of a failed visit: no shell (126, 127) and no cluster gives it


class VisitAnswer(NamedTuple):
    """A visit's answer file."""

    text: str
    uid: int  # the file's owner, as this machine sees it
    gid: int


def _as_it_stands(_: str, answer: VisitAnswer) -> str:
    return answer.text


@dataclass(frozen=True)
class Visit:
    """A command of penstock that preflight's probe job runs on a node, to open the dataset's sources and
    check that node's mounts."""

    # The command's words. The cluster adds `--answer FILE`; the command writes its answer there, and exits
    # with 0 or `VISIT_FAILED`.
    words: Sequence[str]
    stdin: str  # the command's standard input: a line
    answers: Path  # folder for FILE, visible here and on the node; preflight removes FILE
    hint: str = ""  # what a person can do when the visit fails
    # From a node's name and its answer file: why the visit failed there; "": it did not.
    read: Callable[[str, VisitAnswer], str] = _as_it_stands


class Cluster(ABC):
    """Where elements run. Methods that are not abstract answer for a machine without a scheduler."""

    kind: str  # the backend's name, for people and for files on disk: `local` or `slurm`

    @property
    def abilities(self) -> Abilities:
        """What its elements can and cannot do. Code checks this instead of `kind`."""
        return abilities_of(self.kind)

    @property
    def way(self) -> str:
        """How this process talks to the scheduler, as receipts name it; "": no scheduler. `commands`,
        `pyslurm 25.11.2`, or `pyslurm 25.11.2, then commands`."""
        return ""

    def name(self) -> str:
        """Return the cluster's own name: a job's number means nothing without it. "" where jobs have no
        number."""
        return ""

    def remembers(self) -> float:
        """Return the seconds after submission for which the cluster surely remembers an element. An element
        LOST sooner may still appear. 0: LOST is final."""
        return 0.0

    def check(self, steps: Sequence[str], visit: Visit | None = None, *, met: bool = False) -> Sequence[str]:
        """Run preflight for these steps; return warnings. Raises PreflightError or ConfigError for what
        cannot work, in the cluster's own words. `met`: elements of an earlier submission still live, so
        nothing is tried on a node, and refusals become warnings."""
        return ()

    def core_results(
        self, steps: Sequence[str], cores: Mapping[str, NodeCores | None]
    ) -> Mapping[str, Sequence[CheckResult]]:
        """After `check`: report how the cluster keeps jobs of these steps off cores that nodes need
        themselves. Results are by node name, "" for the whole cluster; a node's result ends with ` on
        <name>`. `cores`: what nodes reported of their cores; None: nothing. Empty where the cluster reserves
        no cores, or was not reached."""
        return {}

    @abstractmethod
    def slots(self, step: str) -> int:
        """Return how many elements of this step may run at once (a node each on SLURM)."""

    def asks(self, step: str) -> str:
        """Describe what an element of this step takes of a node, for people; "" where elements are local
        processes."""
        return ""

    @abstractmethod
    def max_array(self) -> int:
        """Return the number that every element's number in its array is below."""

    def max_elements(self) -> int:
        """Return the most elements of an array."""
        return self.max_array()

    @abstractmethod
    def submit(self, spec: ArraySpec) -> str:
        """Submit once; return the array's id, which the caller makes durable before it waits. After a
        TransientError the array may or may not be submitted: `find` answers that. Raises FailedError where it
        was refused."""

    def find(self, name: str) -> Sequence[str]:
        """List the ids of arrays submitted under this name that the cluster knows, the oldest first. They may
        have ended. More than one: a submission whose answer was lost was carried out late, beside its
        repetition."""
        return ()

    def appears_within(self, *, ended: bool) -> float:
        """Return the seconds in which an unanswered submission's array appears to `find`, if ever; 0: at
        once. They count from the end of `submit` if that has `ended`; else from its beginning, since it may
        have been killed."""
        return 0.0

    def recall(self, array: str, name: str, spec_cores: int | None = None) -> None:
        """Note that an earlier controller submitted this array under this name. No query is made. From now on
        a job of the same id and another name, as a cluster that lost its state may have, is not this array.
        The next query reads back `spec_cores` (of that time), as after `submit`."""

    def spec_cores(self, step: str) -> int | None:
        """Return the cores of its node that each element leaves to the node (`--core-spec`); None: not asked
        for."""
        return None

    @abstractmethod
    def states(self, array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        """Return the states of all these elements, by one query. Elements unknown to the cluster are LOST."""

    def accounting(self, array: str) -> Sequence[Accounted]:
        """Read the accounting of the array's elements that have started; () where the cluster has none, or
        does not know the array."""
        return ()

    def states_of(self, arrays: Mapping[str, Sequence[int]]) -> Mapping[str, Mapping[int, Status]]:
        """Return `states` of each array, all by one query."""
        return {array: self.states(array, indices) for array, indices in arrays.items()}

    @abstractmethod
    def cancel(self, array: str, indices: Sequence[int] | None = None) -> None:
        """End the elements, or all. Returns when the cluster has accepted the order: elements may still
        run."""

    @abstractmethod
    def throttle(self, array: str, at_once: int) -> None:
        """Let at most so many elements (at least 1) of a living array run at once from now on. Running
        elements stay. An array that has ended is no error."""

    def longest(self, step: str) -> float | None:
        """Return the longest time limit that an element of this step may ask for, in seconds. 0: there is
        none. None: the cluster does not show it, so nothing must be asked for."""
        return 0.0

    def longest_anywhere(self) -> float:
        """Return the longest time limit of any partition, in seconds; 0 where none has one."""
        return 0.0

    def spares(self, step: str, nodes: Sequence[str]) -> bool:
        """Return whether elements of this step can run without these nodes."""
        return False

    def keep_off(self, array: str, step: str, nodes: Sequence[str]) -> None:
        """Keep unstarted elements of a living array off these nodes, as far as the cluster lets this
        account."""

    @abstractmethod
    def interval(self, waited: float) -> float:
        """Return the seconds until the next query, after `waited` seconds of waiting."""

    def holder_ended(self, job: str) -> bool | None:
        """Return whether the job of a lock's holder has ended. True only when the cluster names it as ended,
        False when it names it as alive (suspended is alive). None: unknown or hidden, which does not mean
        ended; the lock watches the heartbeat instead."""
        return None

    def live_job(self, job: str) -> LiveJob | None:
        """Query the job of this decimal number; None where it has ended or is unknown. Where the cluster
        hides other accounts' jobs, a job that it does not show counts as living. Also raises PreflightError
        where the cluster cannot be asked."""
        return None

    def requeue(self, job: str) -> None:
        """End this job of a submitted controller, and queue it again under its number."""
        raise FailedError(
            "the job is not started again", why="SLURM alone does that", hint="give the command again"
        )

    def start_results(self, steps: Sequence[str]) -> Sequence[CheckResult]:
        """After `check`: report when elements of these steps would start, and what would prevent it. Empty
        where the cluster was not reached."""
        return ()

    def kept_out(self, steps: Sequence[str], arrays: Sequence[str] = ()) -> str:
        """Explain why the controller's own job keeps elements of these steps from ever starting; "": it does
        not, or that is unknown. Without `arrays`, the job is one of the step `submit`, still to be submitted.
        With `arrays`, it is this process's job, and the elements are waiting elements of these arrays."""
        return ""
