"""The memory that a submitted controller's job asks for, and the refusal of a run that would outgrow it.

`penstock run --submit` asks for `needed` bytes, computed from the datasets' last listings (`last_listing`).
If the job has too little, the run ends right after its own listing (`refuse_outgrown`). Otherwise SLURM would
kill it in the middle of plan.

The job contains `penstock run`, Snakemake, and as many datasets' steps at once as Snakemake has cores
(`--cores`, or else profiles/default). Elements have jobs of their own. So the job asks for CONTROLLER and,
for each of the largest datasets that may have steps at the same time,

    STEP + files * FILE + min(files, RENAMES) * RENAMED

The memory of a step's processes in MiB, measured with S3 objects; shared pages count in each process (`python
benchmarks/controller.py 100000 1000000`; `10000000 --until plan`; `300000 1000000 2000000 --changed`):

| files                             | list | plan | permissions | publish |
|-----------------------------------|------|------|-------------|---------|
| 100,000                           | 142  | 150  | 50          | 271     |
| 1,000,000                         | 180  | 160  | 57          | 209     |
| 10,000,000                        | 178  | 160  |             |         |
| 300,000, all in another version   | 140  | 367  |             |         |
| 1,000,000, all in another version | 160  | 865  |             |         |
| 2,000,000, all in another version | 168  | 439  |             |         |

Only plan grows: it compares up to RENAMES new files with as many remaining files of the current release
(`run.previous_release`). A file with a name of 30 characters takes 740 bytes; RENAMED and FILE include
margins. Snakemake takes 121 MiB with one dataset, and `penstock run` 37 MiB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.errors import FailedError, PenstockError
from penstock.dataset import run_store, seals
from penstock.host import kernel_facts
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run

LEAST = 1 << 30  # fewest bytes that the job asks for
CONTROLLER = 192 << 20  # bytes of `penstock run` and Snakemake
STEP = 272 << 20  # bytes of a step of a dataset without files
FILE = 16  # bytes for each file
RENAMED = 1200  # additional bytes for each file that plan compares with the release, up to RENAMES
RENAMES = 1_000_000  # equal to `run.previous_release.MOST`, in a higher room (a test compares the two)
FIRST = 10_000_000  # assumed number of files of a dataset that was never listed
AT_ONCE = 8  # steps at once if `--cores` is not used


def needed(files: Sequence[int | None], at_once: int | None = None) -> int:
    """Return the bytes that a controller's job asks for. `files` has each dataset's number of files (None if
    never listed); `at_once` datasets have a step at the same time."""
    each = [_step(FIRST, released=False) if count is None else _step(count, released=True) for count in files]
    return max(LEAST, CONTROLLER + sum(sorted(each, reverse=True)[: at_once or AT_ONCE]))


def last_listing(layout: DatasetLayout) -> int | None:
    """Return the number of files of the dataset's last listing, or of the current release; None if neither is
    readable. The listing also counts if the run ended right after it (`refuse_outgrown`)."""
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
    """Raise FailedError if this controller's job has less memory than plan takes for the listed files.

    Steps of other datasets at the same time are not counted.

    | this process is in a job | the run's elements are | the job's memory         | then      |
    |--------------------------|------------------------|--------------------------|-----------|
    | no                       | anywhere               | any                      | nothing   |
    | yes                      | in the same job        | any                      | nothing   |
    | yes                      | in jobs of their own   | not limited, or enough   | nothing   |
    | yes                      | in jobs of their own   | less than this run takes | the error |

    The listing stays with the run, so the next `run --submit` asks for enough memory.
    """
    job = kernel_facts.current_job()
    if not job.proven or context.cluster.abilities.elements_end_with_controller:
        return
    limits = [limit for limit in (job.memory, kernel_facts.memory_limit()) if limit is not None]
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
    """Return the bytes for a dataset's steps. `released`: there may be a release to compare with."""
    return STEP + files * FILE + (min(files, RENAMES) * RENAMED if released else 0)
