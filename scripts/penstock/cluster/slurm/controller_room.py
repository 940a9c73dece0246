"""Whether the job that the controller is, or is to be, keeps its own elements from starting.

An element of a whole node never starts on a node where a controller has a core. Where each node that elements
may use holds a controller, its own or another person's, all of them would wait until the first one's time is
over: the one that was submitted last ends. A limit of one running job does the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.slurm.nodes import fits
from penstock.core.checks import CheckResult
from penstock.core.host_lists import host_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.slurm.nodes import Node
    from penstock.config.settings import JobOptions

NAMES = ("penstock-submit-", "penstock-look-")
"""How the names of controllers' jobs begin (`workflow.controller_job`)."""
WAITS_FOR_NODES = re.compile(r"Resources|Priority|None|ReqNodeNotAvail|Nodes.required", re.IGNORECASE)
"""Reasons of elements that wait for a node; not of those that wait for a moment, a licence or a person."""
COUNTED = {
    re.compile(r"QOSMax\w+PerUser"): ("user", "qos"),
    re.compile(r"QOSGrpJobsLimit"): ("qos",),
    re.compile(r"MaxJobsPerAccount"): ("account", "qos"),
    re.compile(r"AssocMaxJobsLimit"): ("user", "account"),
    re.compile(r"AssocGrpJobsLimit"): ("account",),
}
"""Reasons of elements that wait until other jobs have ended, and what these jobs have in common with them."""
HINT = (
    "run `penstock run` where it takes no such node (a login node), or give the controller another partition "
    "(cluster.steps.submit.partition)"
)


MEMORY = 1 << 30
"""Bytes that a controller has where its job does not say."""


class QueuedJob(NamedTuple):
    """A job, or what waits of an array, as squeue shows it."""

    job: str
    array: str
    running: bool
    user: str
    account: str
    qos: str
    nodes: frozenset[str]
    reason: str
    name: str

    def controls(self, own: str) -> bool:
        """Whether a controller is in it; the job `own` has one in any case."""
        return self.name.startswith(NAMES) or self.job == own


def _common(reasons: Sequence[str]) -> list[Sequence[str]]:
    """By what each of these limits counts jobs; [] where one of the reasons is another."""
    counts = [[by for words, by in COUNTED.items() if words.match(reason)] for reason in reasons]
    return [by for found in counts for by in found] if all(counts) else []


def _alike(job: QueuedJob, waiting: QueuedJob, common: Sequence[Sequence[str]]) -> bool:
    return any(all(getattr(job, name) == getattr(waiting, name) for name in by) for by in common)


def leaves_none(
    elements: JobOptions,
    candidates: Sequence[Node],
    places: Sequence[str],
    memory: int | None,
    *,
    shares_memory: bool,
) -> list[CheckResult]:
    """Stops where a controller with so many bytes of memory on one of the nodes `places`, whichever it gets,
    leaves none of the candidates to elements.

    | candidates, away or not | elements                                        | verdict |
    |-------------------------|-------------------------------------------------|---------|
    | none, or more than one  | any                                             | none    |
    | one, not among `places` | any                                             | none    |
    | one, and it may hold    | fit beside a controller                         | none    |
    | another place           |                                                 |         |
    | one, the only place     | take whole nodes, or more than is left (`_fit`) | stop    |
    """
    names = {node.name for node in candidates}
    if len(names) != 1 or {*places} != names or _fit(elements, candidates[0], memory, shares_memory):
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


def _fit(elements: JobOptions, node: Node, memory: int | None, shares_memory: bool) -> bool:
    """Whether an element fits on the node beside a controller of one core and so much memory.
    `shares_memory`: a job that asks for no memory does not get all of the node's."""
    if elements.spec_cores is not None or elements.whole_nodes:
        return False
    if elements.memory is None and not shares_memory:
        return False
    left = node._replace(cpus=node.cpus - max(1, node.threads), memory=node.memory - (memory or MEMORY))
    return fits(elements, left)


def kept_out(
    elements: JobOptions,
    candidates: Sequence[Node],
    jobs: Sequence[QueuedJob],
    arrays: Sequence[str],
    own: str,
    memory: int | None,
    *,
    shares_memory: bool,
) -> str:
    """Why none of the waiting elements of these arrays can start while the job `own` of this controller runs,
    which has so much memory, as others are taken to have; "" where one may, or another controller has to end
    first.

    | the elements wait for | candidates that are not away           | of those controllers  | then  |
    |-----------------------|----------------------------------------|-----------------------|-------|
    | anything else         | any                                    | any                   | ""    |
    | a node                | one fits an element beside controllers | any                   | ""    |
    | a node                | all are kept by controllers            | a later one is there  | ""    |
    | a node                | all are kept by controllers            | this is the last      | why   |
    | an end of other jobs  | any; a running one is no controller    | any                   | ""    |
    | an end of other jobs  | any; all running ones are controllers  | this is the last      | why   |

    "Other jobs" are those that the limit counts, which the reason names (COUNTED).
    """
    waiting = [job for job in jobs if not job.running and job.array in arrays]
    mine = next((job for job in jobs if job.running and job.job == own), None)
    if not waiting or mine is None or any(job.running and job.array in arrays for job in jobs):
        return ""
    reasons = sorted({job.reason for job in waiting})
    if all(map(WAITS_FOR_NODES.match, reasons)):
        usable = [node for node in candidates if not node.away]
        keepers = [job for job in jobs if job.running and job.controls(own)]
        kept = [node for node in usable if any(node.name in job.nodes for job in keepers)]
        if (
            not usable
            or len(kept) < len(usable)
            or any(_fit(elements, node, memory, shares_memory) for node in usable)
        ):
            return ""
        names = {node.name for node in usable}
        keepers = [job for job in keepers if job.nodes & names]
        away = host_list(sorted(node.name for node in candidates if node.away))
        why = f"each node that elements may use now ({host_list(sorted(names))}) holds a controller's job"
        why += f"; {away} cannot be used" if away else ""
    elif common := _common(reasons):
        keepers = [job for job in jobs if job.running and _alike(job, waiting[0], common)]
        if not all(job.controls(own) for job in keepers):
            return ""
        why = f"this account may run no job beside controllers now ({', '.join(reasons)})"
    else:
        return ""
    if own not in {job.job for job in keepers} or any(int(job.job) > int(own) for job in keepers):
        return ""
    numbers = ", ".join(job.job for job in keepers)
    return f"{why}: job {numbers}; of controllers that wait for each other the last one ends"
