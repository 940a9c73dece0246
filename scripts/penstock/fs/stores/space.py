"""Whether a plan fits: its storage targets, the metadata, the quotas of its owner.

| what                          | seen                                                   | verdict |
|-------------------------------|--------------------------------------------------------|---------|
| a target that files can get   | more comes to it (`placement.load`) than it takes      | stop    |
|                               | it has fewer inodes than chunk files come to it        | stop    |
| metadata targets together     | less free than files and folders need                  | stop    |
| a quota of the final owner    | by `fs.quotas.judge`                           |         |
| free space of a target        | not known                                              | note    |
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.events import ADMINISTRATOR, CheckResult
from penstock.core.human import printable
from penstock.core.human import size as _size
from penstock.fs.quotas import beside as quotas_beside
from penstock.fs.quotas import judge
from penstock.fs.stores import placement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.core.dataset_documents import StillToWrite
    from penstock.fs.quotas import Quota
    from penstock.fs.stores.facts import FillRules, Pattern, StoreStatus, Target
    from penstock.fs.stores.placement import FreeRoom, SizeClasses

NAMED = 8  # targets that results name; the others are counted
MEND = (
    "stage less, have the target's folder striped over fewer targets or in another pool, or have room made "
    f"on these targets: {ADMINISTRATOR}"
)


class Placing(NamedTuple):
    """How files are placed on the targets among which their pattern chooses."""

    pattern: Pattern
    among: list[Target]
    load: placement.TargetLoad
    rules: FillRules

    @property
    def wide(self) -> int:
        """Targets of a long enough file."""
        return min(self.pattern.targets, len(self.among))

    def room(self, target: Target) -> FreeRoom | None:
        """As `placement.room`."""
        return placement.room(target, self.rules.storage_limits)


def _placing(targets: Sequence[Target], pattern: Pattern, sizes: SizeClasses, rules: FillRules) -> Placing:
    among = placement.eligible(targets, pattern.targets)
    return Placing(pattern, among, placement.load(sizes, pattern, len(among)), rules)


def placed(status: StoreStatus, sizes: SizeClasses) -> list[CheckResult]:
    """Judge whether the storage targets take these files, striped as the folder is now."""
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
    """Return the file system as it will be when other runs have written what they plan.

    | of the status    | takes                                                   | of which runs       |
    |------------------|---------------------------------------------------------|---------------------|
    | storage target   | its even share of the chunk files and of the bytes      | of its pool         |
    |                  | (twice where they are mirrored)                         |                     |
    | metadata target  | its even share of what so many files need               | all                 |
    | quota of a user  | all bytes and files                                     | of its uid and pool |
    | quota of a group | all bytes and files                                     | of its gid and pool |

    An unknown pool counts as the same. Where quotas count chunk files, a run counts with its own number of
    them. A run without that number (the vendor's commands did not show its striping) counts one for each
    file, rather too few.
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
    """Return whether the pools are the same, by number or by name."""
    numbers = {name: number for number, name in status.pools}
    return "" in (first, second) or numbers.get(first, first) == numbers.get(second, second)


def _less(free: int | None, taken: float) -> int | None:
    return None if free is None else max(0, free - math.ceil(taken))


class Overfilled(NamedTuple):
    """A target that takes less than it gets, in bytes."""

    target: Target
    need: int
    takes: int


def _overfilled(placing: Placing) -> list[Overfilled]:
    """Return the overfilled targets, the worst first."""
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
    """Judge whether the metadata targets take these files and folders."""
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
        if (free_room := placement.room(target, rules.metadata_limits)) is not None
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
    """Judge whether the file system may have so many files at all. How many it has is unknown."""
    most, wanted = status.max_files, sizes.files + folders
    if most is None or wanted <= most:
        return []
    text = f"{sizes.files:,} files and {folders:,} folders, and the file system may have {most:,}"
    mend = f"stage fewer files, or have its limit raised: {ADMINISTRATOR}"
    return [CheckResult(f"{status.product} files", text, "stop", f"{wanted:,} files", mend)]


def metadata_need(files: int, folders: int, rules: FillRules) -> tuple[int, int]:
    """Return bytes and inodes that so many files and folders take on metadata targets."""
    return round((files + folders) * rules.entry_bytes), files + rules.folder_inodes * folders


def quotas(status: StoreStatus, sizes: SizeClasses, folders: int = 0) -> list[CheckResult]:
    """Judge whether the quotas of the files' final owner and group take them. Without files: whether any is
    used up."""
    pattern, rules = status.pattern, status.rules
    copies = pattern.copies if pattern else 1
    files = sizes.files + folders
    if rules.quota_counts == rules.objects:
        files = placement.chunk_files(sizes, pattern) if pattern else sizes.files
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
