"""Whether a run may still be alive: its arrays, its elements on this host or another, its controller.

While one of these functions reports anything, no run is overtaken and nothing of it is removed. They query
the cluster (and may wait for it), and write only which arrays have ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import PenstockError
from penstock.core.step_table import RUN_IN_ELEMENTS
from penstock.dataset import holder as holders
from penstock.jobs.arrays.array_runner import still_alive

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.core.dataset_documents import ClaimFile
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
    """Name the arrays of a run or repair that may still write; "" when all are known to have ended.

    With `patient` it waits until the cluster answers; else a silent cluster is a TransientError. Raises
    LockedError where only another cluster or backend could answer.
    """
    phrases = []
    for step in steps:
        alive = still_alive(context, dataset, folder, step, patient=patient)
        if alive:
            phrases.append(f"array {', '.join(alive)} of {step} has not ended")
    return "; ".join(phrases)


def of_claim(context: Context, layout: DatasetLayout, claim: ClaimFile) -> str:
    """Name what may still run for the run that made the claim; "" when nothing does.

    Waits for the cluster; raises as `arrays_of`.

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
    """Name the claim's workflow if it lives, here or by its scheduler; "" for this process's own."""
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
    """Return whether a job of this cluster has ended, by its scheduler; None if not known. Another cluster's
    job is never known: its number may belong to a different job here."""
    try:
        if not cluster or context.cluster.name() != cluster:
            return None
    except PenstockError:
        return None
    return context.cluster.holder_ended(job)
