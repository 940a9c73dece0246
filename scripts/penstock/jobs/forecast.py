"""Forecasts for a copy: the totals of a plan or repair, the known ceilings (highest rates) and the time that
follows from them, and whether it fits on the target beside the other runs' writes.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import element_documents, human, run_steps
from penstock.core.catalogue_rows import OtherSteps
from penstock.core.errors import MAKE_ROOM, LockedError, NewerFormatError, NoSpaceError, PenstockError
from penstock.core.estimates import (
    ASSUMED,
    Estimate,
    Known,
    MeasuredCopy,
    Rate,
    Rates,
    Work,
    forecast,
    rates,
    seconds,
    sentence,
)
from penstock.core.human import brief
from penstock.core.run_documents import REHEARSAL, Decision, Load, decide
from penstock.core.run_steps import BY_NAME
from penstock.dataset import documents, receipts, release_records, staging_notice
from penstock.dataset.context import operations
from penstock.fs import quotas, store_checks
from penstock.fs.capabilities import facts
from penstock.fs.placement import SizeClasses
from penstock.fs.quotas import owner_of_new
from penstock.host import machine_settings
from penstock.jobs import share_rule
from penstock.jobs.bandwidth import cap_now
from penstock.target import access

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from penstock.config.serialization import RunConfig
    from penstock.config.settings import Config, TargetConfig
    from penstock.core.dataset_documents import StillToWrite
    from penstock.core.layout import DatasetLayout
    from penstock.core.run_documents import Rehearsal, ShardInfo
    from penstock.core.run_steps import CheckResult
    from penstock.dataset.context import Context
    from penstock.dataset.staging_notice import StagingNotice


# Forecasts for a copy: the totals of a plan or repair, and whether the target has room for them. Also the
# known ceilings (highest rates), and the time that follows from them.

# `Totals` of a plan or repair, whether the target has room for them, and the time of the copy.
#
# Steps with elements also ask how long each element will take, for the time limit of its job. Sizes are in
# bytes, times in seconds, rates in bytes a second.

FILE_SYSTEM_BLOCK = 4096  # usual size in bytes of a block; a file takes whole blocks
LOOKED_AT = 10  # newest lines of the history in which a run with measured rates is looked for


AFTER = ("permissions", "verify", "publish")  # steps after the copy; list and plan leave no receipts


class OnTarget(NamedTuple):
    files: int = 0
    bytes: int = 0


NOTHING = OnTarget()


@dataclass
class Totals:
    """Counts of the files of a plan or repair.

    `add`, `add_giant` and `copy_on_target` count. Plan and repair set rows, cost, giants, folders and
    renamed.
    """

    files: int = 0  # all files: to be copied, unchanged and taken over
    bytes: int = 0
    rows: int = 0  # rows of shards; a giant has several
    cost: int = 0  # cost of all rows, by which shards are balanced (`core.run_documents`)
    giants: int = 0
    unchanged: int = 0  # files that a release has already: they are linked, or copied on the target
    unchanged_bytes: int = 0
    renamed: int = 0  # unchanged files with another name in the release
    renamed_bytes: int = 0
    taken: int = 0  # files in another run's staging, including giants of which it has any part
    taken_bytes: int = 0
    folders: int = 0  # new folders
    own_files: int = 0  # unchanged files that get an inode of their own on the target
    own_bytes: int = 0  # bytes of own_files, which are stored again
    blocks: int = 0  # bytes of all new files, in whole blocks
    to_place: SizeClasses | None = None  # copied files by size; None if placement is not checked

    def add(
        self,
        to_copy: Sequence[int],
        linked: OnTarget = NOTHING,
        taken: OnTarget = NOTHING,
        sparse: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Add files to copy, by their sizes, and files on the target that are linked or taken over. `sparse`
        has the size and the used bytes of each file to copy that has holes."""
        size = sum(to_copy)
        self.files += len(to_copy) + linked.files + taken.files
        self.bytes += size + linked.bytes + taken.bytes
        self.unchanged += linked.files
        self.unchanged_bytes += linked.bytes
        self.taken += taken.files
        self.taken_bytes += taken.bytes
        stored = list(to_copy)
        for whole, less in sparse:
            stored[stored.index(whole)] = less
        self.blocks += _blocks(stored)
        if self.to_place is not None:
            self.to_place.add(stored)

    def add_giant(self, held: int, *, sparse: bool = False) -> None:
        """Count a giant, added before, of which another run's staging has `held` bytes. The held blocks of a
        `sparse` giant are not known, and none of them is subtracted."""
        if held:
            self.taken += 1
            self.taken_bytes += held
            self.blocks -= 0 if sparse else held

    def copy_on_target(self, sizes: Sequence[int]) -> None:
        """Count files, added before, that are copied on the target: they take inodes and blocks."""
        self.own_files += len(sizes)
        self.own_bytes += sum(sizes)
        self.blocks += _blocks(sizes)
        if self.to_place is not None:
            self.to_place.add(sizes)

    @property
    def to_copy(self) -> tuple[int, int]:
        return self.files - self.unchanged - self.taken, self.bytes - self.unchanged_bytes - self.taken_bytes

    @property
    def new_inodes(self) -> int:
        return self.to_copy[0] + self.own_files + self.folders


def require_room(
    layout: DatasetLayout, totals: Totals, keep: int, others: Sequence[StillToWrite] = ()
) -> str:
    """Return a sentence on the space that the copy takes and the free space.

    Beside the copy, `keep` bytes and the files that `others` will still write must have room. Raises
    NoSpaceError if bytes or inodes do not suffice.
    """
    space = facts(layout.root)
    files = totals.new_inodes
    their_bytes, their_files = sum(other.bytes for other in others), sum(other.files for other in others)
    if totals.blocks + keep + their_bytes > space.free_bytes:
        theirs = (
            f", {human.size(their_bytes)} ({their_bytes:,} bytes) of it for other runs" if their_bytes else ""
        )
        raise NoSpaceError(
            "the target has too little space for this run",
            where=str(layout.root),
            why=f"it needs {human.size(totals.blocks)} ({totals.blocks:,} bytes) and leaves "
            f"{human.size(keep)} (target.keep_free); {human.size(space.free_bytes)} "
            f"({space.free_bytes:,} bytes) are free on {space.kind}{theirs}",
            hint=f"{MAKE_ROOM}, lower target.keep_free, or stage less; nothing was copied",
        )
    if space.free_inodes is not None and files + their_files > space.free_inodes:
        theirs = f", {their_files:,} of them for other runs" if their_files else ""
        raise NoSpaceError(
            "the target has too few inodes for this run",
            where=str(layout.root),
            why=f"it needs {files:,} for files and folders; {space.free_inodes:,} are free on "
            f"{space.kind}{theirs}",
            hint=f"{MAKE_ROOM}, or stage less; nothing was copied",
        )
    text = f"takes {human.size(totals.blocks)} of {human.size(space.free_bytes)} free on {space.kind}"
    return f"{text}; other runs will still write {human.size(their_bytes)}" if their_bytes else text


def element_rates(layout: DatasetLayout, tried: Mapping[str, float] = MappingProxyType({})) -> Rates:
    """Return the rates of one element, from the newest measured run or rehearsal. Otherwise rates of files
    and links are those that plan's probe `tried`, or all rates are assumed (`estimates.rates`)."""
    return rates(_history(layout), tried)


def other_steps(layout: DatasetLayout, files: int) -> OtherSteps | None:
    """Return the time of the steps beside copy for this number of files, in proportion to the last published
    run. None if no published run has readable receipts."""
    try:
        line = next((line for line in release_records.history_lines(layout) if line.run), None)
        if line is None:
            return None
        done = [receipts.step(layout.run(line.run), step) for step in AFTER]
    except (OSError, PenstockError):
        return None
    kept = [receipt for receipt in done if receipt]
    most = max((receipt.get("files", 0) for receipt in kept), default=0)
    return OtherSteps(line.release, files / most * sum(map(receipts.seconds, kept))) if most else None


def element_time(
    layout: DatasetLayout, shards: Mapping[int, ShardInfo], limit: float | None = None, *, copies: bool
) -> Callable[[int], Estimate]:
    """Return a function from a shard's index to the time that its element takes alone.

    The time follows from the newest measured run's rates, or assumed rates. No rate above `limit` is used
    (`element_rate`). Reading back (`copies` is False) was never measured, and is estimated as a copy. A
    rehearsal does not count, since it had source and target for itself.
    """
    basis = rates(_history(layout, rehearsed=False))

    def expected(index: int) -> Estimate:
        shard = shards[index]
        takes = max(seconds(shard.rows, shard.bytes, 1, basis), shard.bytes / limit if limit else 0.0)
        return Estimate(takes, measured=copies and bool(basis.measured))

    return expected


def cost_rate(layout: DatasetLayout, load: Load, limit: float | None = None) -> float | None:
    """Return the cost (`core.run_documents`) that a worker does a second in these rows, by `element_time`'s
    rates. None if no run was measured, and no `limit` is below the assumed rate."""
    basis = rates(_history(layout, rehearsed=False))
    alone, least = seconds(load.rows, load.bytes, 1, basis), load.bytes / limit if limit else 0.0
    return load.cost / max(alone, least) if load.rows and (basis.measured or least > alone) else None


def element_rate(limit: int | None, cap: int | None, at_once: int) -> float | None:
    """Return the rate at which each of `at_once` elements may read; None if there is no limit.

    The rate is the element's own `limit`, or its part of the `cap` if lower. Other runs may also take parts
    of the cap.
    """
    parts = [float(limit)] if limit else []
    return min([*parts, *([cap / max(1, at_once)] if cap else [])], default=None)


def _history(layout: DatasetLayout, *, rehearsed: bool = True) -> Iterable[MeasuredCopy]:
    """Yield the measured copies of the newest published runs, oldest first, from their elements' receipts.

    With `rehearsed`, the last rehearsal is among them, in the order of time. Yields nothing if the history is
    unreadable.
    """
    rehearsal = _rehearsal(layout) if rehearsed else None
    try:
        newest = list(islice(release_records.history_lines(layout), LOOKED_AT))
    except OSError:
        return
    for line in reversed(newest):
        if not line.run:  # a repair's line, which has no run and no receipts of a copy
            continue
        if rehearsal is not None and rehearsal.at < line.at:
            yield _as_copy(rehearsal)
            rehearsal = None
        try:
            folder = layout.run(line.run).receipt("copy", 0).parent
            paths = [path for path in folder.iterdir() if path.suffix == ".json"]
            elements = [documents.load(element_documents.ELEMENT_RECEIPT, path) for path in paths]
        except (OSError, ValueError, NewerFormatError):  # the receipts were removed, or one is torn
            continue
        yield MeasuredCopy(
            line.release,
            files=sum(receipt.done_files - receipt.linked for receipt in elements),
            bytes=sum(receipt.done_bytes - receipt.linked_bytes for receipt in elements),
            element_seconds=sum(receipt.seconds - receipt.link_seconds for receipt in elements),
            links=sum(receipt.linked for receipt in elements if receipt.link_seconds),
            link_seconds=sum(receipt.link_seconds for receipt in elements),
        )
    if rehearsal is not None:
        yield _as_copy(rehearsal)


def _rehearsal(layout: DatasetLayout) -> Rehearsal | None:
    try:
        return documents.load(REHEARSAL, layout.rehearsal_result)
    except (OSError, ValueError, PenstockError):
        return None


def _as_copy(rehearsal: Rehearsal) -> MeasuredCopy:
    leg = rehearsal.leg
    return MeasuredCopy(rehearsal.day, leg.files, leg.bytes, leg.seconds, rehearsed=True)


def _blocks(sizes: Sequence[int]) -> int:
    return FILE_SYSTEM_BLOCK * sum([-(-size // FILE_SYSTEM_BLOCK) for size in sizes])


# The known ceilings of a dataset's copies, the time of a copy under them, and how many shards its rows get.
#
# The ceilings come from the configuration, the newest release's copy or rehearsal, the link's cap file, and
# this machine.

LOCAL = "local"  # the backend whose elements all run on this machine
MEASURED_HERE = "the target just now"
NO_RATES: Mapping[str, float] = MappingProxyType({})
OF_ELEMENTS = ("bytes", "files")  # ceilings that an earlier copy showed, or that are assumed


def known(config: Config, layout: DatasetLayout, tried: Mapping[str, float] = NO_RATES) -> dict[str, Known]:
    """Return the ceilings by the short names of `--assume`. Unreadable ceilings are left out. `tried` has the
    rates that plan's probe measured on the target."""
    return _ceilings(config, element_rates(layout, tried))


def _ceilings(config: Config, rates: Rates) -> dict[str, Known]:
    ceilings = {}
    cap = cap_now(config.bandwidth)
    if cap.rate:
        ceilings["link"] = Known("network link", "all", Rate(cap.rate, "bandwidth cap"))
    if cap.requests:
        ceilings["requests"] = Known(
            "requests to sources", "all", Rate(cap.requests, "bandwidth cap"), "files"
        )
    if limit := config.engine.limit:
        ceilings["limit"] = Known("engine.limit", "node", Rate(limit, "configured"))
    if ops := operations(config.target):
        ceilings["metadata"] = Known("target's metadata", "all", Rate(ops, "target.ops"), "operations")
    if speed := machine_settings.network_speed():
        # Compute nodes are assumed to have this machine's network devices.
        local = config.cluster.backend == LOCAL
        ceilings["nic"] = Known("nodes' networks", "all" if local else "node", Rate(speed, "this machine"))
    origin = rates.origin or ASSUMED
    ceilings["bytes"] = Known("elements (bytes)", "node", Rate(rates.bytes_per_second, origin))
    if not rates.measured and rates.tried:
        origin = MEASURED_HERE
    ceilings["files"] = Known("elements (files)", "node", Rate(rates.files_per_second, origin), "files")
    return ceilings


def copy_time(
    config: Config,
    layout: DatasetLayout,
    totals: Totals,
    at_once: int,
    tried: Mapping[str, float] = NO_RATES,
) -> str:
    """Describe how long the copy of these files will take with `at_once` elements, and which ceiling limits
    it. `tried` is as in `known`. Each element makes its links before it copies."""
    rates = element_rates(layout, tried)
    files, size = totals.to_copy
    work = Work(files + totals.own_files, size + totals.own_bytes)
    outlook = forecast(work, at_once, _ceilings(config, rates).values())
    links = totals.unchanged - totals.own_files
    return sentence(outlook, at_once, links / rates.links_per_second / max(1, at_once) if links else 0.0)


def shards(
    context: Context, layout: DatasetLayout, settings: Config | RunConfig, load: Load, *steps: str
) -> Decision:
    """Decide how many shards these rows get, and why. All `steps`, in this order, use the same shards."""
    slots, limit = context.cluster.slots(steps[0]), None
    if BY_NAME[steps[0]].copies:
        limit = element_rate(settings.engine.limit, cap_now(context.config.bandwidth).rate, slots)
    return decide(
        load,
        shard_bytes=settings.plan.shard_bytes,
        shard_files=settings.plan.shard_files,
        slots=max(map(context.cluster.slots, steps)),
        rate=cost_rate(layout, load, limit),
    )


# Whether a plan, a repair or a slice of a rehearsal fits on the target, beside the other runs' writes.
# Counts the target's stores, metadata and quotas.

# How a plan's files spread over the target's stores, metadata and quotas.
#
# The figures come from the file system vendor's commands, if any, and the kernel's quotas. Only `stripe` has
# effects: it sets the layout of the empty staging folder (the tree in which the release grows).


class TargetStores:
    """The stores of a dataset's target. Call `check` before anything is made, then `stripe`. `gid` is the
    files' group. If it is None, the folder's group counts if the folder is setgid, or else the process's."""

    def __init__(self, layout: DatasetLayout, target: TargetConfig, gid: int | None) -> None:
        self._layout, self._target, self._gid = layout, target, gid
        self._checks = store_checks.PlanChecks([])
        self._others: Sequence[StillToWrite] = ()

    @property
    def pool(self) -> str:
        """The files' storage pool, found by `check`; "" if not known."""
        return self._checks.pool

    @property
    def chunk_files(self) -> int:
        """The number of chunk files (BeeGFS's stripes), from the last `check` or `stripe`; 0 if not known."""
        return self._checks.chunk_files

    @property
    def gid(self) -> int:
        return owner_of_new(self._layout.releases, None, self._gid)[1]

    @property
    def sizes(self) -> SizeClasses | None:
        """New counters by size for the files to copy; None if the vendor's commands are missing."""
        needed = store_checks.has_tools(self._layout.root, self._target.filesystem)
        return SizeClasses() if needed else None

    def check(self, totals: Totals, others: Sequence[StillToWrite] = ()) -> list[CheckResult]:
        """Check that these files, striped as configured, fit beside what `others` will still write. Returns a
        result for each check. Raises NoSpaceError if the files do not fit."""
        self._others = others
        self._checks = store_checks.check_plan(
            self._layout.releases,
            totals.to_place or SizeClasses(),
            totals.folders,
            gid=self._gid,
            wish=self._target.striping,
            named=self._target.filesystem,
            others=others,
        )
        counted = quotas.of_new_files(self._layout.releases, None, self._gid)
        results = [
            *quotas.check(counted, totals.blocks, totals.new_inodes, others),
            *self._checks.results,
        ]
        self._refuse(results)
        return results

    def stripe(self, data: Path, totals: Totals) -> list[CheckResult]:
        """Set the striping chosen by `check` on the empty staging folder `data`.

        If the file system refuses it, check whether the files fit with the folder's own striping. Raises
        NoSpaceError if they do not.
        """
        checks = self._checks
        results = store_checks.stripe(data, checks.targets, checks.chunk, named=self._target.filesystem)
        if any(result.verdict != "ok" for result in results):
            sizes = totals.to_place or SizeClasses()
            as_given = store_checks.check_plan(
                data,
                sizes,
                totals.folders,
                gid=self._gid,
                named=self._target.filesystem,
                others=self._others,
            )
            self._refuse(as_given.results)
            self._checks = as_given
        return results

    def _refuse(self, results: list[CheckResult]) -> None:
        stops = [result for result in results if result.verdict == "stop"]
        if stops:
            raise NoSpaceError(
                "the target cannot take this run",
                where=str(self._layout.root),
                why="; ".join(f"{result.about}: {result.found}" for result in stops),
                hint="; ".join(dict.fromkeys(result.mend for result in stops)) + "; nothing was copied",
            )


# Whether a plan, a repair or a slice of a rehearsal fits on the target beside other runs' writes.
#
# The problem: a run fills a file system for hours, and a run planned meanwhile sees free space that the first
# run will take. So each run states in its notice (`dataset.staging_notice`) the bytes and files that it will
# still write, and lowers these once a minute. `take` adds up the live notices.
#
# | another notice below the root                       | then                                             |
# |-----------------------------------------------------|--------------------------------------------------|
# | is not live, only submitted, or invalid             | it is ignored                                    |
# | is of this account, or of one of `target.owners`    | it is counted, and reported                      |
# | is of any other account, or states more than the    | it is reported, but not counted: one forged      |
# | file system holds                                   | number would stop everybody                      |
#
# Each run writes its own notice before it counts, so of two plans at the same moment at least one is refused.
# Neither plan waits. If a listing is old, or the other run is below another root, both plans pass. Then each
# writer ends before `target.keep_free` is reached (`target.room_watch`), and can be resumed.
#
# While a run of a version before 1.0 lives, nothing is planned beside it (`share_rule`).

NAMED = 10  # most other runs that a message lists; the rest is only counted
EVERY = 60.0  # fewest seconds between two changes of a notice


def take(
    context: Context, layout: DatasetLayout, path: Path, step: str, totals: Totals, stores: TargetStores
) -> tuple[str, list[CheckResult]]:
    """State in the notice `path` what will be written, then check that it fits beside the other runs.

    Returns a sentence on the space, and a result for each check. The caller holds the dataset's lock. Raises
    NoSpaceError, which names the other runs, and LockedError while a run of an older version lives.
    """
    owners = access.owners_told(layout.root, context.config.target.owners)

    def trusted(uid: int) -> bool:
        return uid == os.geteuid() or access.is_listed(uid, owners)

    share_rule.refuse_older(layout.promises, LockedError, trusted)
    size, files = max(0, totals.blocks), totals.new_inodes
    staging_notice.restate(layout, path, bytes=size, files=files, chunk_files=0, gid=stores.gid, pool="")
    space = facts(layout.root)
    keep = context.config.target.kept(space.total_bytes)
    counted: list[StagingNotice] = []
    passed_over: list[StagingNotice] = []
    for notice in staging_notice.living_below(layout):
        if notice.path != path and (notice.writes.bytes or notice.writes.files):
            counts = notice.writes.bytes <= space.total_bytes and trusted(notice.uid)
            (counted if counts else passed_over).append(notice)
    for what, notices in (
        ("counted, as other runs below this root still write it", counted),
        (
            "not counted, as `target.owners` does not name the account, or the file system holds less",
            passed_over,
        ),
    ):
        if notices:
            text = f"{what}: {'; '.join(_named(notices))}"
            context.emit(run_steps.Noted(layout.dataset, step, text=text))

    def count(theirs: Sequence[StillToWrite]) -> tuple[str, list[CheckResult]]:
        return require_room(layout, totals, keep, theirs), stores.check(totals, theirs)

    try:
        counts_of_all = count([notice.writes for notice in counted])
    except NoSpaceError as error:
        if not counted:
            raise
        count(())  # raises if the other runs are not the reason
        named = "\n  ".join(["", *_named(counted)])
        raise NoSpaceError(
            error.what,
            where=error.where,
            why=f"{error.why}. Other runs below this root will still write:{named}",
            hint="wait for them, have their owners end them (`penstock cancel`), make room, or stage less; "
            "nothing was copied",
        ) from None
    staging_notice.restate(layout, path, pool=stores.pool, chunk_files=stores.chunk_files)
    return counts_of_all


def lowered(before: StillToWrite, size: int, files: int) -> StillToWrite:
    """Return the statement `before`, lowered to this size and number of files. No number ever rises."""
    left = min(files, before.files)
    # The remaining files' part of all chunk files, at least one for each file.
    chunks = max(left, -(-before.chunk_files * left // before.files)) if left else 0
    return before._replace(
        bytes=min(size, before.bytes), files=left, chunk_files=min(before.chunk_files, chunks)
    )


class LoweredNotice:
    """The notice of a run or repair that writes `files` files and folders with `size` bytes in all."""

    def __init__(self, layout: DatasetLayout, path: Path, files: int, size: int) -> None:
        self._layout, self._path = layout, path
        self._files, self._bytes = files, size
        self._at = time.monotonic()

    def __call__(self, files: int, size: int) -> None:
        if time.monotonic() - self._at >= EVERY:
            self.lower(files, size)

    def lower(self, files: int, size: int) -> None:
        """Lower the statement to what is left after `files` files and `size` bytes.

        The result may be too high: each file counts as one block larger, and linked or taken-over files count
        as copied. Raises neither OSError nor PenstockError.
        """
        self._at = time.monotonic()
        left = max(0, self._files - files)
        left_bytes = max(0, self._bytes - size) + left * FILE_SYSTEM_BLOCK
        if notice := staging_notice.find(self._layout, self._path):
            writes = lowered(notice.writes, left_bytes, left)
            staging_notice.restate(self._layout, self._path, **writes._asdict())


def _named(others: Sequence[StagingNotice]) -> list[str]:
    lines = [
        f"dataset {notice.dataset} ({access.in_words([str(notice.uid)])}): "
        f"{human.size(notice.writes.bytes)} ({notice.writes.bytes:,} bytes) and "
        f"{human.counted(notice.writes.files, 'file')}, step {notice.notice.step} on "
        f"{brief(notice.notice.host)}, last sign of life at {human.local(notice.touched)}"
        for notice in others[:NAMED]
    ]
    return [*lines, f"{len(others) - NAMED} more"] if len(others) > NAMED else lines
