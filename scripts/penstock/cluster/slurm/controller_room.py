"""Checks whether a controller's own job on SLURM keeps the elements of its run from starting.

An element of a whole node never starts on a node on which a controller's job has a core. A smaller element
does not start if the controller leaves too little. If a controller runs on every node that elements may use,
all elements wait until the first controller's time is over. The same happens if a limit admits no jobs except
the controllers. Therefore preflight stops a controller whose job takes the only node (`stop_on_only_node`).
If controllers wait for each other, the one submitted last ends itself (`why_kept_out`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.slurm.facts import fits
from penstock.core.range_lists import host_list
from penstock.core.run_steps import CheckResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.slurm.facts import Node
    from penstock.config.settings import JobOptions

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
