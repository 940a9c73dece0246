"""The memory that a submitted controller's job asks for, and the refusal of a run that would outgrow it.

`penstock run --submit` asks for `needed` bytes, by what the last listing of each dataset counted
(`last_listing`). A run in that job ends right after its own listing where the job has too little for it
(`refuse_outgrown`), or SLURM would kill it in the middle of plan. Run documents, seals and this job's limits
are read, and nothing is changed. Sizes are bytes.

The job holds `penstock run`, Snakemake, and a step of as many datasets at once as Snakemake has cores
(`--cores`, else profiles/default); the elements, which copy, have jobs of their own. So it asks for
CONTROLLER, and for the datasets that take most, as many as have a step at once,

    STEP + files * FILE + min(files, RENAMES) * RENAMED

A dataset that was never listed counts as FIRST files, none of them renamed, since no release is there to
compare with.

Measured, of S3 objects, MiB of a step's processes, shared pages counted in each (`python
benchmarks/controller.py 100000 1000000`; `10000000 --until plan`; `300000 1000000 2000000 --changed`):

| files                             | list | plan | permissions | publish |
|-----------------------------------|------|------|-------------|---------|
| 100,000                           | 142  | 150  | 50          | 271     |
| 1,000,000                         | 180  | 160  | 57          | 209     |
| 10,000,000                        | 178  | 160  |             |         |
| 300,000, all in another version   | 140  | 367  |             |         |
| 1,000,000, all in another version | 160  | 865  |             |         |
| 2,000,000, all in another version | 168  | 439  |             |         |

Plan compares what is new with what is left over of the current release, up to RENAMES files of either
(`run.planning.renamed_rows`), and that is what grows: by 740 bytes a file with names of 30 characters.
RENAMED has a margin over that. Nothing else grows, up to ten million files; FILE is a margin for more.
Snakemake takes 121 MiB with one dataset, and `penstock run` 37.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.errors import FailedError, PenstockError
from penstock.dataset import run_store, seals
from penstock.host import cgroups, job_environment
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.dataset.run import Run

LEAST = 1 << 30
"""Bytes that the job asks for at least."""
CONTROLLER = 192 << 20
"""Bytes of `penstock run` and Snakemake."""
STEP = 272 << 20
"""Bytes of a step of a dataset without files."""
FILE = 16
"""Bytes for each file."""
RENAMED = 1200
"""Bytes more for each file that plan compares with the current release, up to RENAMES."""
RENAMES = 1_000_000
"""`run.planning.renamed_rows.MOST`, which stands above this room (a test compares the two)."""
FIRST = 10_000_000
"""Files of a dataset that was never listed."""
AT_ONCE = 8
"""Steps at once without `--cores`."""


def needed(files: Sequence[int | None], at_once: int | None = None) -> int:
    """The bytes of memory that a controller's job asks for, by the `files` of each of its datasets (None: it
    was never listed), of which `at_once` have a step at the same time; at least LEAST."""
    each = [_step(FIRST, released=False) if count is None else _step(count, released=True) for count in files]
    return max(LEAST, CONTROLLER + sum(sorted(each, reverse=True)[: at_once or AT_ONCE]))


def last_listing(layout: DatasetLayout) -> int | None:
    """The files that the dataset's last listing counted, also where the run ended there (`refuse_outgrown`);
    else those of the release that `current` names; None where neither can be read."""
    try:
        return run_store.open_run(layout).info.files
    except PenstockError:
        pass
    try:
        current = dataset_folders.current(layout)
        stored = seals.find(layout, current) if current else None
    except PenstockError:
        return None
    return stored.seal.files if stored else None


def refuse_outgrown(context: Context, run: Run) -> None:
    """Raises FailedError where the controller's job, which this process is in, has less memory than plan
    takes for the files that the run has listed. Steps of other datasets at the same time are not counted.

    | this process is in a job | the run's elements are | the job's memory         | then      |
    |--------------------------|------------------------|--------------------------|-----------|
    | no                       | anywhere               | any                      | nothing   |
    | yes                      | in the same job        | any                      | nothing   |
    | yes                      | in jobs of their own   | not limited, or enough   | nothing   |
    | yes                      | in jobs of their own   | less than this run takes | the error |

    The listing stays as the run's: the next `run --submit` asks for what it counted.
    """
    job = job_environment.current()
    if not job.proven or context.cluster.abilities.elements_end_with_controller:
        return
    limits = [limit for limit in (job.memory, cgroups.memory_limit()) if limit is not None]
    files, released = run.info.files, dataset_folders.current(run.layout) is not None
    takes = CONTROLLER + _step(files, released=released)
    if limits and min(limits) < takes:
        raise FailedError(
            "the listing outgrows the memory of the controller's job",
            where=run.dataset,
            why=f"{human.counted(files, 'file')} were listed, for which {human.size(takes)} are needed; job "
            f"{job.job} has {human.size(min(limits))}",
            hint=f"`{context.program} run --submit {run.dataset}` asks for more now, by this listing; where "
            "cluster.steps.submit.memory, or a job of your own, says how much: raise it",
        )


def _step(files: int, *, released: bool) -> int:
    """Bytes for the steps of a dataset. `released`: there is, or may be, a release to compare with."""
    return STEP + files * FILE + (min(files, RENAMES) * RENAMED if released else 0)
