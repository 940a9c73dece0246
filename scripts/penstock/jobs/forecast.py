"""Estimates of a plan: the space, inodes and time that the copy will take, compared with what the target
has."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import human
from penstock.core.documents import element_receipt
from penstock.core.errors import MAKE_ROOM, NewerFormatError, NoSpaceError
from penstock.core.job_time import Estimate
from penstock.core.time_estimate import MeasuredCopy, Rates, rates, seconds
from penstock.dataset import documents, history
from penstock.fs.capabilities import facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.core.documents.promise import Promise
    from penstock.core.layout import DatasetLayout
    from penstock.core.run_documents import ShardInfo
    from penstock.fs.stores.placement import SizeClasses

FILE_SYSTEM_BLOCK = 4096
"""A file takes whole blocks of so many bytes, as common file systems do."""
LOOKED_AT = 10
"""How many lines of the history are searched for a run that shows at which rate files were copied; the newest
counts."""


class Lying(NamedTuple):
    """Files that lie on the target already."""

    files: int = 0
    bytes: int = 0


NOTHING = Lying()


@dataclass
class Totals:
    """Counts of the plan's first pass over the listing."""

    files: int = 0
    bytes: int = 0
    rows: int = 0
    cost: int = 0
    giants: int = 0
    unchanged: int = 0
    unchanged_bytes: int = 0
    renamed: int = 0
    """Those of the unchanged files that the release holds under another name."""
    renamed_bytes: int = 0
    taken: int = 0
    """Files that another run's staging holds; a giant counts where any part of it is held."""
    taken_bytes: int = 0
    folders: int = 0
    own_files: int = 0
    """Unchanged files that get an inode of their own on the target."""
    own_bytes: int = 0
    """Of those that are copied there: their blocks are stored once more."""
    blocks: int = 0
    """Bytes that the files to be copied take on the target."""
    to_place: SizeClasses | None = None
    """The files to be copied, by size; None where nobody asks how they come to lie on the target."""

    def add(
        self,
        to_copy: Sequence[int],
        linked: Lying = NOTHING,
        taken: Lying = NOTHING,
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

    def copy_here(self, sizes: Sequence[int]) -> None:
        """Of the files that `add` counted as linked, these are copied on the target."""
        self.own_files += len(sizes)
        self.own_bytes += sum(sizes)
        self.blocks += _blocks(sizes)
        if self.to_place is not None:
            self.to_place.add(sizes)

    @property
    def new_inodes(self) -> int:
        """Files and folders that are made on the target."""
        return self.to_copy[0] + self.own_files + self.folders

    def add_giant(self, lying: int, *, sparse: bool = False) -> None:
        """Count a giant that `add` counted before, of which another run's staging holds so many bytes. Of a
        `sparse` one nobody knows how many blocks these are: it counts as if it had none yet."""
        if lying:
            self.taken += 1
            self.taken_bytes += lying
            self.blocks -= 0 if sparse else lying

    @property
    def to_copy(self) -> tuple[int, int]:
        return self.files - self.unchanged - self.taken, self.bytes - self.unchanged_bytes - self.taken_bytes


def _blocks(sizes: Sequence[int]) -> int:
    return FILE_SYSTEM_BLOCK * sum([-(-size // FILE_SYSTEM_BLOCK) for size in sizes])


def room(layout: DatasetLayout, totals: Totals, keep: int, promised: Sequence[Promise] = ()) -> str:
    """Compares the space and inodes that the copy needs with those that are free, when `keep` bytes must stay
    free, and so much as other runs have promised; returns one sentence about it. Raises NoSpaceError when
    they do not suffice."""
    space = facts(layout.root)
    files = totals.new_inodes
    their_bytes, their_files = sum(one.bytes for one in promised), sum(one.files for one in promised)
    if totals.blocks + keep + their_bytes > space.free_bytes:
        theirs = (
            f", {human.size(their_bytes)} ({their_bytes:,} bytes) of it promised to other runs"
            if their_bytes
            else ""
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
        theirs = f", {their_files:,} of them promised to other runs" if their_files else ""
        raise NoSpaceError(
            "the target has too few inodes for this run",
            where=str(layout.root),
            why=f"it needs {files:,} for files and folders; {space.free_inodes:,} are free on "
            f"{space.kind}{theirs}",
            hint=f"{MAKE_ROOM}, or stage less; nothing was copied",
        )
    text = f"takes {human.size(totals.blocks)} of {human.size(space.free_bytes)} free on {space.kind}"
    return f"{text}; other runs will still write {human.size(their_bytes)}" if their_bytes else text


def copy_time(
    layout: DatasetLayout,
    totals: Totals,
    slots: int,
    cap: int | None = None,
    *,
    limit: int | None = None,
    tried: Mapping[str, float] = MappingProxyType({}),
) -> str:
    """How long the copy will take, for people: by the rate of the newest run that was measured, else by what
    the probe `tried` or an assumed one, with `slots` elements at once; no less than all bytes take where each
    element reads at most `limit` bytes a second, and all together `cap`."""
    basis = rates(_history(layout), tried)
    files, size = totals.to_copy
    links = totals.unchanged - totals.own_files
    takes = seconds(files + totals.own_files, size + totals.own_bytes, slots, basis, links)
    bounded = ""
    if limit and size / limit / max(1, slots) > takes:
        takes, bounded = size / limit / max(1, slots), f", at `engine.limit`: {human.rate(limit)} each"
    if cap and totals.to_copy[1] / cap > takes:
        takes, bounded = totals.to_copy[1] / cap, f", at the bandwidth cap of {human.rate(cap)}"
    took = human.duration(max(1.0, takes))
    at_once = "1 element" if slots == 1 else f"{slots} elements at once"
    each = f"{human.rate(basis.bytes_per_second)} or {basis.files_per_second:,.0f} files/s each"
    if links:
        each += f", {basis.links_per_second:,.0f} links/s"
    known = f"measured with release {basis.measured}" if basis.measured else "assumed: nothing measured yet"
    if not basis.measured and basis.tried:
        known = "files/s as the target made them just now, bytes/s assumed: nothing measured yet"
    return f"copy takes about {took} with {at_once}, {each} ({known}){bounded}"


def measured(layout: DatasetLayout) -> Rates:
    """What one element did a second in the newest run that was measured, else what is assumed."""
    return rates(_history(layout))


def least_rate(limit: int | None, cap: int | None, at_once: int) -> float | None:
    """Bytes a second that an element may read: its own `limit`, or its share of the `cap` where that is
    lower, with so many elements at once. None: any. Those of other runs may take shares, too."""
    rates = [float(limit)] if limit else []
    return min([*rates, *([cap / max(1, at_once)] if cap else [])], default=None)


def element_time(
    layout: DatasetLayout, shards: Mapping[int, ShardInfo], limit: float | None = None, *, copies: bool
) -> Callable[[int], Estimate]:
    """How long the element of each of these shards takes alone: by the rate of the newest run that was
    measured, else an assumed one, and at no more than `limit` bytes a second. `copies`: it copies. One that
    only reads back was never measured, and is estimated as if it copied."""
    basis = rates(_history(layout))

    def expected(index: int) -> Estimate:
        shard = shards[index]
        takes = max(seconds(shard.rows, shard.bytes, 1, basis), shard.bytes / limit if limit else 0.0)
        return Estimate(takes, measured=copies and bool(basis.measured))

    return expected


def _history(layout: DatasetLayout) -> Iterable[MeasuredCopy]:
    """What the elements of the newest published runs did, oldest first, from their receipts. Nothing where
    the history cannot be read."""
    try:
        newest = list(islice(history.lines(layout), LOOKED_AT))
    except OSError:
        return
    for line in reversed(newest):
        if not line.run:  # of a repair
            continue
        try:
            folder = layout.run(line.run).receipt("copy", 0).parent
            paths = [path for path in folder.iterdir() if path.suffix == ".json"]
            receipts = [documents.load(element_receipt.ELEMENT_RECEIPT, path) for path in paths]
        except (OSError, ValueError, NewerFormatError):  # removed, half a receipt
            continue
        yield MeasuredCopy(
            line.release,
            files=sum(receipt.done_files - receipt.linked for receipt in receipts),
            bytes=sum(receipt.done_bytes - receipt.linked_bytes for receipt in receipts),
            element_seconds=sum(receipt.seconds - receipt.link_seconds for receipt in receipts),
            links=sum(receipt.linked for receipt in receipts if receipt.link_seconds),
            link_seconds=sum(receipt.link_seconds for receipt in receipts),
        )
