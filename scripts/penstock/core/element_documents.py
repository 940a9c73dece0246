"""Documents that elements leave behind: claims of shards, receipts, outcomes, usage, and the columns of
`elements.parquet`; the controller's lines about its arrays; and the waits and use of a run's elements,
computed from these and from SLURM's figures. An element, also called a worker, is a process of a job array
that works on shards of a step. Pure.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Annotated, NamedTuple, get_args

from penstock.core.typed_json import LEFT_OUT, NOTHING, Document

KEPT = 5  # number of slowest objects that are recorded
# (seconds, bytes, name). The seconds include all tries and pauses. For an object in parts, the bytes are its
# slowest part's. The name is the key at its source, or the path of a file read back, safe on a terminal.
SlowObject = tuple[float, int, str]


def slowest(objects: Iterable[SlowObject], most: int = KEPT) -> Sequence[SlowObject]:
    """Return the slowest objects, slowest first, with each key only once.

    >>> slowest([(2.0, 9, "a"), (3.0, 9, "b"), (5.0, 9, "a")])
    [(5.0, 9, 'a'), (3.0, 9, 'b')]
    """
    return nlargest(most, {row[2]: row for row in sorted(objects)}.values())


# The columns of `elements.parquet`, each declared once: the work, waits and use of a run's elements.
#
# Each start of an element is a row, and its last row also has the facts about the element as a whole.
# `ElementRow` gives the Parquet schema and each column's unit (`tables.run_tables`). Tests compare it with
# the table in docs/formats.md.

# Annotations are read at run time: no `from __future__ import annotations`.

FORMAT = 1  # to be raised only if a column's meaning changes, since readers find columns by name
TIME = "time"  # the unit of a time: seconds since the epoch in a row, a timestamp in the file


class ElementRow(NamedTuple):
    """A start. Each column has its unit, or "", and its meaning. Unknown values are None (null in files)."""

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


class ArrayLine(NamedTuple):
    """Exactly one of the first five fields is set, with the name of the array or node.
    `submitted_arrays.ArrayBook.all` merges the lines of an array into the line of its submission."""

    # the array is about to be submitted, with all fields from `step` to `spec_cores`
    intent: Annotated[str, LEFT_OUT] = ""
    submitted: Annotated[str, LEFT_OUT] = ""  # the array was submitted and got the id `array`
    throttled: Annotated[str, LEFT_OUT] = ""  # at most `at_once` of its workers are to run at once
    # none of the array's workers is still running, or the array was never submitted; with `starts`
    ended: Annotated[str, LEFT_OUT] = ""
    # no further array of the run may use this node, since elements of `step` failed there; `why` says why
    excluded: Annotated[str, LEFT_OUT] = ""
    step: Annotated[str, LEFT_OUT] = ""
    kind: Annotated[str, LEFT_OUT] = ""  # the kind of cluster: `slurm` or `local`
    # the unfinished shards, which the array's workers divide with claims (`jobs.shard_claims`)
    indices: Annotated[Sequence[int], LEFT_OUT] = ()
    # number of elements; 0 if an older version wrote the line, with a shard for each element
    workers: Annotated[int, LEFT_OUT] = 0
    call: Annotated[str, LEFT_OUT] = ""  # the submitting command; failures under another command are retried
    # number of its first worker, counted over all arrays of the step (`ArraySpec.base`)
    base: Annotated[int, LEFT_OUT] = 0
    cluster: Annotated[str, LEFT_OUT] = ""  # the cluster's name; "" for a local array
    # the controller's process, in the form of `dataset.holder`
    by: Annotated[Mapping[str, object] | None, LEFT_OUT] = None
    array: Annotated[str, LEFT_OUT] = ""  # the array's id; "" if only the intent is known
    at_once: Annotated[int, LEFT_OUT] = 0  # workers that may run at once; 0: not known
    time: Annotated[int, LEFT_OUT] = 0  # requested time limit in seconds; 0 for no limit
    why: Annotated[str, LEFT_OUT] = ""
    at: Annotated[float, LEFT_OUT] = 0.0  # time of the line, in seconds since the epoch
    # whether each element requested a whole node; None: the cluster has no nodes
    whole_nodes: Annotated[bool | None, LEFT_OUT] = None
    spec_cores: Annotated[int | None, LEFT_OUT] = None  # core-spec that each element requested, if any
    # (worker, its last known start on the cluster's clock)
    starts: Annotated[Sequence[tuple[int, float]], LEFT_OUT] = ()

    @property
    def name(self) -> str:
        """The name of the array to be submitted."""
        return self.intent

    @property
    def over(self) -> bool:
        """Whether none of its elements is still running, or it was never submitted."""
        return bool(self.ended)

    @property
    def numbers(self) -> list[int]:
        """The numbers of its elements, as the cluster numbers them."""
        return list(range(self.workers)) or [index - self.base for index in self.indices]


ARRAY_LINE = Document(ArrayLine, "a line about an array")


class ShardClaim(NamedTuple):
    """A worker's claim of the shard. The claim with the highest generation counts."""

    worker: str = ""  # name of the attempt, unique to this claim
    array: str = ""  # name of the workers' array (`ArraySpec.name`); "" without an array
    number: int = 0  # the worker's index, counted over all arrays of the step
    call: str = ""  # the command that submitted the array
    host: str = ""
    restarts: int = 0  # earlier starts by the scheduler; a claim with fewer restarts is a dead process's
    charged: int = 0  # earlier claims of the same command whose failure was the shard's fault


SHARD_CLAIM = Document(ShardClaim, "a claim of a shard")


class ElementUsage(NamedTuple):
    """Times are in seconds, sizes in bytes; 0: not known. `host.kernel_facts` explains the figures'
    origins."""

    array: str = ""  # name of the element's array (`ArraySpec.name`)
    number: int = 0  # the worker's number, counted over all arrays of the step
    restarts: int = 0  # earlier starts by the scheduler
    host: str = ""
    began: float = 0.0  # start in seconds since the epoch, on the node's clock
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # CPU time of the element, its engine's processes, and all others it started
    cpus: int = 0  # CPUs granted to it
    node_cpus: int = 0  # CPUs of the node
    memory_peak: int = 0  # an upper bound of the memory peak: the sum of its processes' own peaks
    processes: int = 0  # number of processes that `memory_peak` adds up
    job_memory_peak: int = 0  # peak of the job's own control group, including cached files
    job_memory_file: str = ""  # origin of `job_memory_peak`: `memory.peak` or `memory.max_usage_in_bytes`


ELEMENT_USAGE = Document(ElementUsage, "what an element used")


@dataclass(frozen=True)
class ElementReceipt:
    """The report of the attempt that finished the shard. Times are seconds since the epoch, sizes bytes."""

    step: str = ""
    index: int = 0
    run: str = ""
    shard: str = ""  # `sha256:<hex>` of the shard's file; if the plan has another, the receipt is void
    rows: int = 0
    files: int = 0  # all finished rows (each part of a giant is a row), which have `bytes`
    bytes: int = 0
    done_files: int = 0  # rows that this attempt alone finished, which have `done_bytes`
    done_bytes: int = 0
    linked: int = 0  # rows linked from a release or taken over from another run's staging
    linked_bytes: int = 0  # bytes of rows linked in bulk, before the copy
    link_seconds: float = 0.0  # seconds of linking in bulk, before the copy
    taken: int = 0  # rows among `linked` that were taken over from another run's staging
    retries: int = 0
    seconds: float = 0.0  # seconds that the engine ran
    workers: int = 0
    streams: int = 0
    durability: str = ""
    fsync_ends: str = ""  # copy only: where an fsync ended on the node, if not on the servers' disks
    grades: Mapping[str, int] = field(default_factory=dict)  # verify only: rows by storage grade
    # verify and audit only: rows by how they were read back
    methods: Mapping[str, int] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    why: str = ""  # reason for the number of workers and streams
    attempt: str = ""
    host: str = ""
    cpus: int = 0  # CPUs that the node granted, which decide the engine's size
    started: float = 0.0
    ended: float = 0.0
    samples: Sequence[tuple[float, int, int]] = ()  # (seconds since `started`, files, bytes), ascending
    amended: int = 0  # copy and verify only: files whose version is not the listed version
    gone: int = 0  # copy and verify only: files that are no longer in the source
    copied_by: str = ""  # the attempt of copy that verify read back
    records: str = ""  # `sha256:<hex>` of the records that verify wrote
    left_out: int = 0  # verify only: rows without a record, since their objects are gone
    # verify only: linked rows not read back, and their bytes; they count in `files` and `bytes`
    carried: tuple[int, int] = (0, 0)
    findings: int = 0  # damaged rows of an audit; for a repair, files that could not be fetched
    seen: str = ""  # `sha256:<hex>` of the file of audited rows, or of a repair's fetched files
    # number of retries by cause: `HTTP 503`, `ECONNRESET`, or an error's sentence
    retried: Mapping[str, int] = field(default_factory=dict)
    slowest: Sequence[SlowObject] = ()


ELEMENT_RECEIPT = Document(ElementReceipt, "an element's receipt")


class ElementOutcome(NamedTuple):
    """An attempt that did not finish its shard."""

    attempt: str = ""
    generation: int = 0  # generation of its claim
    free: bool = False  # whether the attempt does not count as a retry of the shard
    host: str = ""
    exit_code: int = 0  # 0: not stated
    retry: bool = True  # whether a further attempt may succeed
    error: str = ""  # the error that ended the whole attempt; "" if only single files failed
    stopped: str = ""  # `time` (the end of its job was near) or `signal`; "" if not stopped
    progress: bool = False  # for a stopped copy: whether the journal has more rows than before
    paused: bool = False  # whether the PAUSE file existed at the root: then the end of the time is no failure
    failed: int = 0  # files that failed
    failures: Sequence[tuple[str, str]] = ()  # path and reason of the first failures; `failed` counts all
    # the failures whose linked file differs from its release's seal
    linked_failures: Sequence[tuple[str, str]] = ()
    # Rows that are parts of a giant whose object changed during the copy. The copy step then has the whole
    # giant copied again.
    split: Sequence[int] = ()


ELEMENT_OUTCOME = Document(ElementOutcome, "an element's outcome")


# origins of a figure: SLURM's accounting, the submitting process, or the element itself
SLURMDBD, CONTROLLER, ELEMENT = "slurmdbd", "controller", "element"
# least seconds for which an element's CPU efficiency is meaningful: shorter elements mostly start and end
LONG_ENOUGH = 10.0


class Wait(NamedTuple):
    """Seconds in a queue, and the origin of the element's start time. None and "" mean not known."""

    seconds: float | None = None
    by: str = ""


def queue_wait(
    *,
    booked: float | None,
    submitted: float,
    start_time: float,
    began: float,
    ran_before: float = 0.0,
) -> Wait:
    """Compute how long an element waited in its last array's queue before its last start. The result is never
    below 0, although nodes' clocks differ. An argument of 0 means unknown.

    `booked`: the wait according to slurmdbd. `submitted`: time noted by the controller. `start_time`: SLURM's
    StartTime, seen by the controller. `began`: start noted by the element. `ran_before`: seconds of its
    earlier runs in that array.

    | slurmdbd | submitted | StartTime | element's start | wait                               | by         |
    |----------|-----------|-----------|-----------------|------------------------------------|------------|
    | knows it | any       | any       | any             | what it says                       | slurmdbd   |
    | no       | known     | known     | any             | StartTime - submitted - ran before | controller |
    | no       | known     | not known | known           | start - submitted - ran before     | element    |
    | no       | otherwise | any       | any             | not known                          |            |
    """
    if booked is not None:
        return Wait(booked, SLURMDBD)
    start, by = (start_time, CONTROLLER) if start_time else (began, ELEMENT)
    if not submitted or not start:
        return Wait()
    return Wait(max(0.0, start - submitted - ran_before), by)


def whole_node(asked: bool | None, cpus: int, node_cpus: int, *, nodes: bool) -> bool | None:
    """Return whether an element had its node to itself. `asked`: whether it requested this, by --exclusive or
    core-spec; None: not recorded. `nodes`: whether the cluster has nodes at all.

    | nodes | asked    | CPUs granted       | whole node |
    |-------|----------|--------------------|------------|
    | no    | any      | any                | no         |
    | yes   | yes      | any                | yes        |
    | yes   | no       | all of the node    | yes        |
    | yes   | no       | fewer, not known   | no         |
    | yes   | not noted| all of the node    | yes        |
    | yes   | not noted| fewer, not known   | not known  |
    """
    if not nodes or asked:
        return nodes
    if node_cpus and cpus >= node_cpus:
        return True
    return asked


class StepUse(NamedTuple):
    """Use of the elements of a step, or of all steps. Waits and runs are in seconds, memory in bytes, and
    efficiency is a fraction. None: not known for any element."""

    step: str  # "" for all steps
    elements: int
    node_hours: Annotated[float | None, LEFT_OUT] = None
    core_hours: Annotated[float | None, LEFT_OUT] = None
    cpu_seconds: Annotated[float | None, LEFT_OUT] = None
    cpu_efficiency: Annotated[float | None, LEFT_OUT] = None
    memory_peak: Annotated[int | None, LEFT_OUT] = None  # largest peak of any element
    wait_median: Annotated[float | None, LEFT_OUT] = None
    wait_longest: Annotated[float | None, LEFT_OUT] = None
    run_median: Annotated[float | None, LEFT_OUT] = None
    run_longest: Annotated[float | None, LEFT_OUT] = None


class Worst(NamedTuple):
    """The element with a column's highest value, or with the lowest `cpu_efficiency`."""

    column: str  # a column of `elements.parquet`
    step: str
    element: int  # the element's number, counted over all arrays of the step
    node: str
    value: float


class Usage(NamedTuple):
    """The waits and the use of a run's elements. `elements.parquet` has the figures of each element."""

    steps: Sequence[StepUse] = ()  # each step's use, and a sum over all if there are several
    worst: Sequence[Worst] = ()
    # numbers of elements by the origin of their `queue_wait` and `hours`
    sources: Mapping[str, Mapping[str, int]] = NOTHING
    notes: Sequence[str] = ()  # sentences on missing figures
    # for each element with a known wait: when it began to wait, started and ended, in seconds since the epoch
    spans: Sequence[tuple[float, float, float]] = ()
    file: Annotated[str, LEFT_OUT] = ""  # path of `elements.parquet`


def by_step(rows: Sequence[ElementRow]) -> list[StepUse]:
    """Return the use of each step in the rows' order, and a sum if there are several steps."""
    steps = list(dict.fromkeys(row.step for row in rows))
    lines = [_together(step, [row for row in rows if row.step == step]) for step in steps]
    return [*lines, _together("", rows)] if len(lines) > 1 else lines


def _together(step: str, rows: Sequence[ElementRow]) -> StepUse:
    waits, runs = _known(row.queue_wait for row in rows), _known(row.seconds for row in rows)
    # The elements' efficiencies are not used here, since they are rounded (the lowest to 0).
    both = [
        (row.cpu_seconds, row.granted_seconds)
        for row in rows
        if row.cpu_seconds is not None and row.granted_seconds
    ]
    from statistics import median  # loads slowly, and most processes never need it

    granted = sum(granted_seconds for _, granted_seconds in both)
    used = _known(row.cpu_seconds for row in rows)
    return StepUse(
        step=step,
        elements=len(rows),
        node_hours=total(row.node_hours for row in rows),
        core_hours=total(row.core_hours for row in rows),
        cpu_seconds=sum(used) if used else None,
        cpu_efficiency=sum(spent for spent, _ in both) / granted if granted else None,
        memory_peak=max((row.memory_peak for row in rows if row.memory_peak is not None), default=None),
        wait_median=median(waits) if waits else None,
        wait_longest=max(waits, default=None),
        run_median=median(runs) if runs else None,
        run_longest=max(runs, default=None),
    )


def spans(rows: Iterable[ElementRow]) -> list[tuple[float, float, float]]:
    """Return `Usage.spans`, ascending. All waits of an element are put directly before its last start."""
    return sorted(
        (round(row.started - row.queue_wait, 3), round(row.started, 3), round(row.ended, 3))
        for row in rows
        if row.queue_wait is not None and row.started and row.ended and row.ended >= row.started
    )


def worst(rows: Sequence[ElementRow]) -> list[Worst]:
    """Return the elements with the longest wait, longest run, most memory and lowest CPU efficiency. A single
    row gives nothing, since the table shows it already."""
    if len(rows) < 2:
        return []
    long = [row for row in rows if (row.seconds or 0) >= LONG_ENOUGH]
    candidates = [
        _highest("queue_wait", rows, lambda row: row.queue_wait),
        _highest("seconds", rows, lambda row: row.seconds),
        _highest("memory_peak", rows, lambda row: row.memory_peak),
        _highest("cpu_efficiency", long, lambda row: row.cpu_efficiency, sign=-1),
    ]
    return [candidate for candidate in candidates if candidate is not None]


def _highest(
    column: str, rows: Sequence[ElementRow], value: Callable[[ElementRow], float | None], sign: int = 1
) -> Worst | None:
    valued = [(sign * amount, row) for row in rows if (amount := value(row)) is not None]
    if not valued:
        return None
    most, row = max(valued, key=lambda pair: pair[0])
    return Worst(column, row.step, row.element, row.node or "", sign * most)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def total(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values, or None if no value is known."""
    summands = _known(values)
    return sum(summands) if summands else None
