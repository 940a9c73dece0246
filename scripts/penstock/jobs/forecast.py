"""Forecasts for a copy: the totals of a plan or repair, and whether the target has room for them. Also the
known ceilings (highest rates), and the time that follows from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import element_documents, human
from penstock.core.catalogue_rows import OtherSteps
from penstock.core.errors import MAKE_ROOM, NewerFormatError, NoSpaceError, PenstockError
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
from penstock.core.run_documents import REHEARSAL, Decision, Load, decide
from penstock.core.run_steps import BY_NAME
from penstock.dataset import documents, receipts, release_records
from penstock.dataset.context import operations
from penstock.fs.capabilities import facts
from penstock.host import machine_settings
from penstock.jobs.bandwidth import cap_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.config.serialization import RunConfig
    from penstock.config.settings import Config
    from penstock.core.dataset_documents import StillToWrite
    from penstock.core.layout import DatasetLayout
    from penstock.core.run_documents import Rehearsal, ShardInfo
    from penstock.dataset.context import Context
    from penstock.fs.placement import SizeClasses


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
