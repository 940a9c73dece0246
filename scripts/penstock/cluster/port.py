"""The port of clusters: job arrays of elements, and the differences between the backends. `local` runs
elements on this machine, `slurm` on nodes.
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

    from penstock.core.node_answer import NodeCores
    from penstock.core.run_steps import CheckResult


# Differences between the backends. Callers check an ability here, never a backend's name.
#
# | backend | its elements end with the controller | it has nodes |
# |---------|--------------------------------------|--------------|
# | local   | yes                                  | no           |
# | slurm   | no                                   | yes          |
#
# `Cluster.remembers` returns how long a cluster remembers an ended element.


class Abilities(NamedTuple):
    """What the elements of a backend can and cannot do."""

    # Whether elements end with the process that submitted them. Then no other process can find, watch or
    # cancel them, and a controller cannot itself be submitted as a job.
    elements_end_with_controller: bool
    # Whether elements run on other machines. Then their writes may appear here some seconds late, and one
    # machine may read files that another wrote.
    has_nodes: bool


_TABLE = {
    "local": Abilities(elements_end_with_controller=True, has_nodes=False),
    "slurm": Abilities(elements_end_with_controller=False, has_nodes=True),
}
_UNKNOWN = _TABLE["slurm"]  # a backend of another version: its elements may still run somewhere


def abilities_of(backend: str) -> Abilities:
    """Return the abilities of a backend from its name in `cluster.backend` or `arrays.jsonl`. A backend with
    an unknown name counts as a cluster with nodes whose elements outlive the controller."""
    return _TABLE.get(backend, _UNKNOWN)


# An element is the process that works on a shard; it has an index in a job array. It needs only the state on
# the target: its command line names the run's folder, the step and the index. The cluster's own facts (job,
# node, CPUs, memory) are its `JobEnvironment`. An element's receipt on the target proves its work; this port
# only reports how its process ended.
#
# Unless a method's docstring says more of errors, the method raises TransientError while the cluster does not
# answer, and FailedError if the cluster refuses.


class State(enum.Enum):
    """What became of an element, as far as the cluster can say."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"  # the element's process ended with exit status 0
    FAILED = "failed"  # it did not end with 0: exit status, memory, time limit, node failure without requeue
    CANCELLED = "cancelled"
    LOST = "lost"  # the cluster no longer knows the element, and cannot say how it ended

    @property
    def ended(self) -> bool:
        return self not in (State.PENDING, State.RUNNING)


class Cause(enum.Enum):
    """Why the cluster itself ended an element. Code reads this; people read `Status.reason`."""

    NONE = ""  # the process ended by itself or by a signal, or has not ended
    TIME = "time"  # the element reached its time limit
    NODE = "node"  # the element's node failed, and the cluster does not start the element again
    LAUNCH = "launch"  # the element could not be started on its node
    PREEMPTED = "preempted"  # another job took the element's place, and the cluster does not start it again


@dataclass(frozen=True)
class Status:
    """An element's state, with details for people."""

    state: State
    reason: str = ""  # the cluster's words for the cause: `OutOfMemory`, `exit 1`, `Priority`
    node: str = ""
    started: float = 0.0  # the start, in seconds since the epoch; 0 if unknown
    ended: float = 0.0
    restarts: int = 0
    starting: bool = False  # the node is being switched on, rebooted or prepared, before the element runs
    unknown: bool = False  # unknown to the cluster, which cannot have forgotten it yet: it may still run
    completing: bool = False  # the processes have ended, or are being ended; the cluster still cleans up
    held: bool = False  # a person or the site holds the element until somebody releases it
    # the element asks for more than a single job may have, so it never starts, whichever jobs end
    beyond_limit: bool = False
    expected: float = 0.0  # expected start, in seconds since the epoch; 0 if the cluster names none
    requeued: str = ""  # why the element runs again (`preempted on n2`), set by the first query that shows it
    # The process's exit status. None if the process has not ended, if a signal or the cluster itself
    # (time limit, memory, node) ended it, or if the cluster does not report the status.
    exit_code: int | None = None
    signal: int | None = None  # the signal that killed the process, if the cluster reports one
    # whether the cluster reports that processes of the element were killed for taking too much memory
    out_of_memory: bool = False
    cause: Cause = Cause.NONE
    # The node that failed under the element. Set by the first query that shows it requeued or started again.
    lost_node: str = ""


class LiveJob(NamedTuple):
    """A job, or a job array, of any account, that waits or runs."""

    uid: int | None  # uid of the job's account; None if the cluster hides other accounts' jobs
    waits_for: str = ""  # SLURM's reason why the job has not started; "" if it runs


class Accounted(NamedTuple):
    """The cluster's accounting record of an element, over all its starts. Times are seconds since the epoch,
    0 if unknown; sizes are bytes."""

    element: int
    starts: int = 1
    submitted: float = 0.0
    started: float = 0.0  # time of the last start; `ended` is the end of this start
    ended: float = 0.0
    waited: float = 0.0  # seconds in the queue, summed over its starts
    seconds: float = 0.0  # seconds that it ran, summed over its starts
    granted_seconds: float = 0.0  # allocated CPUs times seconds; may include CPUs that core-spec reserves
    cpu_seconds: float | None = None  # CPU time of its processes; None if the cluster gathers none
    memory_peak: int | None = None  # peak of its processes' memory as the cluster sampled it; None if not


@dataclass(frozen=True)
class ArraySpec:
    """A job array to be submitted."""

    # Unique to the dataset, run, step and submission, so that an array whose id was lost can be found by it.
    # Only `[A-Za-z0-9._-]`.
    name: str
    step: str  # chooses the job options (`cluster.steps`)
    indices: Sequence[int]  # the elements' numbers in the array, each below `Cluster.max_array`
    # The argument vector, beginning with the interpreter's absolute path. The element's own index (`base`
    # plus its number in the array) is appended.
    command: Sequence[str]
    logs: Path  # folder for output: `<step>-<index>.log` (SLURM: `<log_stem>-%A_%a.log`)
    # Labels for the cluster's own listings: dataset, release, step. Keys and values have the form of `name`.
    labels: Mapping[str, str] = field(default_factory=dict)
    at_once: int = 0  # elements that may run at once; 0: `slots(step)`
    mail: str = ""  # the address or account that gets mail when the array ends or fails; "" for no mail
    after: Sequence[str] = ()  # ids of jobs that must have ended, with or without success, before it starts
    # The number to add to an element's number in the array to get its index. A step with more elements than
    # an array can have is submitted as several arrays.
    base: int = 0
    time: int = 0  # time limit of each element, in seconds; 0: as configured
    exclude: Sequence[str] = ()  # nodes on which its elements must not run, besides the configured ones


def log_stem(step: str, base: int) -> str:
    """Return the beginning of log names for arrays with this `ArraySpec.base`. A log's name ends with the
    element's number in the array, which differs from its index unless the base is 0."""
    return f"{step}-from{base}" if base else step


BAD_NODE = 84  # exit status of a worker for which every shard that it tried on its node failed
VISIT_FAILED = 85  # exit status of a failed visit; no shell (126, 127) and no cluster uses it


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

    # The command's words. The cluster adds `--answer FILE`; the command writes its answer to FILE, and exits
    # with 0 or `VISIT_FAILED`.
    words: Sequence[str]
    stdin: str  # the command's standard input: a line
    answers: Path  # folder for FILE, visible here and on the node; preflight removes FILE
    hint: str = ""  # what a person can do when the visit fails
    # Takes a node's name and its answer file; returns why the visit failed there, or "" if it did not fail.
    read: Callable[[str, VisitAnswer], str] = _as_it_stands


class Cluster(ABC):
    """The cluster on which elements run. Methods that are not abstract suit a machine without a scheduler."""

    kind: str  # the backend's name, for people and for files on disk: `local` or `slurm`

    @property
    def abilities(self) -> Abilities:
        """The abilities of its elements. Code checks these instead of `kind`."""
        return abilities_of(self.kind)

    @property
    def way(self) -> str:
        """How this process talks to the scheduler, as receipts record it: `commands`, `pyslurm 25.11.2`, or
        `pyslurm 25.11.2, then commands`; "" without a scheduler."""
        return ""

    def name(self) -> str:
        """Return the cluster's own name, without which a job's number means nothing; "" if jobs have no
        numbers."""
        return ""

    def remembers(self) -> float:
        """Return the seconds after submission during which the cluster surely remembers an element. An
        element that is LOST during this time may still appear. 0 means that LOST is final."""
        return 0.0

    def check(self, steps: Sequence[str], visit: Visit | None = None, *, met: bool = False) -> Sequence[str]:
        """Run preflight for these steps; return warnings. If a step cannot work, raises PreflightError or
        ConfigError in the cluster's own words. If `met`, elements of an earlier submission are still running:
        then nothing is tried on a node, and refusals become warnings."""
        return ()

    def core_results(
        self, steps: Sequence[str], cores: Mapping[str, NodeCores | None]
    ) -> Mapping[str, Sequence[CheckResult]]:
        """After `check`: report how the cluster keeps jobs of these steps off cores that nodes need
        themselves. The keys are nodes' names, and "" for the whole cluster; a node's result ends with ` on
        <name>`. `cores` holds the nodes' reports of their cores (None: no report). Returns {} if the cluster
        reserves no cores, or was not reached."""
        return {}

    @abstractmethod
    def slots(self, step: str) -> int:
        """Return how many elements of this step may run at once. On SLURM each element has a node."""

    def asks(self, step: str) -> str:
        """Describe for people the share of a node that an element of this step takes; "" if elements are
        local processes."""
        return ""

    @abstractmethod
    def max_array(self) -> int:
        """Return the limit that every element's number in its array must be below."""

    def max_elements(self) -> int:
        """Return the most elements of an array."""
        return self.max_array()

    @abstractmethod
    def submit(self, spec: ArraySpec) -> str:
        """Submit once; return the array's id, which the caller makes durable before it waits. After a
        TransientError the array may or may not be submitted; `find` then searches for it. Raises FailedError
        if the array was refused."""

    def find(self, name: str) -> Sequence[str]:
        """List the ids of arrays submitted under this name that the cluster knows, the oldest first. They may
        have ended. Several ids mean that the cluster carried out both a submission whose answer was lost, and
        the repetition of that submission."""
        return ()

    def appears_within(self, *, ended: bool) -> float:
        """Return the seconds within which `find` can see the array of an unanswered submission, if ever; 0
        means at once. They count from the end of `submit` if that call has `ended`, or else from its
        beginning, since the caller may have been killed."""
        return 0.0

    def recall(self, array: str, name: str, spec_cores: int | None = None) -> None:
        """Note, without a query, that an earlier controller submitted this array under this name. From now on
        a job with this id but another name, as a cluster that lost its state may have, is not this array. The
        next query compares the array's core-spec with `spec_cores`, the earlier request, as after
        `submit`."""

    def spec_cores(self, step: str) -> int | None:
        """Return how many cores each element leaves to its node (`--core-spec`); None if the option is not
        used."""
        return None

    @abstractmethod
    def states(self, array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        """Return the states of all these elements, by one query. Elements unknown to the cluster are LOST."""

    def accounting(self, array: str) -> Sequence[Accounted]:
        """Read the accounting of the array's elements that have started; () if the cluster has no accounting,
        or does not know the array."""
        return ()

    def states_of(self, arrays: Mapping[str, Sequence[int]]) -> Mapping[str, Mapping[int, Status]]:
        """Return the `states` of each array, all by one query."""
        return {array: self.states(array, indices) for array, indices in arrays.items()}

    @abstractmethod
    def cancel(self, array: str, indices: Sequence[int] | None = None) -> None:
        """End these elements, or the whole array. Returns when the cluster has accepted the order; elements
        may still be running."""

    @abstractmethod
    def throttle(self, array: str, at_once: int) -> None:
        """From now on, let at most `at_once` elements (at least 1) of a live array run at once. Running
        elements continue. An array that has ended is no error."""

    def longest(self, step: str) -> float | None:
        """Return the longest time limit, in seconds, that an element of this step may ask for; 0 if time is
        unlimited. None means that the cluster does not show it, so no time must be asked for."""
        return 0.0

    def longest_anywhere(self) -> float:
        """Return the longest time limit of any partition, in seconds; 0 if no partition has a limit."""
        return 0.0

    def spares(self, step: str, nodes: Sequence[str]) -> bool:
        """Return whether elements of this step can run without these nodes."""
        return False

    def keep_off(self, array: str, step: str, nodes: Sequence[str]) -> None:
        """Keep unstarted elements of a live array off these nodes, as far as this account may do so."""

    @abstractmethod
    def interval(self, waited: float) -> float:
        """Return the seconds until the next query, after `waited` seconds of waiting."""

    def holder_ended(self, job: str) -> bool | None:
        """Return whether the job of a lock's holder has ended: True only if the cluster reports it as ended,
        False if it reports it as alive (or suspended). None means that the job is unknown or hidden, and may
        be alive; the lock then watches the heartbeat instead."""
        return None

    def live_job(self, job: str) -> LiveJob | None:
        """Query the job of this decimal number; None if it has ended or is unknown. If the cluster hides
        other accounts' jobs, a job that it does not show counts as alive. Also raises PreflightError if the
        cluster cannot be queried."""
        return None

    def requeue(self, job: str) -> None:
        """End this job of a submitted controller, and queue it again under its number."""
        raise FailedError(
            "the job is not started again", why="SLURM alone does that", hint="give the command again"
        )

    def start_results(self, steps: Sequence[str]) -> Sequence[CheckResult]:
        """After `check`: report when elements of these steps would start, and any obstacles to that. Empty if
        the cluster was not reached."""
        return ()

    def kept_out(self, steps: Sequence[str], arrays: Sequence[str] = ()) -> str:
        """Explain why the controller's own job keeps elements of these steps from ever starting; "" if it
        does not, or that is unknown. Without `arrays`, the controller's job (step `submit`) is not submitted
        yet. With `arrays`, it is this process's job, and the elements are those of these arrays that wait."""
        return ""
