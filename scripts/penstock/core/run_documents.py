"""The durable facts of a run, as JSON below `.penstock/runs/`: results of list and plan, listed ranges of an
interrupted listing, results of the probe of the target, and the last rehearsal's measurements. Also the
plan's decision on the number of shards, and on the rows of each. Pure.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
import datetime as dt
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from penstock.core import human
from penstock.core.model import Entry
from penstock.core.typed_json import Document, FileNumber

# The number of shards, and the rows of each shard; a small sample that represents the sizes of all files; and
# a job for fio with such sizes. A shard is the unit of work that a worker (an element of a job array) claims.
# Plan, audits, repairs and comparisons cut their shards here.

# A row costs its bytes plus a fixed amount for each file. Shards are contiguous ranges of rows with equal
# cost, so that their records, one after another, are the manifest. No row is lost or doubled, and the shard
# with the highest cost costs less than the mean plus a row.

KIB = 1 << 10
GIB = 1 << 30

# Cost of opening, creating, syncing, renaming and reading back a file, as the bytes that could be moved in
# that time. Measured: a node of two cores moves 1 to 2 GB/s, or makes five to six thousand small files a
# second if a metadata call takes 0.5 ms.
FILE_COST = 256 * KIB
REUSED_DIVISOR = 2  # a linked file is read back but not copied, which is half of the work
LARGEST = 300 * GIB  # largest cost of a shard while no worker's rate is known
# Seconds that a worker takes for the smallest and the largest shard, if its rate is known. The smallest takes
# far longer than the tenths of a second between two shards. The largest bounds the work that is repeated
# after a worker dies, and the time that nodes wait for the last node.
BRIEFEST, LONGEST = 5.0, 300.0
# Least cost of a shard, because each shard has a dozen small files of state. Larger shards lengthen the end
# of a run, since the last copies are read back only after everything is copied.
LEAST = 256 << 20
# Number of shards if there is enough work, in all or for each worker. A slow node then takes fewer shards,
# and reading back begins during the copy, even with a single worker.
SHARDS, PER_SLOT = 32, 4
MOST = 20_000  # most shards that a controller can watch (`tests/run/test_many_elements.py`)


def costs(lengths: Sequence[int]) -> list[int]:
    """Return the cost of each row, in bytes; callers divide a linked row's length by `REUSED_DIVISOR`."""
    return [FILE_COST + length for length in lengths]


def parts(entry: Entry, giant_bytes: int, part_bytes: int) -> Iterator[Entry]:
    """Split a planned copy of `giant_bytes` or more into its parts, in order. Linked objects stay whole."""
    size = entry.size
    if size < giant_bytes or size <= part_bytes or entry.reuse:
        yield entry
        return
    for number, offset in enumerate(range(0, size, part_bytes)):
        yield entry._replace(part=number, offset=offset, length=min(part_bytes, size - offset))


@dataclass(frozen=True)
class Load:
    """The work to divide into shards. `cost` is the sum of `costs`."""

    cost: int
    bytes: int
    rows: int


@dataclass(frozen=True)
class Decision:
    """The number of shards of a plan."""

    shards: int
    why: str  # the reason, in words


def decide(
    load: Load, *, shard_bytes: int, shard_files: int, slots: int, rate: float | None = None
) -> Decision:
    """Choose the number of shards, at least one and at most one for each row. `slots`: workers that can run
    at once. `rate`: the cost that a worker does in a second, or None if not known. A shard costs at least
    LEAST, or BRIEFEST seconds at that rate if this is more. It costs at most LARGEST or, if the rate is
    known, LONGEST seconds at that rate.

    | the rows                          | shards                                                        |
    |-----------------------------------|---------------------------------------------------------------|
    | any                               | SHARDS, or PER_SLOT for each slot if that is more, as far as  |
    |                                   | these costs of a shard allow                                  |
    | more than shard_bytes/files allow | as many as these settings require                             |
    | any                               | at most MOST                                                  |
    """
    slots, rows = max(1, slots), max(1, load.rows)
    least, largest, by = float(LEAST), float(LARGEST), ""
    if rate is not None:
        least = max(least, BRIEFEST * rate)
        largest, by = max(least, LONGEST * rate), f", by {human.rate(rate)} of a worker"
    wanted = max(SHARDS, PER_SLOT * slots)
    why = f"so that a slow node takes fewer than others ({slots} can run at once)"
    if slots == 1:
        why = "so that little is done once more after an end, and reading back need not wait for all"
    if (worth := max(1, int(load.cost / least))) < wanted:
        wanted, why = worth, f"none smaller than {human.size(least)} of bytes and file costs{by}"
    elif (large := math.ceil(load.cost / largest)) > wanted:
        wanted, why = large, f"none larger than {human.size(largest)} of bytes and file costs{by}"
    by_bytes, by_files = math.ceil(load.bytes / shard_bytes), math.ceil(load.rows / shard_files)
    if by_bytes > wanted and by_bytes >= by_files:
        wanted, why = by_bytes, f"a shard has at most {human.size(shard_bytes)}"
    elif by_files > wanted:
        wanted, why = by_files, f"a shard has at most {shard_files:,} files"
    if wanted > MOST:
        wanted, why = MOST, f"no plan has more than {MOST}"
    if wanted > rows:
        wanted, why = rows, "one for each row"
    return Decision(wanted, why)


class Cut:
    """Assigns rows, in order, to shards: shard `k` takes the rows whose cost begins within the `k`-th of
    `shards` equal ranges of the total. Empty shards are not made: the numbers have no gap."""

    def __init__(self, total: int, shards: int) -> None:
        self._total, self._shards = max(1, total), max(1, shards)
        self._before = 0
        self._range = -1
        self._index = -1
        self._limit = 0

    def place(self, cost: int) -> int:
        """Return the shard of the next row, which costs `cost`."""
        if self._before >= self._limit or self._index < 0:
            self._range = min(self._shards - 1, self._before * self._shards // self._total)
            # the lowest cost in the next range; the last range has no end
            last = self._range == self._shards - 1
            self._limit = 1 << 200 if last else -(-(self._range + 1) * self._total // self._shards)
            self._index += 1
        self._before += cost
        return self._index

    def together(self, total: int) -> int | None:
        """Return the shard of all next rows, which cost `total`, if no cut can be among them; else None."""
        if self._index < 0 or self._before >= self._limit or self._before + total > self._limit:
            return None
        self._before += total
        return self._index

    def runs(self, costs: Sequence[int]) -> list[tuple[int, int, int]]:
        """Return (shard, start, end) for each run of the next rows that are in the same shard. This saves a
        call of `place` for each row."""
        begins = list(accumulate(costs, initial=self._before))
        spans: list[tuple[int, int, int]] = []
        start = 0
        while start < len(costs):
            shard = self.place(costs[start])
            end = bisect_left(begins, self._limit, start + 1, len(costs))
            self._before = begins[end]
            spans.append((shard, start, end))
            start = end
        return spans


def spread_by_size(count: int) -> list[int]:
    """Return the numbers below `count` in an order whose first numbers are always spread evenly: 1/2, 1/4,
    3/4, 1/8 ... of the way (van der Corput: bits read backwards). If they are places in a list of files
    sorted by size, the first 64 files represent all sizes to 1/64."""
    bits = max(1, (count - 1).bit_length())
    backwards = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits))
    return list(dict.fromkeys(number * count >> bits for number in backwards))


def size_distance(sample: Iterable[int], sizes: Iterable[Sequence[int]]) -> float:
    """Return the Kolmogorov-Smirnov distance of a sample's sizes from all `sizes`, which come in batches in
    any order. It is the largest difference, 0 to 1, between the fractions of both that are below any size; 1
    if either is empty. Only the sample and a single batch are in memory."""
    ordered = sorted(sample)
    points = sorted(set(ordered))
    below, upto, total = [0] * len(points), [0] * len(points), 0
    for batch in sizes:
        whole = sorted(batch)
        total += len(whole)
        for place, point in enumerate(points):
            below[place] += bisect_left(whole, point)
            upto[place] += bisect_right(whole, point)
    if not ordered or not total:
        return 1.0

    # Between two sizes of the sample, the sample's fraction is constant and that of all sizes grows. So the
    # difference is largest at one of these two sizes.
    return max(
        abs(counted(ordered, point) / len(ordered) - of_all / total)
        for counted, counts in ((bisect_left, below), (bisect_right, upto))
        for point, of_all in zip(points, counts, strict=True)
    )


_LINE_WIDTH = 4  # bits of a class of sizes: its upper bound is 16 times that of the class below
_FIO_GLOBAL = """\
; Sizes of files of {dataset}, for {streams} streams. `cd` into a folder of the target, and `fio` this file.
[global]
directory=.
rw=write
ioengine=psync
bs=1m
fallocate=none
create_on_open=1
file_service_type=sequential
openfiles=1
{sync}=1
unlink=1
group_reporting=1
"""


def fio_job(dataset: str, sizes: Sequence[int], streams: int, durability: str) -> str:
    """Return the job file for files of these `sizes`, in bytes. At least one size is needed.

    Each class of sizes is a job. Its files have random sizes between the class's smallest and largest. The
    `streams` are divided among the classes by their work, with at least one process for each. Empty files get
    a byte, since fio makes no empty files. `durability`: `fsync` (each file), or `syncfs` (once at the end).
    """
    classes: dict[int, list[int]] = {}
    for size in sizes:
        classes.setdefault(-(-max(1, size).bit_length() // _LINE_WIDTH), []).append(max(1, size))
    whole = sum(sizes) + FILE_COST * len(sizes)
    sync = "fsync_on_close" if durability == "fsync" else "end_fsync"
    jobs = [_FIO_GLOBAL.format(dataset=dataset, streams=streams, sync=sync)]
    for number, members in sorted(classes.items()):
        part = (sum(members) + FILE_COST * len(members)) / whole
        processes = min(len(members), max(1, round(streams * part)))
        jobs.append(
            f"[below-2^{number * _LINE_WIDTH}]\n"
            f"filesize={min(members)}-{max(members)}\n"
            f"nrfiles={-(-len(members) // processes)}\n"
            f"numjobs={processes}\n"
        )
    return "\n".join(jobs)


@dataclass(frozen=True)
class RunInfo:
    """`run.json`, written by list. Settings that decide the release's content never change, but the engine
    and verify parts of `config` follow the latest configuration."""

    # 16 hex digits of a hash over all that decides the release's content: listing, filter and more. An
    # unchanged source and configuration give the same run, also from another checkout.
    run: str
    dataset: str
    release: str  # the release's name, which never changes
    created: str  # UTC, ISO 8601
    listing_digest: str  # `sha256:<hex>` over the listing's canonical rows
    files: int
    bytes: int
    scanned: int  # objects seen, before the filter
    root: str
    state_root: str | None
    # Frozen: {"dataset": ..., "plan": ..., "engine": ..., "verify": ..., ...}, for
    # `config.serialization.RunConfig`. Never a secret.
    config: Mapping[str, object]
    # [[upper bound of size, files, bytes], ...]; the bounds are powers of four from 4 KiB
    histogram: Sequence[Sequence[int]] = ()
    # objects that list left out by policy: filtered, markers, links
    ignored: Mapping[str, int] = field(default_factory=dict)
    # Names that share a file with another name in the dataset: `files` is the number of such further names,
    # `of` the number of shared files, `bytes` the extra space that the copies need. {} if there are none.
    hard_links: Mapping[str, int] = field(default_factory=dict)
    # the sources' URLs as the sources themselves state them, in the configuration's order; never a secret
    sources: Sequence[str] = ()
    origins: Sequence[str] = ()  # store or file system of each source (`Source.origin`), in the same order


@dataclass(frozen=True)
class ShardInfo:
    """A shard, in `plan.json`."""

    index: int
    rows: int
    files: int  # files that end in this shard; a giant counts where its last part is
    bytes: int
    reused: int  # rows linked from the current release, or taken over from another run's staging
    digest: str  # `sha256:<hex>` of the shard's file; journals and receipts refer to it


@dataclass(frozen=True)
class PlanInfo:
    """`plan.json`, written by plan."""

    run: str
    release: str
    base: str | None  # the release whose files are reused, if any
    files: int
    bytes: int
    giants: int
    unchanged: int
    unchanged_bytes: int
    shards: Sequence[ShardInfo]
    part_bytes: int
    folders: int
    why: Sequence[str] = ()  # sentences on the number of shards and the expected time, with reasons
    taken: int = 0  # files taken over from other runs' stagings, whole or in part
    taken_bytes: int = 0
    # by other run: the name of its staging, below `releases/`, from which files are taken over
    stagings: Mapping[str, str] = field(default_factory=dict)
    # By other run: the planned inode of `data` in its staging, since another staging may get the name later.
    staging_inodes: Mapping[str, FileNumber] = field(default_factory=dict)
    renamed: int = 0  # files among `unchanged` that `base` has under other names, identified by checksums
    renamed_bytes: int = 0
    way: str = "link"  # how files of `base` get into this release: `link`, `reflink` or `copy`
    # [run, path, size] of each giant that is moved here from such a staging before its parts are copied
    giants_taken: Sequence[Sequence[str]] = ()
    # whether linked files may be carried over, if `verify.linked` says so; else all of them are read back
    carries: bool = False

    @property
    def new_on_target(self) -> tuple[int, int]:
        """Number of files and folders, and bytes, that a copy adds to the target. Files that are linked or
        taken over do not count. Nor do files that cannot be linked (renamed, from an adopted tree), and so
        are copied within the target."""
        files, size = self.files + self.folders - self.taken, self.bytes - self.taken_bytes
        return (
            files - self.unchanged if self.way == "link" else files,
            size if self.way == "copy" else size - self.unchanged_bytes,
        )

    def by_index(self) -> dict[int, ShardInfo]:
        """Return the shards by their index, in the plan's order."""
        return {shard.index: shard for shard in self.shards}


RUN = Document(RunInfo, "a run's description")
PLAN = Document(PlanInfo, "a run's plan")


class ListingSegment(NamedTuple):
    """All objects whose keys sort after `after`, up to and including `upto`."""

    after: str  # bytes of a key, in hex; "" to begin with the first key
    upto: str
    listed: float  # when the first of these objects was listed, in seconds since the epoch
    rows: int

    @property
    def begin(self) -> bytes:
        """`after` as bytes."""
        return bytes.fromhex(self.after)

    @property
    def end(self) -> bytes:
        """`upto` as bytes."""
        return bytes.fromhex(self.upto)


LISTING_SEGMENT = Document(ListingSegment, "a segment of a listing")


# `runs/<run>/probe.json`: what the target's file system did when plan tried it (`fs.probe`).
#
# | answer      | means                                                                        |
# |-------------|------------------------------------------------------------------------------|
# | `yes`       | the file system has the ability                                              |
# | `no`        | it refuses the call, or does something else (`error`, `why`)                 |
# | `value`     | the ability's size: a number in the unit of `ABILITIES`                      |
# | `error`     | the call failed by an errno that is no refusal: nothing is known             |
# | `not tried` | it could not be tried, for the reason in `why`                               |

YES, NO, VALUE, ERROR, NOT_TRIED = "yes", "no", "value", "error", "not tried"

# each tried ability, in the order of tables, and its name for people
ABILITIES: Mapping[str, str] = {
    "rename_over_file": "rename over a file",
    "rename_over_symlink": "rename of a symbolic link over another",
    "rename_over_empty_folder": "rename of a folder over an empty one",
    "rename_noreplace": "renameat2 with RENAME_NOREPLACE",
    "rename_exchange": "renameat2 with RENAME_EXCHANGE",
    "rename_between_folders": "rename between folders",
    "rename_open_between_folders": "rename between folders of a file that is open",
    "rename_between_trees": "rename to the folder beside (quota tree)",
    "link": "hard link in one folder",
    "link_between_folders": "hard link between folders",
    "link_between_trees": "hard link to the folder beside (quota tree)",
    "reflink": "reflink (FICLONE) between folders",
    "exclusive_create": "O_EXCL creates a name once",
    "open_unlink": "a removed file that is open can be read",
    "inode_stable": "inode numbers stay",
    "fsync_file": "fsync of a file",
    "fsync_folder": "fsync of a folder",
    "syncfs": "syncfs",
    "direct_alignment": "O_DIRECT reads, alignment in bytes",
    "fallocate": "fallocate reserves blocks",
    "tmpfile": "O_TMPFILE, then a link",
    "holes": "holes take no room and are reported",
    "holes_before_writeback": "bytes that wait for write-back are no hole",
    "xattr_bytes": "largest user xattr, bytes",
    "acl": "POSIX ACLs",
    "acl_inherited": "default ACLs are inherited",
    "flock": "flock between two processes of this machine",
    "name_bytes": "longest name, bytes",
    "name_not_utf8": "names that are not UTF-8",
    "case_sensitive": "names differ by case",
    "owner_kept": "new files belong to their maker",
    "create_mode": "modes are given as asked",
    "chmod_kept": "chmod is kept",
    "setgid_inherited": "folders inherit group and setgid",
    "time_resolution": "times are kept in steps of, ns",
}


class TrialOutcome(NamedTuple):
    """The result of one trial."""

    answer: str = NOT_TRIED
    value: int | None = None
    error: str = ""  # the errno's name (`EOPNOTSUPP`), if a call failed
    why: str = ""  # what was seen instead, or why it was not tried, in words

    def __str__(self) -> str:
        """Return the outcome in words: `no (EXDEV)`, `4096`, `not tried: the file system is read-only`."""
        said = str(self.value) if self.answer == VALUE else self.answer
        if self.answer == NOT_TRIED:
            return ": ".join(filter(None, (said, self.why)))
        reasons = ", ".join(filter(None, (self.error, self.why)))
        return f"{said} ({reasons})" if reasons else said


class LinkCost(NamedTuple):
    """Median duration of calls in microseconds, as this client saw it. All are 0 if not measured."""

    first_stat: float = 0.0  # stat of a file with a single name
    linked_stat: float = 0.0  # stat of a file with a second name in another folder
    first_open: float = 0.0
    linked_open: float = 0.0

    def __bool__(self) -> bool:
        return self.linked_open > 0

    def __str__(self) -> str:
        return (
            f"stat {self.linked_stat:g} µs, open {self.linked_open:g} µs; of a file with one name "
            f"{self.first_stat:g} and {self.first_open:g} µs"
        )


UNMEASURED = LinkCost()


@dataclass(frozen=True)
class ProbeReport:
    """The result of a probe. Runs older than the probe have no abilities, since nothing was tried."""

    folder: str = ""  # the folder in which it was tried
    beside: str = ""  # the second folder, to and from which links and renames were tried; "": none
    kind: str = ""  # the file system, as named in penstock's table of file systems
    host: str = ""
    kernel: str = ""  # the kernel's release, from `uname -r`
    at: str = ""  # UTC, ISO 8601
    seconds: float = 0.0
    abilities: Mapping[str, TrialOutcome] = field(default_factory=dict)
    link_cost: LinkCost = UNMEASURED
    # rates a second of a single process, in sequence: `files` (small, written and renamed) and `links`. Empty
    # if not measured.
    rates: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, ability: str) -> TrialOutcome:
        """Return the outcome of one of `ABILITIES`."""
        return self.abilities.get(
            ability, TrialOutcome(why="the probe did not get so far" if self.abilities else "")
        )

    def refused(self, ability: str) -> bool:
        """Return whether the file system lacks the ability. An ability that was not tried is not refused."""
        return self[ability].answer in (NO, ERROR)


PROBE_REPORT = Document(ProbeReport, "what a file system did when it was tried")


ENOUGH = 0.95  # fraction of the best rate at which a number of streams is sufficient


class Leg(NamedTuple):
    """Files copied and read back with the same number of streams. Sizes are in bytes."""

    streams: int  # the requested number, or else the largest number active at once
    files: int
    bytes: int
    seconds: float  # seconds of copying
    read_seconds: float  # seconds of reading back
    # Kolmogorov-Smirnov distance of the copied files' sizes from the sizes of all files except giants
    distance: float

    @property
    def work(self) -> float:
        """Cost copied a second, as in the balancing of shards: bytes, plus FILE_COST for each file. This rate
        depends least on which files of the sample the leg got."""
        return (self.bytes + FILE_COST * self.files) / max(self.seconds, 1e-9)

    @property
    def rates(self) -> tuple[float, float, float]:
        """Rates a second: files copied, bytes copied, and bytes read back."""
        copying, reading = max(self.seconds, 1e-9), max(self.read_seconds, 1e-9)
        return self.files / copying, self.bytes / copying, self.bytes / reading


class Rehearsal(NamedTuple):
    """A sample of the dataset, copied and read back on one node."""

    dataset: str
    at: str  # end of the rehearsal: UTC, ISO 8601
    host: str
    files: int  # files of the dataset that are smaller than `plan.giant_bytes`
    sample: int  # number of these files that were drawn
    legs: Sequence[Leg]  # a leg for each number of streams
    knee: int  # the sufficient number of streams; 0 if only a single number was tried
    durability: str  # how files became durable: `fsync` or `syncfs`
    # error of the earlier plan: its seconds for the kept leg, divided by the real seconds, minus 1
    model_error: float = 0.0

    @property
    def leg(self) -> Leg:
        """The leg that plans use: the leg with `knee` streams, or the only leg."""
        return next((leg for leg in self.legs if leg.streams == self.knee), self.legs[0])

    @property
    def day(self) -> str:
        """The day of the rehearsal, such as `2 Nov`, in the reader's time zone."""
        moment = dt.datetime.fromisoformat(self.at).astimezone()
        return f"{moment.day} {moment:%b}"


def _check(document: Rehearsal) -> None:
    try:
        if not document.legs or not document.day or min(leg.seconds for leg in document.legs) <= 0:
            raise ValueError("nothing was measured")
    except OverflowError as error:
        raise ValueError("it ended at no time") from error


REHEARSAL = Document(Rehearsal, "what a rehearsal measured", check=_check)


def knee(legs: Sequence[Leg]) -> int:
    """Return the smallest number of streams with ENOUGH of the best rate, or 0 for fewer than two legs."""
    if len(legs) < 2:
        return 0
    best = max(leg.work for leg in legs)
    return min(leg.streams for leg in legs if leg.work >= ENOUGH * best)
