"""What a copy will take: `Totals` of a plan or repair, whether the target has room for them, and the time.

Plan and repair count and ask for room before they copy; every step with elements asks how long each of these
will take, for the time limit of its job (`jobs.known_ceilings` has the time of the copy as a whole). It
reads the target's free space, the dataset's history, and the receipts of its newest runs. Sizes are bytes,
times seconds, rates bytes a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import human
from penstock.core.documents import element_receipt
from penstock.core.documents.explanation import OtherSteps
from penstock.core.documents.rehearsal import REHEARSAL
from penstock.core.errors import MAKE_ROOM, NewerFormatError, NoSpaceError, PenstockError
from penstock.core.job_time import Estimate
from penstock.core.time_estimate import MeasuredCopy, Rates, rates, seconds
from penstock.dataset import documents, history, receipts
from penstock.fs.capabilities import facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.core.balance import Load
    from penstock.core.documents.rehearsal import Rehearsal
    from penstock.core.documents.under_way import StillToWrite
    from penstock.core.layout import DatasetLayout
    from penstock.core.run_documents import ShardInfo
    from penstock.fs.stores.placement import SizeClasses

FILE_SYSTEM_BLOCK = 4096
"""A file takes whole blocks of so many bytes, as common file systems do."""
LOOKED_AT = 10
"""How many lines of the history are searched for a run that shows at which rate files were copied; the newest
counts."""


AFTER = ("permissions", "verify", "publish")
"""The steps after the copy; list and plan, before it, leave no receipts."""


class OnTarget(NamedTuple):
    """Files that lie on the target already, in a release or in another run's staging."""

    files: int = 0
    bytes: int = 0


NOTHING = OnTarget()


@dataclass
class Totals:
    """Counts of the files of a plan or repair. `add`, `add_giant` and `copy_on_target` count; rows, cost,
    giants, folders and renamed are set by plan and repair themselves."""

    files: int = 0
    """All: to be copied, unchanged and taken."""
    bytes: int = 0
    rows: int = 0
    """Rows of shards: files, of which each giant has several."""
    cost: int = 0
    """Of all rows, by which shards are balanced (`core.balance`)."""
    giants: int = 0
    unchanged: int = 0
    """Files that a release holds: they are linked, or copied on the target."""
    unchanged_bytes: int = 0
    renamed: int = 0
    """Those of the unchanged files that the release holds under another name."""
    renamed_bytes: int = 0
    taken: int = 0
    """Files that another run's staging holds; a giant counts where any part of it is held."""
    taken_bytes: int = 0
    folders: int = 0
    """Those that are made."""
    own_files: int = 0
    """Unchanged files that get an inode of their own on the target."""
    own_bytes: int = 0
    """Bytes of those of them that are copied on the target, and stored once more."""
    blocks: int = 0
    """Bytes that all new files take on the target, in whole blocks."""
    to_place: SizeClasses | None = None
    """The files that are copied, by size; None where nobody asks how they come to lie on the target."""

    def add(
        self,
        to_copy: Sequence[int],
        linked: OnTarget = NOTHING,
        taken: OnTarget = NOTHING,
        sparse: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Add files: those to be copied by their sizes, in bytes, and those that lie on the target already,
        which are linked from a release or taken over from another run's staging. `sparse`: of those to be
        copied that have holes, their size and what they take."""
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
        """Count a giant that `add` counted before, of which another run's staging has `held` bytes. Of a
        `sparse` one nobody knows how many blocks these are: it counts as if it had none yet."""
        if held:
            self.taken += 1
            self.taken_bytes += held
            self.blocks -= 0 if sparse else held

    def copy_on_target(self, sizes: Sequence[int]) -> None:
        """Of the files that `add` counted as on the target, files of these sizes are copied there, and take
        inodes and blocks of their own."""
        self.own_files += len(sizes)
        self.own_bytes += sum(sizes)
        self.blocks += _blocks(sizes)
        if self.to_place is not None:
            self.to_place.add(sizes)

    @property
    def to_copy(self) -> tuple[int, int]:
        """Files that come from the source, and their bytes."""
        return self.files - self.unchanged - self.taken, self.bytes - self.unchanged_bytes - self.taken_bytes

    @property
    def new_inodes(self) -> int:
        """Files and folders that are made on the target."""
        return self.to_copy[0] + self.own_files + self.folders


def require_room(
    layout: DatasetLayout, totals: Totals, keep: int, others: Sequence[StillToWrite] = ()
) -> str:
    """One sentence of the space that the copy takes and that is free. Raises NoSpaceError where the target
    has too few bytes or inodes: `keep` bytes must stay free, and what `others` will still write."""
    space = facts(layout.root)
    files = totals.new_inodes
    their_bytes, their_files = sum(one.bytes for one in others), sum(one.files for one in others)
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
    """What one element copies a second: as the newest run or rehearsal did that was measured; else files and
    links as plan's probe `tried` them, or all as is assumed (`time_estimate.rates`)."""
    return rates(_history(layout), tried)


def other_steps(layout: DatasetLayout, files: int) -> OtherSteps | None:
    """Of a release with so many files: each step takes time in proportion to them. None where no published
    run left its receipts, or they cannot be read."""
    try:
        line = next((line for line in history.lines(layout) if line.run), None)
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
    """A function from a shard's index to the time that its element takes alone: by the rates of the newest
    run that was measured, else assumed ones, and at no more than `limit` (`element_rate`). `copies`: it
    copies. One that only reads back was never measured, and is estimated as if it copied. A rehearsal does
    not count: it had source and target for itself."""
    basis = rates(_history(layout, rehearsed=False))

    def expected(index: int) -> Estimate:
        shard = shards[index]
        takes = max(seconds(shard.rows, shard.bytes, 1, basis), shard.bytes / limit if limit else 0.0)
        return Estimate(takes, measured=copies and bool(basis.measured))

    return expected


def cost_rate(layout: DatasetLayout, load: Load, limit: float | None = None) -> float | None:
    """The cost (`core.balance`) of these rows that a worker does a second, as `element_time` expects it of
    all of them. None where no run was measured, and no `limit` is below what is assumed."""
    basis = rates(_history(layout, rehearsed=False))
    alone, least = seconds(load.rows, load.bytes, 1, basis), load.bytes / limit if limit else 0.0
    return load.cost / max(alone, least) if load.rows and (basis.measured or least > alone) else None


def element_rate(limit: int | None, cap: int | None, at_once: int) -> float | None:
    """The rate at which an element may read while so many of its run do: its own `limit`, or its part of the
    `cap` where that is lower. None: any. Other runs may take parts of the cap, too."""
    parts = [float(limit)] if limit else []
    return min([*parts, *([cap / max(1, at_once)] if cap else [])], default=None)


def _history(layout: DatasetLayout, *, rehearsed: bool = True) -> Iterable[MeasuredCopy]:
    """What the elements of the newest published runs did, oldest first, from their receipts; with `rehearsed`
    the last rehearsal, too, in its place by time. Nothing where the history cannot be read."""
    rehearsal = _rehearsal(layout) if rehearsed else None
    try:
        newest = list(islice(history.lines(layout), LOOKED_AT))
    except OSError:
        return
    for line in reversed(newest):
        if not line.run:  # a repair's line: it has no run, and no receipts of a copy
            continue
        if rehearsal is not None and rehearsal.at < line.at:
            yield _as_copy(rehearsal)
            rehearsal = None
        try:
            folder = layout.run(line.run).receipt("copy", 0).parent
            paths = [path for path in folder.iterdir() if path.suffix == ".json"]
            elements = [documents.load(element_receipt.ELEMENT_RECEIPT, path) for path in paths]
        except (OSError, ValueError, NewerFormatError):  # removed, half a receipt
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
    """None where there was none, or its file cannot be read."""
    try:
        return documents.load(REHEARSAL, layout.rehearsal_result)
    except (OSError, ValueError, PenstockError):
        return None


def _as_copy(rehearsal: Rehearsal) -> MeasuredCopy:
    leg = rehearsal.leg
    return MeasuredCopy(rehearsal.day, leg.files, leg.bytes, leg.seconds, rehearsed=True)


def _blocks(sizes: Sequence[int]) -> int:
    return FILE_SYSTEM_BLOCK * sum([-(-size // FILE_SYSTEM_BLOCK) for size in sizes])
