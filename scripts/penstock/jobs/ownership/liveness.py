"""Whether a run may still be alive: its arrays, its elements on this host or another, its controller.

No run is overtaken, and nothing of it removed, while one of these functions reports something that may live:
locks, claims, gc and status call them. They read the run's state, query the cluster (and may wait
until it answers), and look at processes of this machine. They write only into the run's list of arrays: which
ones have ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import PenstockError
from penstock.core.step_table import RUN_IN_ELEMENTS
from penstock.dataset import holder as holders
from penstock.jobs.arrays.array_runner import still_alive

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.core.documents.marks import ClaimFile
    from penstock.core.layout import DatasetLayout, RunLayout
    from penstock.dataset.context import Context


def arrays_of(
    context: Context,
    dataset: str,
    folder: RunLayout,
    *,
    steps: Iterable[str] = RUN_IN_ELEMENTS,
    patient: bool = True,
) -> str:
    """Names, in a phrase for people, the arrays of a run that have elements which may still write; "" when
    all are known to have ended. `folder`: of the run, or of a repair. With `patient` it waits until the
    cluster answers; else a cluster that does not answer is a TransientError. Raises LockedError where only
    another cluster or backend could say."""
    phrases = []
    for step in steps:
        alive = still_alive(context, dataset, folder, step, patient=patient)
        if alive:
            phrases.append(f"array {', '.join(alive)} of {step} has not ended")
    return "; ".join(phrases)


def of_claim(context: Context, layout: DatasetLayout, claim: ClaimFile) -> str:
    """Names, in a phrase for people, what may still run for the run that made the claim; "" when nothing
    does. A claim says which run the dataset is staged for. Waits for the cluster; raises as `arrays_of`.

    | arrays of it | publish's receipt | its controller                       | lives |
    |--------------|-------------------|--------------------------------------|-------|
    | may write    | any               | any                                  | yes   |
    | ended        | there             | any                                  | no    |
    | ended        | none              | lives on this host                   | yes   |
    | ended        | none              | its job is alive, says its scheduler | yes   |
    | ended        | none              | dead, none, or cannot be seen        | no    |

    No step of that run can be at work: the caller holds the lock, and a lock whose heartbeat moves is never
    taken over.
    """
    if not claim.run:
        return ""
    folder = layout.run(claim.run)
    if arrays := arrays_of(context, layout.dataset, folder):
        return arrays
    if folder.receipt("publish").exists() or not folder.run_file.exists():
        return ""
    return controller_of(context, claim)


def controller_of(context: Context, claim: ClaimFile) -> str:
    """Names, in a phrase for people, the workflow that the claim was made for, where it is seen to live here
    or by its scheduler; else "", also where it is this process's own."""
    by = holders.from_json(claim.by)
    if by is None or claim.controller == context.controller:
        return ""
    pid, _, start = claim.controller.partition(".")
    if pid.isdecimal() and holders.is_here(by):
        if holders.start_time(int(pid)) == start:
            return f"its workflow is at work: process {pid} on {by.host}, of {by.user}"
        return ""
    if claim.controller and by.job and scheduler(context, by.job, by.cluster) is False:
        return f"its controller is at work: SLURM job {by.job} of cluster {by.cluster}, of {by.user}"
    return ""


def scheduler(context: Context, job: str, cluster: str) -> bool | None:
    """Whether a job of this cluster has ended, by its scheduler (`Cluster.holder_ended`). None where that is
    not known: also for a job of another cluster, whose number may belong to a different job here."""
    try:
        if not cluster or context.cluster.name() != cluster:
            return None
    except PenstockError:
        return None
    return context.cluster.holder_ended(job)
