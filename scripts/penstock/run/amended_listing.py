"""The listing of a release whose source changed during the copy (`changed: follow`).

It is the frozen listing with each object in the version that is in staging, and without objects that left the
source. Elements write the amendments into their journals. The frozen listing and the run's id do not change.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from penstock.core.errors import IMPOSSIBLE, FailedError
from penstock.core.human import in_quotes
from penstock.core.seal import SealedAmendment
from penstock.dataset import receipts
from penstock.engine import journal
from penstock.engine.change_following import beyond
from penstock.engine.rows_left import Amendments
from penstock.jobs import shard_claims
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from penstock.core.element_documents import ElementReceipt
    from penstock.core.layout import RunLayout
    from penstock.core.model import Entry, Pin
    from penstock.dataset.documents import Run


@dataclass(frozen=True)
class Amended:
    """The listing of a release that differs from the frozen listing."""

    path: Path
    digest: str
    files: int
    bytes: int
    changed: int  # number of files whose version differs from the frozen listing
    gone: int

    def sealed(self, began: str, until: str) -> SealedAmendment:
        """Return the amendment for the seal. The files were read between these times, UTC in ISO 8601."""
        return SealedAmendment(self.digest, self.changed, self.gone, began, until)


def check_limits(run: Run, elements: Sequence[ElementReceipt]) -> None:
    """Raise SourceChangedError if more files changed or left the source than `FollowLimit` allows."""
    allowed = run.config.dataset.follow_limit.allowed(run.info.files)
    for what, count, most in zip(("changed", "gone"), totals(elements), allowed, strict=True):
        if count > most:
            raise beyond(what, count, most)


def totals(elements: Sequence[ElementReceipt]) -> tuple[int, int]:
    return sum(receipt.amended for receipt in elements), sum(receipt.gone for receipt in elements)


def join_giants(run: Run, host: str) -> list[str]:
    """Turn giants whose object changed during the copy into files that a single element copies whole. Takes
    back the records of their parts, and returns their paths."""
    paths: set[str] = set()
    for index, outcome in shard_claims.last_ends(run.folder, "copy"):
        if rows := set(outcome.split):
            paths |= {entry.path for row, entry in _rows(run.folder, index) if row in rows}
    _join(run, host, paths)
    return sorted(paths)


def complete_joins(run: Run, host: str) -> list[str]:
    """Finish a `join_giants` that was killed between two shards; return the paths of half-joined giants. As
    only some of their parts are joined, they could never become whole."""
    left: Counter[str] = Counter()
    for shard in run.plan.shards:
        whole, void = journal.joined(run.folder.journals(shard.index), shard.digest)
        if not (whole or void):
            continue
        for row, entry in _rows(run.folder, shard.index):
            if row in whole or row in void:
                # Count the bytes of the giant's parts that are not joined: 0, unless `join_giants` was
                # killed.
                left.setdefault(entry.path, entry.size)
                left[entry.path] -= entry.length
    paths = {path for path, size in left.items() if size > 0}
    _join(run, host, paths)
    return sorted(paths)


def _join(run: Run, host: str, paths: Collection[str]) -> None:
    """Turn these giants into files that are copied whole. A giant's first row then represents all of it."""
    joined: set[str] = set()
    for shard in run.plan.shards if paths else ():
        whole: list[int] = []
        void: list[int] = []
        for row, entry in _rows(run.folder, shard.index):
            if entry.part >= 0 and entry.path in paths:
                (void if entry.path in joined else whole).append(row)
                joined.add(entry.path)
        if whole or void:
            # Drop the receipt before the journal changes: a receipt must never cover rows that no longer
            # count.
            receipts.drop(run.folder.receipt("copy", shard.index))
            journals = run.folder.journals(shard.index)
            journal.join(journals, shard.digest, whole, void, run=run.id, host=host)


def remove_empty_folders(run: Run, elements: Sequence[ElementReceipt]) -> None:
    """Remove staging folders of which all objects left the source. No element may run."""
    paths = [
        path
        for shard, receipt in zip(run.plan.shards, elements, strict=True)
        if receipt.gone
        for path, pin in _amendments(run.folder, shard.index, shard.digest)
        if pin is None
    ]
    if paths:
        tree_removal.remove_empty(run.data, paths)


def write(run: Run) -> Amended | None:
    """Write the amended listing of a verified run; return None if nothing was amended. Raises FailedError if
    an amended object is not in the frozen listing."""
    from penstock.tables.run_tables import ListingWriter, read_listing

    elements = receipts.of_elements(run, "verify")
    if not any(totals(elements)):
        return None
    overlay = _Overlay(
        amendment
        for shard, receipt in zip(run.plan.shards, elements, strict=True)
        if receipt.amended or receipt.gone
        for amendment in _amendments(run.folder, shard.index, shard.digest)
    )
    with ListingWriter(run.folder.amended) as writer:
        for batch in read_listing(run.folder.listing):
            for source, group in groupby(overlay.laid(batch), attrgetter("source")):
                some = list(group)
                writer.add(
                    [entry.listed() for entry in some], paths=[entry.path for entry in some], source=source
                )
        overlay.end()
        digest, files, size = writer.close()
    return Amended(run.folder.amended, digest, files, size, overlay.changed, overlay.gone)


class _Overlay:
    def __init__(self, amendments: Iterator[tuple[str, Pin | None]]) -> None:
        self._amendments = amendments
        self._next = next(amendments, None)
        self.changed = self.gone = 0

    def laid(self, batch: Sequence[Entry]) -> Sequence[Entry]:
        if self._next is None:
            return batch
        out: list[Entry] = []
        for entry in batch:
            if self._next is None or self._next[0] != entry.path:
                out.append(entry)
                continue
            pin = self._next[1]
            self._next = next(self._amendments, None)
            if pin is None:
                self.gone += 1
            else:
                self.changed += 1
                out.append(pin.of(entry))
        return out

    def end(self) -> None:
        if self._next is not None:
            raise FailedError(
                "an amended object was not listed", where=in_quotes(self._next[0]), hint=IMPOSSIBLE
            )


def _amendments(run: RunLayout, index: int, digest: str) -> Iterator[tuple[str, Pin | None]]:
    """Yield, in order, the paths of a shard whose object has another version (its pin) or is gone (None)."""
    journals = run.journals(index)
    changes = Amendments.read(journals, digest, journal.replay(journals, digest))
    for row, entry in _rows(run, index) if changes.pins else ():
        if row in changes.pins:
            yield entry.path, changes.pins[row]


def _rows(run: RunLayout, index: int) -> Iterator[tuple[int, Entry]]:
    from penstock.tables.run_tables import read_shard

    return enumerate(entry for batch in read_shard(run.shard(index)) for entry in batch)
