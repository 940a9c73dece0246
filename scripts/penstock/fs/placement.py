"""Computes how a plan's files are distributed over storage targets, and whether all targets and quotas
suffice. It also chooses over how many targets new files are striped. All functions are pure.
"""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.human import printable
from penstock.core.human import size as _size
from penstock.core.run_steps import ADMINISTRATOR, CheckResult
from penstock.fs.quotas import beside as quotas_beside
from penstock.fs.quotas import judge
from penstock.fs.stores import GIB, TIB, FillRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.core.dataset_documents import StillToWrite
    from penstock.fs.quotas import Quota
    from penstock.fs.stores import Pattern, StoreStatus, Target
    from penstock.host.command import Answer


# How much of a plan is placed on a single storage target, given the stripe pattern of the plan's files.
#
# | part of a plan   | bytes on each of T targets                                                           |
# |------------------|--------------------------------------------------------------------------------------|
# | all its bytes    | 1/T of them (of both copies if files are mirrored), plus a margin of `MARGIN` %      |
# | its largest file | the file's bytes, divided over the targets that its chunks and the pattern allow     |
#
# A target needs room for the larger of the two. The margin allows for targets chosen at random for each file,
# which is BeeGFS's default (`tuneTargetChooser=randomized`). If 10,000 equal files are striped over 4 of 64
# targets each, the fullest target gets some 10 % more than the mean. With more files the excess is smaller.
#
# Limit: a few large files can be placed on the same target. Copying them then fails for lack of space.

__all__ = ["GIB", "TIB"]

MARGIN = 10  # percent by which a target may get more bytes than its even share
_BITS = 4  # number of a size's leading bits that determine the size's class


class SizeClasses:
    """Files counted by classes of size. Needs memory for some hundred classes, for any number of files."""

    def __init__(self, sizes: Iterable[int] = ()) -> None:
        self._counts: defaultdict[int, int] = defaultdict(int)
        self._sums: defaultdict[int, int] = defaultdict(int)
        self.largest = 0
        self.add(sizes)

    def add(self, sizes: Iterable[int]) -> None:
        """Count files of these sizes, in bytes."""
        counts, sums, largest = self._counts, self._sums, self.largest
        for size in sizes:
            shift = size.bit_length() - _BITS
            key = size >> shift << shift if shift > 0 else size
            counts[key] += 1
            sums[key] += size
            largest = max(largest, size)
        self.largest = largest

    def __iter__(self) -> Iterator[tuple[int, float]]:
        """Iterate over (number of files, their mean size) for each class, smallest files first."""
        for key in sorted(self._counts):
            yield self._counts[key], self._sums[key] / self._counts[key]

    @property
    def files(self) -> int:
        """Number of files counted."""
        return sum(self._counts.values())

    @property
    def bytes(self) -> int:
        """Sum of all files' sizes."""
        return sum(self._sums.values())

    def half_of_the_bytes(self) -> float:
        """Return the mean size of the class that contains the middle of all bytes, counted from the smallest
        files on. Returns 0 if there are no files."""
        left = self.bytes / 2
        for count, size in self:
            left -= count * size
            if left <= 0:
                return size
        return 0.0


class TargetLoad(NamedTuple):
    """The load that a plan puts on a target."""

    bytes: int  # bytes for which the target needs room, according to the first table of this module
    chunk_files: float  # mean number of chunk files on the target


def load(sizes: SizeClasses, pattern: Pattern, among: int) -> TargetLoad:
    """Compute the load that these files put on each of `among` targets."""
    places = max(1, among // pattern.copies)
    mean = -(-sizes.bytes * (100 + MARGIN) // (100 * places))
    chunks = math.ceil(sizes.largest / pattern.chunk_bytes)
    of_largest = -(-sizes.largest // max(1, min(pattern.targets, places, chunks)))
    objects = sum(count * _objects(size, pattern, min(pattern.targets, places)) for count, size in sizes)
    return TargetLoad(max(mean, of_largest), objects / places)


def chunk_files(sizes: SizeClasses, pattern: Pattern) -> int:
    """Count the chunk files of these files on all targets together. Quotas count chunk files as files."""
    return pattern.copies * sum(count * _objects(size, pattern, pattern.targets) for count, size in sizes)


def _objects(size: float, pattern: Pattern, wide: int) -> int:
    """Return on how many targets, out of `wide`, a file has an object. Even an empty file may have one."""
    return wide if pattern.objects_of_empty else min(wide, math.ceil(size / pattern.chunk_bytes))


def eligible(targets: Sequence[Target], wanted: int) -> list[Target]:
    """Return the targets among which BeeGFS chooses `wanted` targets, according to their capacity pools.

    | capacity pools with enough targets  | targets to choose from             |
    |-------------------------------------|------------------------------------|
    | `normal` (or unknown)               | the targets in that pool           |
    | only `normal` and `low` together    | the targets in these pools         |
    | not even these                      | all targets that are not offline   |

    Inactive and closed targets are never returned.
    """
    up = [target for target in targets if target.reachability not in ("offline", "inactive")]
    up = [target for target in up if target.capacity != "closed"]
    for pools in (("normal", "unknown"), ("normal", "unknown", "low")):
        chosen = [target for target in up if target.capacity in pools]
        if len(chosen) >= wanted:
            return chosen
    return up


class FreeRoom(NamedTuple):
    """The space of a target up to its next limit."""

    bytes: int
    limit: int  # bytes that are still free when the limit is reached; 0 if the target is full then


def room(target: Target, limits: tuple[int, ...] = FillRules().storage_limits) -> FreeRoom | None:
    """Return how much a target can take before its next limit, or None if its free space is unknown.

    | free bytes                              | next limit                                      |
    |-----------------------------------------|-------------------------------------------------|
    | above the low limit, pool not `low`     | the low limit                                   |
    | any other, above the emergency limit    | the emergency limit: the site's low limit was   |
    |                                         | passed, or differs from the default             |
    | below the emergency limit               | none, until the target is full                  |
    """
    if target.free_bytes is None:
        return None
    free = target.free_bytes
    kept = limits[1:] if target.capacity in ("low", "emergency") else limits
    limit = next(limit for limit in kept if free > limit or limit == 0)
    return FreeRoom(free - limit, limit)


# Whether a plan fits on its storage targets and metadata targets, and within the quotas of its owner.
#
# | subject                       | finding                                                | verdict |
# |-------------------------------|--------------------------------------------------------|---------|
# | a target that files can get   | its load (`load`) exceeds its room                     | stop    |
# |                               | it has fewer free inodes than it gets chunk files      | stop    |
# | metadata targets together     | less is free than files and folders need               | stop    |
# | a quota of the final owner    | judged by `fs.quotas.judge`                            |         |
# | free space of a target        | not known                                              | note    |

NAMED = 8  # number of targets that a result names, at most; further targets are only counted
MEND = (
    "stage less, have the target's folder striped over fewer targets or in another pool, or have room made "
    f"on these targets: {ADMINISTRATOR}"
)


class Placing(NamedTuple):
    """How files are placed on the targets among which their pattern chooses."""

    pattern: Pattern
    among: list[Target]
    load: TargetLoad
    rules: FillRules

    @property
    def wide(self) -> int:
        """Number of targets over which a long enough file is striped."""
        return min(self.pattern.targets, len(self.among))

    def room(self, target: Target) -> FreeRoom | None:
        """Return the result of the module's `room` for this target."""
        return room(target, self.rules.storage_limits)


def _placing(targets: Sequence[Target], pattern: Pattern, sizes: SizeClasses, rules: FillRules) -> Placing:
    among = eligible(targets, pattern.targets)
    return Placing(pattern, among, load(sizes, pattern, len(among)), rules)


def placed(status: StoreStatus, sizes: SizeClasses) -> list[CheckResult]:
    """Judge whether the storage targets have room for these files, given the folder's present striping."""
    pattern = status.pattern
    if pattern is None or not status.of_role("storage"):
        return []
    placing = _placing(status.in_pool(), pattern, sizes, status.rules)
    full = _overfilled(placing)
    lacking = list(_lacking_inodes(status.product, placing))
    if not full:
        return lacking or [_fits(status.product, placing)]
    results = [
        CheckResult(
            f"{status.product} {printable(target.name)}",
            f"about {_size(need)} ({need:,} bytes) of this plan come to lie on it ({placing.wide} of "
            f"{len(placing.among)} targets a file), and it takes {_size(room)}"
            f"{_until(placing.room(target))}: {need - room:,} bytes are missing",
            "stop",
            f"{_size(need)} of room",
            MEND,
        )
        for target, need, room in full[:NAMED]
    ]
    if len(full) > NAMED:
        left = sum(max(0, takes) for *_, takes in full)
        text = (
            f"{len(full) - NAMED} further targets take too little; {_size(left)} on all {len(full)} together"
        )
        results.append(
            CheckResult(f"{status.product} storage targets", text, "stop", _size(sizes.bytes), MEND)
        )
    return [*results, *lacking]


def beside(status: StoreStatus, others: Sequence[StillToWrite]) -> StoreStatus:
    """Return the file system's status as it will be when other runs have written the rest of their plans.

    | part of the status | is increased by                                       | of the runs              |
    |--------------------|-------------------------------------------------------|--------------------------|
    | storage target     | its even share of the chunk files and of the bytes    | in its pool              |
    |                    | (twice the bytes if files are mirrored)               |                          |
    | metadata target    | its even share of the metadata for the files          | all                      |
    | quota of a user    | all bytes and files                                   | of its uid and pool      |
    | quota of a group   | all bytes and files                                   | of its gid and pool      |

    An unknown pool counts as equal to any pool. If quotas count chunk files, a run's chunk files are added.
    If the vendor's commands did not show the run's striping, one chunk file for each file is assumed, which
    may be too few.
    """
    if not others:
        return status
    copies = status.pattern.copies if status.pattern else 1
    of_role = {role: status.of_role(role) for role in ("storage", "metadata")}

    def filled(target: Target) -> Target:
        size = files = 0
        beside_it = of_role.get(target.role, [])
        if target.role == "storage":
            beside_it = [neighbour for neighbour in beside_it if neighbour.pool == target.pool]
            theirs = [run for run in others if _same_pool(status, run.pool, target.pool)]
            size, files = copies * sum(run.bytes for run in theirs), sum(map(_chunk_files, theirs))
        elif target.role == "metadata":
            size, files = metadata_need(sum(run.files for run in others), 0, status.rules)
        among = max(1, len(beside_it))
        return target._replace(
            free_bytes=_less(target.free_bytes, size / among),
            free_inodes=_less(target.free_inodes, files / among),
        )

    def used(quota: Quota) -> Quota:
        theirs = [run for run in others if _same_pool(status, run.pool, quota.pool)]
        if status.rules.quota_counts == status.rules.objects:
            theirs = [run._replace(files=_chunk_files(run)) for run in theirs]
        return quotas_beside(quota, theirs, copies)

    return status._replace(targets=tuple(map(filled, status.targets)), quotas=tuple(map(used, status.quotas)))


def _chunk_files(run: StillToWrite) -> int:
    return run.chunk_files or run.files


def _same_pool(status: StoreStatus, first: str, second: str) -> bool:
    """Return whether the pools, given by number or by name, are the same."""
    numbers = {name: number for number, name in status.pools}
    return "" in (first, second) or numbers.get(first, first) == numbers.get(second, second)


def _less(free: int | None, taken: float) -> int | None:
    return None if free is None else max(0, free - math.ceil(taken))


class Overfilled(NamedTuple):
    """A target that has less room than its load needs."""

    target: Target
    need: int  # bytes that the target needs for its load
    takes: int  # bytes that the target can take


def _overfilled(placing: Placing) -> list[Overfilled]:
    """Return the overfilled targets, beginning with the target that lacks most room."""
    need = placing.load.bytes
    overfilled = []
    for target in placing.among:
        room = placing.room(target)
        if room is not None and need > room.bytes:
            overfilled.append(Overfilled(target, need, room.bytes))
    return sorted(overfilled, key=lambda lacking: lacking.takes - lacking.need)


def _lacking_inodes(product: str, placing: Placing) -> Iterator[CheckResult]:
    need = round(placing.load.chunk_files)
    for target in placing.among:
        if target.free_inodes is not None and need > target.free_inodes:
            yield CheckResult(
                f"{product} {printable(target.name)}",
                f"about {need:,} {placing.rules.objects} come to it, and {target.free_inodes:,} inodes are "
                "free",
                "stop",
                f"{need:,} inodes",
                f"stripe over fewer targets, stage fewer files, or {ADMINISTRATOR}",
            )


def _until(room: FreeRoom | None) -> str:
    limit = room.limit if room else 0
    return f" until {_size(limit)} are left" if limit else " until it is full"


def _fits(product: str, placing: Placing) -> CheckResult:
    pattern, among, load, _ = placing
    unknown = [target for target in among if placing.room(target) is None]
    takes = {target: room.bytes for target in among if (room := placing.room(target)) is not None}
    least = min(takes, key=takes.__getitem__, default=None)
    text = (
        f"a file lies on up to {placing.wide} of {len(among)} targets, in chunks of "
        f"{_size(pattern.chunk_bytes)}; about {_size(load.bytes)} come to one"
    )
    if least is not None:
        text += f", and {printable(least.name)} takes {_size(takes[least])}"
    if unknown:
        text += f"; the room of {len(unknown)} targets is not known"
    return CheckResult(f"{product} placement", text, "note" if unknown else "ok")


def metadata(status: StoreStatus, sizes: SizeClasses, folders: int) -> list[CheckResult]:
    """Judge whether the metadata targets have room for these files and folders."""
    targets = status.of_role("metadata")
    entries = sizes.files + folders
    if not targets or not entries:
        return []
    rules = status.rules
    need, inodes = metadata_need(sizes.files, folders, rules)
    about = f"{status.product} metadata"
    percent = f", {100 * need / sizes.bytes:.2f} % of the data" if need < sizes.bytes else ""
    needed = f"about {_size(need)}{percent}" if rules.entry_bytes else f"{inodes:,} inodes"
    demand = f"{sizes.files:,} files and {folders:,} folders need {needed}"
    rooms = [
        free_room.bytes
        for target in targets
        if (free_room := room(target, rules.metadata_limits)) is not None
    ]
    inodes_free = [target.free_inodes for target in targets if target.free_inodes is not None]
    mend = f"stage fewer files, or have metadata targets enlarged: {ADMINISTRATOR}"
    if len(rooms) == len(targets) and sum(rooms) < need:
        missing = need - sum(rooms)
        text = f"{demand}; {_size(sum(rooms))} are left above the limits: {missing:,} bytes are missing"
        return [CheckResult(about, text, "stop", _size(need), mend)]
    if len(inodes_free) == len(targets) and sum(inodes_free) < inodes:
        also = f" and {inodes:,} inodes" if rules.entry_bytes else ""
        text = f"{demand}{also}; {sum(inodes_free):,} are free"
        return [CheckResult(about, text, "stop", f"{inodes:,} inodes", mend)]
    free = rooms if rules.entry_bytes else inodes_free
    if len(free) < len(targets):
        return [CheckResult(about, f"{demand}; what is free is not known of every target", "note")]
    left = (
        f"{_size(sum(rooms))} are left above the limits"
        if rules.entry_bytes
        else f"{sum(inodes_free):,} are free"
    )
    return [CheckResult(about, f"{demand}; {left}")]


def files_allowed(status: StoreStatus, sizes: SizeClasses, folders: int) -> list[CheckResult]:
    """Judge whether the plan alone exceeds the number of files that the file system may have. The number of
    existing files is unknown."""
    most, wanted = status.max_files, sizes.files + folders
    if most is None or wanted <= most:
        return []
    text = f"{sizes.files:,} files and {folders:,} folders, and the file system may have {most:,}"
    mend = f"stage fewer files, or have its limit raised: {ADMINISTRATOR}"
    return [CheckResult(f"{status.product} files", text, "stop", f"{wanted:,} files", mend)]


def metadata_need(files: int, folders: int, rules: FillRules) -> tuple[int, int]:
    """Return the bytes and the inodes that so many files and folders need on metadata targets."""
    return round((files + folders) * rules.entry_bytes), files + rules.folder_inodes * folders


def quotas(status: StoreStatus, sizes: SizeClasses, folders: int = 0) -> list[CheckResult]:
    """Judge whether the files fit in the quotas of their final owner and group. If there are no files, judge
    whether any quota is used up."""
    pattern, rules = status.pattern, status.rules
    copies = pattern.copies if pattern else 1
    files = sizes.files + folders
    if rules.quota_counts == rules.objects:
        files = chunk_files(sizes, pattern) if pattern else sizes.files
    return [
        result
        for quota in status.quotas
        for result in judge(
            f"{status.product} quota of {printable(quota.name)}",
            quota,
            sizes.bytes * copies,
            files,
            rules.quota_counts,
        )
    ]


# Over how many targets, and in which chunks, new files must be striped (the option `target.striping`).
#
# | `target.striping` | the folder has                         | striping that is set                       |
# |-------------------|----------------------------------------|--------------------------------------------|
# | `inherit`         | anything                               | nothing                                    |
# | `auto`            | the table's number (see below)         | nothing                                    |
# |                   | another number                         | the table's number, but no more targets    |
# |                   |                                        | than have room; chunk and pool stay        |
# |                   | mirrored files, or a composite layout  | nothing                                    |
# |                   | an unknown pattern                     | nothing, and a warning is shown            |
# | `targets=4,       | these values                           | nothing                                    |
# | chunk=1MiB`       | other values                           | these values, but no more targets than     |
# |                   |                                        | have room; pool stays, also chunk if unset |
# |                   | mirrored files, a composite layout, or | nothing, and a warning is shown            |
# |                   | an unknown pattern                     |                                            |
#
# The table for `auto` follows. It uses the class of sizes that contains the middle of all bytes, since a
# folder has a single pattern for all its files.
#
# | mean size of that class | targets |
# |-------------------------|---------|
# | below 16 MiB            | 1       |
# | below 1 GiB             | 4       |
# | from 1 GiB on           | 8       |

KEY = "target.striping"
INHERIT, AUTO = "inherit", "auto"
WIDTHS = ((16 << 20, 1), (1 << 30, 4))
WIDEST = 8  # number of targets that `auto` sets, at most


class StripingChoice(NamedTuple):
    """The striping to set on a folder, and the results to show."""

    targets: int = 0  # number of targets for a new file; 0 if no striping is to be set
    chunk: int = 0  # bytes of a chunk; 0 means that the folder's chunk size stays
    results: tuple[CheckResult, ...] = ()


def choose(wish: str, status: StoreStatus, sizes: SizeClasses) -> StripingChoice:
    """Choose the striping to set on a folder, whose `status` was queried, for new files of these sizes.
    `wish` is the option `target.striping`."""
    if wish == INHERIT:
        return StripingChoice()
    pattern = status.pattern
    if pattern is None:
        text = "how the folder is striped is not known, so nothing is set"
        mend = f"see whether the vendor's commands answer, or set {KEY}: {INHERIT}"
        return StripingChoice(results=(CheckResult(KEY, text, "warning", mend=mend),))
    usable = len(eligible(status.in_pool(), 1))
    if wish != AUTO:
        return _wished(wish, pattern, usable)
    if not sizes.bytes or pattern.kind != "raid0":
        return StripingChoice()
    typical = sizes.half_of_the_bytes()
    wanted = next((targets for below, targets in WIDTHS if typical < below), WIDEST)
    wanted = min(wanted, usable) if usable else wanted
    if wanted == pattern.targets:
        return StripingChoice()
    text = (
        f"files are striped over {wanted} targets in place of {pattern.targets}: half of all bytes lie in "
        f"files of up to {_size(typical)}"
    )
    return StripingChoice(wanted, results=(CheckResult(KEY, text),))


def parse(wish: str) -> tuple[int, int]:
    """Parse a value such as `targets=4, chunk=1MiB`, which the configuration has checked
    (`config.settings.STRIPING`). Return the number of targets and the bytes of a chunk, each 0 if not
    given."""
    values = dict(part.strip().split("=") for part in wish.split(","))
    chunk = values.get("chunk", "0KiB")
    return int(values["targets"]), int(chunk[:-3]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[chunk[-3]]


def _wished(wish: str, pattern: Pattern, usable: int) -> StripingChoice:
    targets, chunk = parse(wish)
    if pattern.kind != "raid0":
        text = f"the folder's pattern is {pattern.kind}, which is left as it is"
        mend = f"set {KEY}: {INHERIT}, or name a target whose folder has a plain pattern"
        return StripingChoice(results=(CheckResult(KEY, text, "warning", mend=mend),))
    wanted = min(targets, usable) if usable else targets
    results = []
    if wanted < targets:
        text = f"files are striped over {wanted} targets: no more of those that they can get have room"
        results.append(CheckResult(KEY, text, "warning", wish, f"set {KEY}: {INHERIT}, or fewer targets"))
    if holds(wanted, chunk, pattern):
        return StripingChoice(results=tuple(results))
    text = (
        f"files are striped over {wanted} targets in chunks of {_size(chunk or pattern.chunk_bytes)}, in "
        f"place of {pattern.targets} in chunks of {_size(pattern.chunk_bytes)}"
    )
    return StripingChoice(wanted, chunk, (*results, CheckResult(KEY, text)))


def holds(targets: int, chunk: int, pattern: Pattern | None) -> bool:
    """Return whether a folder's pattern has this number of targets, and this chunk size unless `chunk` is
    0."""
    return pattern is not None and pattern.targets == targets and chunk in (0, pattern.chunk_bytes)


def compared(targets: int, chunk: int, pattern: Pattern | None, answer: Answer) -> CheckResult:
    """Judge whether `pattern`, read back from a folder, is the pattern that the command of `answer` set."""
    ended = f"`{printable(shlex.join(answer.argv))}` ended with exit status {answer.code}"
    if pattern is not None and holds(targets, chunk, pattern):
        pool = f", pool {pattern.pool} ({pattern.pool_name})" if pattern.pool else ""
        text = printable(f"{_shape(pattern, 'targets a file')}{pool}")
        return CheckResult(KEY, text if answer.ok else f"{text}; {ended}, and set it: {answer.words}")
    text = f"{ended}, and what is read back is {_shape(pattern)}"
    return CheckResult(KEY, text, "warning", mend=f"run `{shlex.join(answer.argv)}` by hand")


def failed(words: str, command: str, pattern: Pattern | None, *, refused: bool) -> CheckResult:
    """Warn that `command` failed to set a pattern, so that files get the present `pattern`."""
    why = "this account has not the right" if refused else "the command failed"
    text = f"not striped as wished: {why} ({printable(words)}); files are striped as the folder gives it"
    text += f": {_shape(pattern)}" if pattern else ""
    mend = f"have an administrator run `{command}`, or set {KEY}: {INHERIT}"
    return CheckResult(KEY, text, "warning", mend=mend)


def _shape(pattern: Pattern | None, noun: str = "targets") -> str:
    return f"{pattern.targets} {noun}, chunks of {_size(pattern.chunk_bytes)}" if pattern else "nothing"
