"""Tasks, batches and results of the engine, as plain data of the workers' parent. Also the kinds of job for a
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
    from penstock.tables.json_files import CtimeIntervals
    from penstock.target.links import Abandoned

    # A function that takes the totals so far: files, bytes, failed rows. They include earlier attempts, so at
    # the end they are the shard's totals.
    Report = Callable[[int, int, int], None]
    # A function that is called several times a second, and raises InterruptedRunError after a signal.
    StopCheck = Callable[[], None]


# The kinds of job for a large row that is copied in parts (`core.model.Part`).
#
# For a store's object, BEGIN makes the temporary file, a FETCH copies each part, and FINISH judges the parts
# together and renames the file. If that fails, DROP removes the file, and the row is copied WHOLE, as any
# other row.
#
# For a folder source's file, one stream copies it IN_ORDER: a file system does not limit each connection, and
# verify need not compute two digests. After every STEP bytes the stream sends the journal a mark, which
# consists of the number of bytes done and their digest.

BEGIN, FETCH, FINISH, DROP, WHOLE, IN_ORDER = range(6)
_MIB = 1 << 20
LEAST = 64 * _MIB  # bytes from which an object is copied in parts, or in order
# Bytes of each stream that may be in transit or not yet in the journal. Including its current part or block,
# a killed attempt costs less than 64 MiB a stream.
LOST = 48 * _MIB
# The fewest streams for which `most_lost` reckons. On a local disk that idles between two flushes, two
# streams that were only 48 MiB ahead each took 1.1 to 1.4 times as long.
FEWEST = 8
# Bytes between two marks. At a mark, a stream waits until the previous mark is recorded or may be lost.
STEP = LOST // 2


def most_lost(streams: int) -> int:
    """Return the bytes that `streams` streams together may have in transit or not yet in the journal."""
    return LOST * max(FEWEST, streams)


def is_spare(unrecorded: int, streams: int) -> bool:
    """Return whether a stream need not wait for its mark, as all streams may go LOST bytes further."""
    return unrecorded + LOST * streams <= most_lost(streams)


def temporary_name() -> str:
    """Return a unique name for a file that is copied in parts or in order."""
    return f".p.{secrets.token_hex(8)}"


def part_bytes(size: int) -> int:
    """Return the size of the parts (except the last) of an object of `size` bytes.

    With small parts, a killed attempt loses little, but each part costs a request. The extra CPU time
    compared with one GET is 15 % with 8 MiB, 5 % with 16 MiB and none with 64 MiB. If sizes are powers of
    two, parts mostly end where those of a multipart upload end, so that their sums can be joined.
    """
    return 16 * _MIB if size <= 4096 * _MIB else 32 * _MIB


# Values in place of a part's number: the temporary file was made, or was given up with all its parts.
BEGUN, DROPPED = -1, -2


class Unfinished:
    """What the journals say about rows that have no record yet."""

    def __init__(self) -> None:
        self.parts: dict[int, list[PartLine]] = {}
        self.taken_back: set[int] = set()  # rows whose record any attempt ever took back
        # Rows of `taken_back` whose parts contradicted their source. One stream copies them again and checks
        # while it reads, which shows whether the network was at fault.
        self.contradicted: set[int] = set()


def fetching(entry: Entry, temporary: str, number: int, size: int) -> Part:
    """Return the job that copies part `number`, of `size` bytes, into the temporary file."""
    offset = number * size
    place = entry._replace(part=number, offset=offset, length=min(size, entry.size - offset))
    return Part(place, temporary, FETCH, size)


def in_order(entry: Entry, temporary: str, step: int, mark: PartLine | None) -> Part:
    """Return the job that copies an entry from its last `mark` to its end, with a mark after every `step`
    bytes."""
    done = mark.part_bytes if mark else 0
    place = entry._replace(part=0, offset=done, length=entry.size - done)
    return Part(place, temporary, IN_ORDER, step, (mark,) if mark else ())


def doing(entry: Entry, temporary: str, work: int, size: int, lines: tuple[PartLine, ...] = ()) -> Part:
    """Return a job that moves no bytes: BEGIN, FINISH or DROP."""
    return Part(entry._replace(part=0, offset=0, length=0), temporary, work, size, lines)


# A row is an entry of the shard: a file, or one part of a giant (an object copied in parts over several
# shards). Sizes are bytes, times seconds.


class Failure(NamedTuple):
    """A row that could not be copied, or whose bytes read back differ from those written."""

    path: str
    why: str
    exit_code: int
    retry: bool  # whether the same run, started again, may succeed
    contradicts: bool = False  # whether the source's bytes contradict a checksum


class FailedRow(NamedTuple):
    """A failure with the row's number in the shard."""

    row: int
    failure: Failure


class Batch:
    """The rows that a worker gets in one message.

    The parent keeps the message (`frame`) until the worker answers, and sends it again if the worker dies.
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
        # The folders of the first and last row are enough.
        self.folders = {entry.path.rpartition("/")[0] for entry in (entries[0], entries[-1])}
        payload = marshal.dumps((number, rows, *to_wire(entries)))
        self.frame = wire.head(wire.BATCH, payload) + payload


class BatchAnswer(NamedTuple):
    """A worker's report of one batch. The totals count rows whose bytes are in place."""

    number: int  # the number of the batch
    rows: int
    results: Any  # journal lines as bytes (copy), or each row's `RereadRow` or `AuditedRow`
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
    verify: VerifyConfig  # the settings for a row's required proof, and for later proofs of a giant
    gid: int | None = None
    base: Path | None = None  # `data` of the release whose unchanged files are linked
    way: str = "link"  # how unchanged files come into staging: `link`, `reflink` or `copy`
    moves: Path | None = None  # `DatasetLayout.intervals`, the file for times of linking; None: no file
    moved: CtimeInterval | None = None  # the fields of the interval to note in `moves`
    # when penstock linked and unlinked files; None: no linked row will be carried over
    intervals: CtimeIntervals | None = None
    stated: Path | None = None  # `RunLayout.stated`, if there are checksum files beside the data
    probe: ProbeReport = field(default_factory=ProbeReport)  # what plan measured of the target's file system
    # other runs' staging trees, by run, from which rows are taken over
    stagings: Mapping[str, Abandoned] = field(default_factory=dict)
    # with `changed: follow`, the most files of the dataset that may change, and that may leave the source
    may_change: tuple[int, int] = (0, 0)
    large_bytes: int = LEAST  # bytes from which an object is copied in parts, if its version can be pinned
    part_bytes: int = 0  # size of the parts except the last; 0: the function `part_bytes` decides
    fed: Callable[[], bool] | None = None  # the function for `Pool.fed`


@dataclass(frozen=True)
class RereadTask:
    """One shard to read back from staging (or a release) and compare with its journal."""

    shard: ShardInfo
    rows: Path
    journals: Path
    data: Path
    records: Path  # the file for the records; it appears whole, and only if no row failed
    engine: EngineConfig
    verify: VerifyConfig
    run: str
    attempt: str
    host: str
    follow: bool = False  # whether attempts of its copy may have read different versions of an object
    probe: ProbeReport = field(default_factory=ProbeReport)  # what plan measured of the target's file system
    named: str = AUTO  # the kind of file system whose rules apply, as in `target.filesystem`
    recall: int = 0  # bytes of tiered files that may be recalled to be read
    longest: float | None = None  # `verify.linked`; None: no linked row may be carried over
    way: str = "link"  # how another release's rows came into staging: see `PlanInfo.way`
    base_manifest: Path | None = None  # the manifest of the release whose files are linked
    intervals: CtimeIntervals | None = None  # when penstock linked and unlinked files; None: never
    # A function that returns when audits of the linked release last read files of these paths and sizes, in
    # seconds since the epoch; 0: never. None if there was no audit.
    audited: Callable[[Sequence[bytes], Sequence[int], Sequence[bool]], Sequence[int]] | None = None
    damage: Path | None = None  # file in which damage of linked rows is noted before anything else happens
    # `RunLayout.survey(index)`: the survey of adopted files that were read before adoption, if any
    adopted: Path | None = None
    rests: Callable[[int], bool] | None = None  # the functions for `Pool.rests` and `Pool.fed`
    fed: Callable[[], bool] | None = None


@dataclass
class Outcome:
    """The result of one call on a shard. `files` counts rows: whole files, and parts of giants."""

    files: int = 0
    bytes: int = 0  # bytes of the rows done by this call
    resumed_files: int = 0
    resumed_bytes: int = 0  # bytes of the rows that earlier attempts had done
    linked: int = 0  # rows linked from the current release
    linked_bytes: int = 0  # bytes of the rows linked before anything was copied
    link_seconds: float = 0.0
    taken: int = 0  # rows taken over from another run's staging
    failures: list[Failure] = field(default_factory=list)
    # failures of linked rows, which show that the linked release is damaged (reread)
    linked_failures: list[Failure] = field(default_factory=list)
    retries: int = 0
    retried: Mapping[str, int] = field(default_factory=dict)  # retries by cause
    slowest: Sequence[SlowObject] = ()
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # CPU time of the workers, and of this process while it ran them
    workers: int = 0
    streams: int = 0  # the most streams that were active at once
    amended: int = 0  # rows copied in another version than planned, including rows of earlier attempts
    gone: int = 0  # rows whose object left its source, including rows of earlier attempts
    left_out: int = 0  # rows without a record, as their object is gone or copied in another row (reread)
    # rows of giants whose object changed, which must be copied whole (`changed: follow`)
    split: list[int] = field(default_factory=list)
    durability: str = ""
    # where an fsync ends on this node, if not on the servers' disks; "" if the mount does not say
    fsync_ends: str = ""
    carried: tuple[int, int] = (0, 0)  # number and bytes of the linked rows that were not read (reread)
    grades: dict[str, int] = field(default_factory=dict)  # rows by storage grade (reread)
    methods: dict[str, int] = field(default_factory=dict)  # rows by the reading's method (reread)
    warnings: list[str] = field(default_factory=list)  # problems that penstock repaired by itself
    why: str = ""  # the reasons for the numbers of workers and streams, and their changes under overload

    def add(self, answer: BatchAnswer) -> None:
        self.files += answer.rows
        self.bytes += answer.bytes
        self.retries += answer.retries
        self.linked += answer.linked
        self.taken += answer.taken

    @property
    def exit_code(self) -> int:
        """0 without failures, the exit status of all failures if it is the same, or else 1."""
        codes: Sequence[int] = sorted({f.exit_code for f in self.failures})
        return 0 if not codes else codes[0] if len(codes) == 1 else 1
