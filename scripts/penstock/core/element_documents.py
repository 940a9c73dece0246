"""What elements (workers: processes of a job array that do a shard of a step) leave behind: the claim of a
shard, receipts, outcomes, usage, and the columns of `elements.parquet`; and the controller's lines about its
arrays. Pure.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Annotated, NamedTuple, get_args

from penstock.core.typed_json import LEFT_OUT, Document

KEPT = 5  # objects that a worker and an element keep
# Seconds, with all tries and pauses; bytes, of an object in parts of its slowest part; the key at its source,
# or the path of a file read back, safe on a terminal.
SlowObject = tuple[float, int, str]


def slowest(objects: Iterable[SlowObject], most: int = KEPT) -> Sequence[SlowObject]:
    """Return the slowest objects, each key once, slowest first.

    >>> slowest([(2.0, 9, "a"), (3.0, 9, "b"), (5.0, 9, "a")])
    [(5.0, 9, 'a'), (3.0, 9, 'b')]
    """
    return nlargest(most, {row[2]: row for row in sorted(objects)}.values())


# The columns of `elements.parquet`, each declared once: what an element of a run did, waited for and used.
#
# Each start of an element is a row; the last one also has the facts of the element as a whole. `ElementRow`
# gives the Parquet schema and each column's unit (`tables.elements_file`). Tests compare it with the table in
# docs/formats.md.

# Annotations are read at run time: no `from __future__ import annotations`.

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


class ArrayLine(NamedTuple):
    """Exactly one of the first five fields is set: the array's name, or a node's.
    `submission_log.ArrayBook.all` merges the lines of an array into that of its submission."""

    # the array is about to be submitted, with all fields from `step` to `spec_cores`
    intent: Annotated[str, LEFT_OUT] = ""
    submitted: Annotated[str, LEFT_OUT] = ""  # it was, as `array`
    throttled: Annotated[str, LEFT_OUT] = ""  # at most `at_once` of its workers are to run at once
    # none of its workers lives any more, or it was never submitted; with `starts`
    ended: Annotated[str, LEFT_OUT] = ""
    # no further array of the run goes to this node: elements of `step` failed there, for the reason in `why`
    excluded: Annotated[str, LEFT_OUT] = ""
    step: Annotated[str, LEFT_OUT] = ""
    kind: Annotated[str, LEFT_OUT] = ""  # of the cluster: `slurm` or `local`
    # the open shards: its workers divide them by claims (`jobs.shard_claims`)
    indices: Annotated[Sequence[int], LEFT_OUT] = ()
    # number of elements; 0: of an older version, with a shard for each element
    workers: Annotated[int, LEFT_OUT] = 0
    call: Annotated[str, LEFT_OUT] = ""  # the submitting command: failures under another one are retried
    # number of its first worker, over all arrays of the step (`ArraySpec.base`)
    base: Annotated[int, LEFT_OUT] = 0
    cluster: Annotated[str, LEFT_OUT] = ""  # the cluster's name; "": a local array
    # the controller, as `dataset.holder` describes processes
    by: Annotated[Mapping[str, object] | None, LEFT_OUT] = None
    array: Annotated[str, LEFT_OUT] = ""  # its id; "": only the intent is known
    at_once: Annotated[int, LEFT_OUT] = 0  # workers that may run at once; 0: not known
    time: Annotated[int, LEFT_OUT] = 0  # requested time limit in seconds; 0: none
    why: Annotated[str, LEFT_OUT] = ""
    at: Annotated[float, LEFT_OUT] = 0.0  # seconds since the epoch
    # each element requested a whole node; None: the cluster has no nodes
    whole_nodes: Annotated[bool | None, LEFT_OUT] = None
    spec_cores: Annotated[int | None, LEFT_OUT] = None  # core-spec that each element requested; None: none
    # last known start of these workers, by the cluster's clock
    starts: Annotated[Sequence[tuple[int, float]], LEFT_OUT] = ()

    @property
    def name(self) -> str:
        """Of the array to be submitted."""
        return self.intent

    @property
    def over(self) -> bool:
        """None of its elements lives any more, or it was never submitted."""
        return bool(self.ended)

    @property
    def numbers(self) -> list[int]:
        """Its elements as the cluster numbers them."""
        return list(range(self.workers)) or [index - self.base for index in self.indices]


ARRAY_LINE = Document(ArrayLine, "a line about an array")


class ShardClaim(NamedTuple):
    """A worker took the shard; the claim of the highest generation counts."""

    worker: str = ""  # name of the attempt, unique to this claim
    array: str = ""  # name of the workers' array (`ArraySpec.name`); "": none
    number: int = 0  # the worker's index, over all arrays of the step
    call: str = ""  # the command that submitted the array
    host: str = ""
    restarts: int = 0  # earlier starts by the scheduler: a claim with fewer is of a dead process
    charged: int = 0  # earlier claims of the same command whose failure was the shard's fault


SHARD_CLAIM = Document(ShardClaim, "a claim of a shard")


class ElementUsage(NamedTuple):
    """Times are seconds, sizes bytes; 0: not known. `host.resources` has the figures' origins."""

    array: str = ""  # its array's name (`ArraySpec.name`)
    number: int = 0  # of the worker, over all arrays of the step
    restarts: int = 0  # earlier starts by the scheduler
    host: str = ""
    began: float = 0.0  # seconds since the epoch, by the node's clock
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of the element, its engine's processes, and all others that it started
    cpus: int = 0  # granted to it
    node_cpus: int = 0  # of the node
    memory_peak: int = 0  # of its processes: an upper bound, the sum of their own peaks
    processes: int = 0  # number of processes in that sum
    job_memory_peak: int = 0  # of the job's own control group, with cached files
    job_memory_file: str = ""  # its origin: `memory.peak` or `memory.max_usage_in_bytes`


ELEMENT_USAGE = Document(ElementUsage, "what an element used")


@dataclass(frozen=True)
class ElementReceipt:
    """The report of the attempt that finished the shard. Times are seconds since the epoch, sizes bytes."""

    step: str = ""
    index: int = 0
    run: str = ""
    shard: str = ""  # `sha256:<hex>` of the shard's file: the receipt is void under another plan
    rows: int = 0
    files: int = 0  # all finished rows, a giant's parts one by one; `bytes` likewise
    bytes: int = 0
    done_files: int = 0  # rows of this attempt, without earlier attempts'; `done_bytes` likewise
    done_bytes: int = 0
    linked: int = 0  # rows linked from a release or taken over from another run's staging
    linked_bytes: int = 0  # of rows linked in bulk, as `link_seconds`
    link_seconds: float = 0.0  # of linking in bulk, before the copy
    taken: int = 0  # part of `linked` taken over from another run's staging
    retries: int = 0
    seconds: float = 0.0  # of the engine
    workers: int = 0
    streams: int = 0
    durability: str = ""
    fsync_ends: str = ""  # of copy: where an fsync ended on that node, if not on the servers' disks
    grades: Mapping[str, int] = field(default_factory=dict)  # of verify: rows by storage grade
    # of verify and audit: rows by how they were read back
    methods: Mapping[str, int] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    why: str = ""  # why this many workers and streams
    attempt: str = ""
    host: str = ""
    cpus: int = 0  # granted by the node: the engine's size follows from them
    started: float = 0.0
    ended: float = 0.0
    samples: Sequence[tuple[float, int, int]] = ()  # (seconds since `started`, files, bytes), ascending
    amended: int = 0  # of copy and verify: files of another version than the listed one
    gone: int = 0  # of copy and verify: files that left the source
    copied_by: str = ""  # the attempt of copy that verify read back
    records: str = ""  # `sha256:<hex>` of the records that verify wrote
    left_out: int = 0  # of verify: rows without a record, since their objects are gone
    # of verify: linked rows not read back, and their bytes; they count in `files` and `bytes`
    carried: tuple[int, int] = (0, 0)
    findings: int = 0  # of audit: damaged rows; of repair: files that could not be fetched
    seen: str = ""  # `sha256:<hex>` of what an audit's element saw, or a repair's fetched
    # retries by known cause: `HTTP 503`, `ECONNRESET`, or an error's sentence
    retried: Mapping[str, int] = field(default_factory=dict)
    slowest: Sequence[SlowObject] = ()


ELEMENT_RECEIPT = Document(ElementReceipt, "an element's receipt")


class ElementOutcome(NamedTuple):
    """An attempt that did not finish its shard."""

    attempt: str = ""
    generation: int = 0  # of its claim
    free: bool = False  # uses up no retry of the shard
    host: str = ""
    exit_code: int = 0  # 0: not stated
    retry: bool = True  # a further attempt may succeed
    error: str = ""  # what ended the whole attempt; "": single files failed
    stopped: str = ""  # `time` (the end of its job was near) or `signal`; "": not stopped
    progress: bool = False  # of a stopped copy: the journal records more rows than before
    paused: bool = False  # PAUSE stood at the root during the work: that its time ended is no failure
    failed: int = 0  # files that failed
    failures: Sequence[tuple[str, str]] = ()  # path and reason of the first failures; `failed` counts all
    # part of `failures` whose linked file is not as its release states
    linked_failures: Sequence[tuple[str, str]] = ()
    # Rows that are parts of giants whose object changed during the copy: the copy step has such giants copied
    # whole.
    split: Sequence[int] = ()


ELEMENT_OUTCOME = Document(ElementOutcome, "an element's outcome")
