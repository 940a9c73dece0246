"""The columns of `elements.parquet`, each declared once: what an element of a run (a process of a job array)
did, waited for and used. Pure.

A row for each element (step and shard) that left a receipt, or at least figures. What is not known is null.
Derived from this table: the Parquet schema with each column's unit (`tables.elements_file`); `tests/docs`
compares it with the table in docs/formats.md.
"""

from __future__ import annotations

from typing import NamedTuple

FORMAT = 1
"""Readers know a column by its name: a further column raises nothing, one that changes its meaning does."""

TEXT, WHOLE, REAL, YES_NO, TIME = "text", "whole number", "number", "yes or no", "time"


class ElementColumn(NamedTuple):
    """One column of the file."""

    name: str
    kind: str
    """TEXT, WHOLE, REAL, YES_NO, or TIME (seconds since the epoch in a row, a timestamp in the file)."""
    unit: str
    """`s`, `bytes`, `CPUs`, `node hours`, `core hours`; "" of counts, names, fractions and times."""
    means: str


class ElementRow(NamedTuple):
    """One element. Fields are the columns below, in their order; None is not known."""

    step: str
    element: int
    done: bool
    node: str | None = None
    attempt: str | None = None
    array: str | None = None
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None
    queue_wait: float | None = None
    queue_wait_by: str | None = None
    attempts: int = 0
    starts_missing: int | None = None
    seconds: float | None = None
    hours_by: str | None = None
    whole_node: bool | None = None
    node_hours: float | None = None
    core_hours: float | None = None
    cpus: int | None = None
    node_cpus: int | None = None
    cpu_seconds: float | None = None
    granted_seconds: float | None = None
    cpu_efficiency: float | None = None
    memory_peak: int | None = None
    processes: int | None = None
    job_memory_peak: int | None = None
    job_memory_file: str | None = None
    files: int | None = None
    bytes: int | None = None
    retries: int | None = None
    workers: int | None = None
    streams: int | None = None
    slurm_starts: int | None = None
    slurm_seconds: float | None = None
    slurm_cpu_seconds: float | None = None
    slurm_granted_seconds: float | None = None
    slurm_memory_peak: int | None = None


COLUMNS = (
    ElementColumn("step", TEXT, "", "`copy` or `verify`"),
    ElementColumn("element", WHOLE, "", "the number of its shard"),
    ElementColumn("done", YES_NO, "", "whether it left a receipt"),
    ElementColumn("node", TEXT, "", "where its last attempt ran"),
    ElementColumn("attempt", TEXT, "", "the last attempt, as manifest and journal name it"),
    ElementColumn("array", TEXT, "", "SLURM's number of its last array; null of local elements"),
    ElementColumn("submitted", TIME, "", "when that array was submitted, by the controller's clock"),
    ElementColumn("started", TIME, "", "the last start"),
    ElementColumn("ended", TIME, "", "the end of the last attempt; of one without a receipt: its last word"),
    ElementColumn(
        "queue_wait", REAL, "s", "from the submission to the last start, without the time in which it ran"
    ),
    ElementColumn(
        "queue_wait_by",
        TEXT,
        "",
        "who knew the start: `slurmdbd`, the `controller` (SLURM's StartTime), or the `element` itself",
    ),
    ElementColumn("attempts", WHOLE, "", "attempts whose figures are summed here, the last one included"),
    ElementColumn("starts_missing", WHOLE, "", "starts by SLURM in the last array that left no figures"),
    ElementColumn("seconds", REAL, "s", "of the wall clock in which it ran, over its attempts"),
    ElementColumn(
        "hours_by", TEXT, "", "whose `seconds` these are: `slurmdbd` or `element`, the larger of both"
    ),
    ElementColumn("whole_node", YES_NO, "", "whether it had its node for itself"),
    ElementColumn(
        "node_hours", REAL, "node hours", "`seconds` of an element with a whole node; null of others"
    ),
    ElementColumn("core_hours", REAL, "core hours", "`seconds` times the CPUs that it was granted"),
    ElementColumn("cpus", WHOLE, "CPUs", "granted to its last attempt"),
    ElementColumn("node_cpus", WHOLE, "CPUs", "that the node has"),
    ElementColumn(
        "cpu_seconds", REAL, "s", "CPU time of all its processes, over its attempts (getrusage, /proc)"
    ),
    ElementColumn(
        "granted_seconds",
        REAL,
        "s",
        "of CPU time: the element's own seconds x CPUs granted, over its attempts",
    ),
    ElementColumn("cpu_efficiency", REAL, "", "`cpu_seconds` / `granted_seconds`; 1 is all of them"),
    ElementColumn(
        "memory_peak",
        WHOLE,
        "bytes",
        "the highest sum of its processes' own peaks (VmHWM): an upper bound of what it held at once",
    ),
    ElementColumn("processes", WHOLE, "", "how many processes that sum is of"),
    ElementColumn("job_memory_peak", WHOLE, "bytes", "of the job's own control group, cached files included"),
    ElementColumn("job_memory_file", TEXT, "", "what said so: `memory.peak` or `memory.max_usage_in_bytes`"),
    ElementColumn("files", WHOLE, "", "rows of its shard that are done"),
    ElementColumn("bytes", WHOLE, "bytes", "of these rows"),
    ElementColumn("retries", WHOLE, "", "calls to the source that were made again"),
    ElementColumn("workers", WHOLE, "", "processes of its engine"),
    ElementColumn("streams", WHOLE, "", "calls at once, at most"),
    ElementColumn("slurm_starts", WHOLE, "", "by slurmdbd, of the arrays it knows: how often it was started"),
    ElementColumn("slurm_seconds", REAL, "s", "by slurmdbd: ElapsedRaw of all its starts"),
    ElementColumn("slurm_cpu_seconds", REAL, "s", "by slurmdbd: TotalCPU, where SLURM gathers it"),
    ElementColumn(
        "slurm_granted_seconds", REAL, "s", "by slurmdbd: CPUTimeRAW, CPUs that core-spec reserves included"
    ),
    ElementColumn("slurm_memory_peak", WHOLE, "bytes", "by slurmdbd: MaxRSS of its batch step, as sampled"),
)
