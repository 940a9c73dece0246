"""Tasks, batches and results of the engine, plain data of the workers' parent; and the pieces of work on a
large row that is copied in parts.
"""

from __future__ import annotations

import marshal
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.core.model import Part
from penstock.core.row_codec import from_wire, to_wire
from penstock.core.run_documents import ProbeReport
from penstock.fs.kinds import AUTO
from penstock.host import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from penstock.config.settings import DatasetConfig, EngineConfig, VerifyConfig
    from penstock.core.dataset_documents import CtimeInterval
    from penstock.core.element_documents import SlowObject
    from penstock.core.model import Entry, Expected, PartLine
    from penstock.core.run_documents import ShardInfo
    from penstock.tables.ctime_intervals import Intervals
    from penstock.target.links import Abandoned

    # Called with the totals so far: files, bytes, failed rows. Earlier attempts count too, so the totals end
    # at the shard's own.
    Report = Callable[[int, int, int], None]
    # Raises InterruptedRunError after a signal; called several times a second.
    StopCheck = Callable[[], None]


# The pieces of work on a large row that is copied in parts (`core.model.Part`).
#
# A store's object: BEGIN makes its temporary file, one FETCH copies each part, FINISH judges the parts
# together and renames the file. Where that fails, DROP removes the file, and the row goes WHOLE, as any other
# entry.
#
# A folder's file is copied IN_ORDER by one stream: a file system has no limit for each connection, and verify
# need not compute two digests. After every STEP bytes the stream hands the journal a mark: the bytes done,
# and their digest.

BEGIN, FETCH, FINISH, DROP, WHOLE, IN_ORDER = range(6)
_MIB = 1 << 20
LEAST = 64 * _MIB  # bytes from which an object is copied in parts, or in order
# Bytes of each stream that may be on their way or not yet in the journal. With the part or block on top, a
# killed attempt costs less than 64 MiB a stream.
LOST = 48 * _MIB
# Fewer streams may lose as much as so many do. On a local disk that idles between two flushes, two streams 48
# MiB ahead took 1.1 to 1.4 times as long.
FEWEST = 8
# Bytes between two marks. A stream waits at a mark until the mark before is recorded, or may be lost.
STEP = LOST // 2


def most_lost(streams: int) -> int:
    """Return the bytes that `streams` streams may have on their way or not yet in the journal."""
    return LOST * max(FEWEST, streams)


def is_spare(unrecorded: int, streams: int) -> bool:
    """Return whether a stream need not wait for its mark: all streams may be LOST bytes further."""
    return unrecorded + LOST * streams <= most_lost(streams)


def temporary_name() -> str:
    """Return a unique name for a file that is copied in parts or in order."""
    return f".p.{secrets.token_hex(8)}"


def part_bytes(size: int) -> int:
    """Return the bytes of each part but the last of an object of this size.

    Small parts lose little when an attempt is killed, but each costs a request. The CPU's cost over one GET:
    15 % with 8 MiB, 5 % with 16 MiB, none with 64 MiB. Powers of two mostly end where the parts of a
    multipart upload end, so that their sums join.
    """
    return 16 * _MIB if size <= 4096 * _MIB else 32 * _MIB


# In place of a part's number: the temporary file was made; it was given up, with all its parts.
BEGUN, DROPPED = -1, -2


class Unfinished:
    """Rows without a record yet, by the journals."""

    def __init__(self) -> None:
        self.parts: dict[int, list[PartLine]] = {}
        self.taken_back: set[int] = set()  # rows whose record was taken back once, by any attempt
        # Rows of `taken_back` whose parts contradicted their source. One stream copies them again and judges
        # as it reads, which shows whether the wire was at fault.
        self.contradicted: set[int] = set()


def fetching(entry: Entry, temporary: str, number: int, size: int) -> Part:
    """Make the job that copies part `number`, of `size` bytes, into the temporary file."""
    offset = number * size
    place = entry._replace(part=number, offset=offset, length=min(size, entry.size - offset))
    return Part(place, temporary, FETCH, size)


def in_order(entry: Entry, temporary: str, step: int, mark: PartLine | None) -> Part:
    """Make the job that copies an entry from its last `mark` to its end, with a mark after every `step`
    bytes."""
    done = mark.part_bytes if mark else 0
    place = entry._replace(part=0, offset=done, length=entry.size - done)
    return Part(place, temporary, IN_ORDER, step, (mark,) if mark else ())


def doing(entry: Entry, temporary: str, work: int, size: int, lines: tuple[PartLine, ...] = ()) -> Part:
    """Make a job that moves no bytes: BEGIN, FINISH or DROP."""
    return Part(entry._replace(part=0, offset=0, length=0), temporary, work, size, lines)


# Tasks, batches and results of the engine: plain data of the workers' parent.
#
# A row is an entry of the shard: a file, or one part of a giant (an object copied in parts over several
# shards). Sizes are bytes, times seconds.


class Failure(NamedTuple):
    """One row that could not be copied, or read back other than it was written."""

    path: str
    why: str
    exit_code: int
    retry: bool  # whether the same run, started again, may succeed
    contradicts: bool = False  # whether the source's bytes contradict a checksum


class FailedRow(NamedTuple):
    """`row` is its number in the shard."""

    row: int
    failure: Failure


class Batch:
    """The rows that one worker gets in one message.

    The parent keeps the frame while a worker has it, to send it again if the worker dies.
    """

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
        # Of the first and last row only: those between matter little.
        self.folders = {entry.path.rpartition("/")[0] for entry in (entries[0], entries[-1])}
        payload = marshal.dumps((number, rows, *to_wire(entries)))
        self.frame = wire.head(wire.BATCH, payload) + payload


class BatchAnswer(NamedTuple):
    """What a worker reports of one batch. The totals count rows whose bytes are in place."""

    number: int  # the batch's
    rows: int
    results: Any  # a copy's journal lines, as bytes; else a `RereadRow` or `AuditedRow` of each row
    failures: Sequence[FailedRow]
    bytes: int
    retries: int
    linked: int
    taken: int

    @classmethod
    def of(cls, frame: tuple[Any, ...]) -> BatchAnswer:
        number, rows, results, failures, *totals = frame
        if not isinstance(results, bytes):
            results = from_wire(*results)
        return cls(
            number, rows, results, [FailedRow(row, Failure(*fields)) for row, *fields in failures], *totals
        )


@dataclass(frozen=True)
class CopyTask:
    """One shard to copy into staging, by one attempt of one element."""

    shard: ShardInfo
    rows: Path
    journals: Path  # `RunLayout.journals(index)`
    data: Path  # staging's `data` folder; it exists
    dataset: DatasetConfig
    engine: EngineConfig
    run: str
    attempt: str  # unique to this attempt: `[A-Za-z0-9._-]+`
    host: str
    verify: VerifyConfig  # what a row's proof must be, and what may prove a giant later
    gid: int | None = None
    base: Path | None = None  # `data` of the release whose unchanged files are linked
    way: str = "link"  # how they come into staging: `link`, `reflink` or `copy`
    moves: Path | None = None  # `DatasetLayout.intervals`, where times of linking are noted; None: nowhere
    moved: CtimeInterval | None = None  # the interval's fields
    # when penstock linked and unlinked; None: no linked row will be carried over
    intervals: Intervals | None = None
    stated: Path | None = None  # `RunLayout.stated`, where checksum files stand beside the data
    probe: ProbeReport = field(default_factory=ProbeReport)  # what plan measured of the target's file system
    # other runs' staging trees, by run, from which rows are taken over
    stagings: Mapping[str, Abandoned] = field(default_factory=dict)
    # with `changed: follow`: files of the dataset that may be pinned anew, and that may leave
    may_change: tuple[int, int] = (0, 0)
    large_bytes: int = LEAST  # bytes from which an object is copied in parts, where its version can be pinned
    part_bytes: int = 0  # bytes of each part but the last; 0: by `part_bytes`
    fed: Callable[[], bool] | None = None  # see `Pool.fed`


@dataclass(frozen=True)
class RereadTask:
    """One shard to read back from staging (or a release) and compare with its journal."""

    shard: ShardInfo
    rows: Path
    journals: Path
    data: Path
    records: Path  # where the records go; the file appears whole, and only when no row failed
    engine: EngineConfig
    verify: VerifyConfig
    run: str
    attempt: str
    host: str
    follow: bool = False  # whether attempts of its copy may have read different versions of an object
    probe: ProbeReport = field(default_factory=ProbeReport)  # see `CopyTask`
    named: str = AUTO  # the kind of file system whose rules hold, as in `target.filesystem`
    recall: int = 0  # bytes of tiered files that may be fetched back to be read
    longest: float | None = None  # `verify.linked`; None: no linked row may be carried over
    way: str = "link"  # how rows of another release came into staging: see `PlanInfo.way`
    base_manifest: Path | None = None  # of the release that rows are linked from
    intervals: Intervals | None = None  # when penstock linked and unlinked; None: never
    # When audits of that release last read files of these paths and sizes, in seconds since the epoch; 0:
    # never. None: there was no audit.
    audited: Callable[[Sequence[bytes], Sequence[int], Sequence[bool]], Sequence[int]] | None = None
    damage: Path | None = None  # where damage of linked rows is noted, before anything else follows from it
    # `RunLayout.survey(index)`: stats of adopted files that were read before they were taken over, if any.
    adopted: Path | None = None
    rests: Callable[[int], bool] | None = None  # see `Pool.rests` and `Pool.fed`
    fed: Callable[[], bool] | None = None


@dataclass
class Outcome:
    """The result of one call on a shard. A whole file counts in `files`, and so does a part."""

    files: int = 0
    bytes: int = 0  # of the rows done by this call
    resumed_files: int = 0
    resumed_bytes: int = 0  # of the rows that earlier attempts had done
    linked: int = 0  # rows linked from the current release
    linked_bytes: int = 0  # of the rows linked before anything was copied
    link_seconds: float = 0.0
    taken: int = 0  # rows taken over from another run's staging
    failures: list[Failure] = field(default_factory=list)
    # failures of linked rows: what they are linked from is damaged (reread)
    linked_failures: list[Failure] = field(default_factory=list)
    retries: int = 0
    retried: Mapping[str, int] = field(default_factory=dict)  # by cause
    slowest: Sequence[SlowObject] = ()
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of the workers, and of this process while it ran them
    workers: int = 0
    streams: int = 0  # the most that were active at once
    amended: int = 0  # rows copied in another version than planned, by earlier attempts too
    gone: int = 0  # rows whose object left its source, likewise
    left_out: int = 0  # rows without a record, since they stand for nothing (reread)
    # rows of giants whose object changed, to be copied whole (`changed: follow`)
    split: list[int] = field(default_factory=list)
    durability: str = ""
    # where an fsync ends on this node, if not on the servers' disks; "" where the mount does not say
    fsync_ends: str = ""
    carried: tuple[int, int] = (0, 0)  # linked rows that were not read, and their bytes (reread)
    grades: dict[str, int] = field(default_factory=dict)  # rows by storage grade (reread)
    methods: dict[str, int] = field(default_factory=dict)  # rows by how the caches were passed (reread)
    warnings: list[str] = field(default_factory=list)  # problems that were repaired without a person
    why: str = ""  # why this many workers and streams, and what pressure did to them

    def add(self, answer: BatchAnswer) -> None:
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
