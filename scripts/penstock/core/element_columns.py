"""The columns of `elements.parquet`, each declared once: what an element of a run did, waited for and used.

Each start of an element is a row; the last one also has the facts of the element as a whole. `ElementRow`
gives the Parquet schema and each column's unit (`tables.elements_file`). Tests compare it with the table in
docs/formats.md.
"""

# Annotations are read at run time: no `from __future__ import annotations`.
from typing import Annotated, NamedTuple, get_args

FORMAT = 1  # readers know a column by its name: raise it only if a column's meaning changes
TIME = "time"  # as a unit: seconds since the epoch in a row, a timestamp in the file


class ElementRow(NamedTuple):
    """A start. Each column has its unit, or "", and its meaning. None: not known, null in the file."""

    step: Annotated[str, "", "`copy`, also where it read back beside it, or `verify`"]
    element: Annotated[int, "", "its number, over all arrays of the step"]
    restarts: Annotated[int, "", "how often SLURM had started it before"] = 0
    node: Annotated[str | None, "", "where it ran"] = None
    array: Annotated[str | None, "", "SLURM's number of its array; null of local elements"] = None
    submitted: Annotated[float | None, TIME, "when that was submitted, by the controller's clock"] = None
    started: Annotated[float | None, TIME, "the start"] = None
    ended: Annotated[float | None, TIME, "the end; of one that was killed, its last word"] = None
    queue_wait: Annotated[float | None, "s", "from submission to last start, without earlier runs"] = None
    queue_wait_by: Annotated[str | None, "", "who knows that: `slurmdbd`, `controller` or `element`"] = None
    starts_missing: Annotated[int | None, "", "starts of this element that left no figures"] = None
    seconds: Annotated[float | None, "s", "of the wall clock in which it ran"] = None
    hours_by: Annotated[str | None, "", "who knows `seconds`: the `element`, or `slurmdbd` if more"] = None
    whole_node: Annotated[bool | None, "", "whether it had its node for itself"] = None
    node_hours: Annotated[float | None, "node hours", "`seconds`, where the node is its own"] = None
    core_hours: Annotated[float | None, "core hours", "`seconds` times the CPUs that it was granted"] = None
    cpus: Annotated[int | None, "CPUs", "granted to it"] = None
    node_cpus: Annotated[int | None, "CPUs", "that the node has"] = None
    cpu_seconds: Annotated[float | None, "s", "CPU time of all its processes (getrusage, /proc)"] = None
    granted_seconds: Annotated[float | None, "s", "of CPU time: its own seconds x CPUs granted"] = None
    cpu_efficiency: Annotated[float | None, "", "`cpu_seconds` / `granted_seconds`; 1 is all of them"] = None
    memory_peak: Annotated[int | None, "bytes", "its processes' own peaks (VmHWM), summed"] = None
    processes: Annotated[int | None, "", "how many processes that sum is of"] = None
    job_memory_peak: Annotated[int | None, "bytes", "of its job's control group, with cached files"] = None
    job_memory_file: Annotated[str | None, "", "`memory.peak` or `memory.max_usage_in_bytes`"] = None
    shards: Annotated[int, "", "of which it wrote the receipts of this step"] = 0
    files: Annotated[int, "", "rows of these shards"] = 0
    bytes: Annotated[int, "bytes", "of these rows"] = 0
    slurm_starts: Annotated[int | None, "", "by slurmdbd: how often it was started"] = None
    slurm_seconds: Annotated[float | None, "s", "by slurmdbd: ElapsedRaw of all its starts"] = None
    slurm_cpu_seconds: Annotated[float | None, "s", "by slurmdbd: TotalCPU, where SLURM gathers it"] = None
    slurm_granted_seconds: Annotated[float | None, "s", "by slurmdbd: CPUTimeRAW, with core-spec"] = None
    slurm_memory_peak: Annotated[int | None, "bytes", "by slurmdbd: MaxRSS of its batch step"] = None


class ElementColumn(NamedTuple):
    """A column of the file."""

    name: str
    kind: object  # str, int, float, bool, or TIME
    unit: str
    means: str


def _column(name: str, annotation: object) -> ElementColumn:
    value, unit, means = get_args(annotation)
    kind = next(iter(get_args(value)), value)
    return ElementColumn(name, TIME if unit == TIME else kind, unit.removeprefix(TIME), means)


COLUMNS = tuple(_column(*item) for item in ElementRow.__annotations__.items())
