"""Tasks, batches and results of the engine: plain data (pure), made and read by the parent of the workers.

`jobs.elements.element_work` makes a task from the run's state, calls the engine with it, and gets an
`Outcome`. A row is an entry of the shard: a file, or one part of a giant (an object copied in parts over
several shards). Sizes are bytes, times seconds.
"""

from __future__ import annotations

import marshal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.core.documents.probe_report import ProbeReport
from penstock.core.row_codec import from_wire, to_wire
from penstock.engine.part import LEAST
from penstock.fs.kinds import AUTO
from penstock.host import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from penstock.config.settings import DatasetConfig, EngineConfig, VerifyConfig
    from penstock.core.documents.history_line import CtimeInterval
    from penstock.core.model import Entry, Expected, Part
    from penstock.core.run_documents import ShardInfo
    from penstock.core.slow_objects import SlowObject
    from penstock.tables.ctime_intervals import Intervals
    from penstock.target.links import Abandoned

    Report = Callable[[int, int, int], None]
    """Called with the totals so far: files, bytes, failed rows. What an earlier attempt had
    done counts too, so the totals end at the shard's own."""
    StopCheck = Callable[[], None]
    """Raises InterruptedRunError once a signal has come; called several times a second."""


class Failure(NamedTuple):
    """One row that could not be copied or did not read back as it was written."""

    path: str
    why: str
    exit_code: int
    retry: bool
    """Whether the same run, started again, may succeed."""
    contradicts: bool = False
    """Whether the source's bytes are not those that a checksum states."""


class FailedRow(NamedTuple):
    """A row of the shard, by its number, and what became of it."""

    row: int
    failure: Failure


class Batch:
    """The rows that one worker gets in one message, as the parent keeps them while a worker has them: the
    frame, to send it again; the folders in which the batch begins and ends."""

    __slots__ = ("bytes", "count", "deaths", "folders", "frame", "large", "number", "rows")

    def __init__(
        self,
        number: int,
        rows: list[int],
        entries: Sequence[Entry | Expected] | Sequence[Part],
        total: int,
        large: bool,
    ) -> None:
        self.number, self.rows, self.count, self.bytes, self.large = number, rows, len(rows), total, large
        self.deaths = 0
        # Of the first and the last row: what lies between matters little.
        self.folders = {entry.path.rpartition("/")[0] for entry in (entries[0], entries[-1])}
        payload = marshal.dumps((number, rows, *to_wire(entries)))
        self.frame = wire.head(wire.BATCH, payload) + payload


class BatchAnswer(NamedTuple):
    """What a worker reports of one batch. The totals are of rows whose bytes are where they belong."""

    number: int
    """Of the batch."""
    rows: int
    results: Any
    """A copy's journal lines, as bytes; else a `RereadRow` or `AuditedRow` of each row."""
    failures: Sequence[FailedRow]
    bytes: int
    retries: int
    linked: int
    taken: int

    @classmethod
    def of(cls, frame: tuple[Any, ...]) -> BatchAnswer:
        """From the frame that the worker sent."""
        number, rows, results, failures, *totals = frame
        if not isinstance(results, bytes):
            results = from_wire(*results)
        return cls(
            number, rows, results, [FailedRow(row, Failure(*fields)) for row, *fields in failures], *totals
        )


@dataclass(frozen=True)
class CopyTask:
    """One shard on its way into staging, by one attempt of one element."""

    shard: ShardInfo
    rows: Path
    """The shard's Parquet file."""
    journals: Path
    """`RunLayout.journals(index)`: the folder of the shard's journals."""
    data: Path
    """Staging's `data` folder; it exists."""
    dataset: DatasetConfig
    engine: EngineConfig
    run: str
    attempt: str
    """Unique to this attempt: `[A-Za-z0-9._-]+`."""
    host: str
    verify: VerifyConfig
    """What a row's proof must be, and what may prove a giant later."""
    gid: int | None = None
    base: Path | None = None
    """`data` of the release whose unchanged files are linked, if any."""
    way: str = "link"
    """How they come into staging: `link`, `reflink` or `copy`."""
    moves: Path | None = None
    """`DatasetLayout.intervals`: where it is noted when rows were linked; None: nowhere."""
    moved: CtimeInterval | None = None
    """What it is noted with."""
    intervals: Intervals | None = None
    """When penstock linked and unlinked before; None: no linked row will be carried over."""
    stated: Path | None = None
    """`RunLayout.stated`, where there are checksum files beside the data."""
    probe: ProbeReport = field(default_factory=ProbeReport)
    """What plan saw of the target's file system."""
    stagings: Mapping[str, Abandoned] = field(default_factory=dict)
    """Runs to the trees of their stagings, from which rows are taken over."""
    may_change: tuple[int, int] = (0, 0)
    """With `changed: follow`: how many files of the dataset may be pinned anew, and how many may leave."""
    large_bytes: int = LEAST
    """Bytes from which an object is copied in parts, where its version can be pinned."""
    part_bytes: int = 0
    """Bytes of each of them but the last; 0: by `part.part_bytes`."""
    fed: Callable[[], bool] | None = None
    """As of `Pool.fed`."""


@dataclass(frozen=True)
class RereadTask:
    """One shard read back from staging (or a release) and compared with its journal."""

    shard: ShardInfo
    rows: Path
    journals: Path
    data: Path
    records: Path
    """Where the records go; the file appears whole and only when no row failed."""
    engine: EngineConfig
    verify: VerifyConfig
    run: str
    attempt: str
    host: str
    follow: bool = False
    """Whether attempts of its copy may have read different versions of an object."""
    probe: ProbeReport = field(default_factory=ProbeReport)
    """As of `CopyTask`."""
    named: str = AUTO
    """The kind of file system whose rules hold, as in `target.filesystem`."""
    recall: int = 0
    """Bytes of tiered files of a release that may be fetched back to be read."""
    longest: float | None = None
    """`verify.linked`; None: no linked row may be carried over."""
    way: str = "link"
    """How rows of another release came into staging: as `PlanInfo.way`."""
    base_manifest: Path | None = None
    """Of the release that rows are linked from."""
    intervals: Intervals | None = None
    """When penstock linked and unlinked; None: never."""
    audited: Callable[[Sequence[bytes], Sequence[int], Sequence[bool]], Sequence[int]] | None = None
    """When audits of that release last read files of these paths and sizes, in seconds since the epoch; 0:
    none did. None: there was no audit."""
    damage: Path | None = None
    """Where it is noted that linked rows had other bytes, before anything else follows from it."""
    adopted: Path | None = None
    """`RunLayout.survey(index)`: how files of an adopted tree stand that were read before they were taken
    over, where there are any."""
    rests: Callable[[int], bool] | None = None
    """As of `Pool.rests`, and `fed` likewise."""
    fed: Callable[[], bool] | None = None


@dataclass
class Outcome:
    """The result of one call on a shard. A row counts in `files` when a whole file or a part is done."""

    files: int = 0
    bytes: int = 0
    """Of the rows done by this call."""
    resumed_files: int = 0
    resumed_bytes: int = 0
    """Of the rows that earlier attempts had done."""
    linked: int = 0
    """Rows linked from the current release."""
    linked_bytes: int = 0
    """Of the rows that were linked before anything was copied."""
    link_seconds: float = 0.0
    """What that took, before anything was copied."""
    taken: int = 0
    """Rows taken over from another run's staging."""
    failures: list[Failure] = field(default_factory=list)
    linked_failures: list[Failure] = field(default_factory=list)
    """Those of the failures that are of linked rows: what they are linked from is not as it should be
    (reread)."""
    retries: int = 0
    retried: Mapping[str, int] = field(default_factory=dict)
    """By cause."""
    slowest: Sequence[SlowObject] = ()
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of the workers and of this process while it ran them."""
    workers: int = 0
    streams: int = 0
    """The most that were active at once."""
    amended: int = 0
    """Rows that were copied of another version than the planned one, also by earlier attempts."""
    gone: int = 0
    """Rows whose object left its source, likewise."""
    left_out: int = 0
    """Rows that have no record, since they stand for nothing (reread)."""
    split: list[int] = field(default_factory=list)
    """Rows of giants whose object changed: to be copied whole (`changed: follow`)."""
    durability: str = ""
    fsync_ends: str = ""
    """Where an fsync ends on this node, if not on the servers' disks; "" where its mount does not say so."""
    carried: tuple[int, int] = (0, 0)
    """Linked rows that were not, and their bytes (reread)."""
    grades: dict[str, int] = field(default_factory=dict)
    """Rows by storage grade (reread)."""
    methods: dict[str, int] = field(default_factory=dict)
    """Rows by how the caches were passed (reread)."""
    warnings: list[str] = field(default_factory=list)
    """Warnings about problems that were repaired without a person."""
    why: str = ""
    """Why this many workers and streams, and what pressure did to them, in words."""

    def add(self, answer: BatchAnswer) -> None:
        """Count what a worker did of a batch."""
        self.files += answer.rows
        self.bytes += answer.bytes
        self.retries += answer.retries
        self.linked += answer.linked
        self.taken += answer.taken

    @property
    def exit_code(self) -> int:
        """0, or the one status of all failures, or 1 when they differ."""
        codes: Sequence[int] = sorted({f.exit_code for f in self.failures})
        return 0 if not codes else codes[0] if len(codes) == 1 else 1
