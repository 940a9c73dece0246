"""Resumes an interrupted listing if the next listing starts soon enough.

A long listing is saved in segments. A segment has all objects between two keys, and is valid once it is
durable. The next listing of the source reads the segments, and lists the keys between and after them. So it
yields the objects in the same order, without repetition, and an unchanged source yields the same digest.
Changes at the source between the two listings are detected as usual: each object is read in its listed
version.

| a segment is                                   | then                                         |
|------------------------------------------------|----------------------------------------------|
| of the same source, and younger than the limit | read, and its keys are not listed again      |
| older (`ListConfig.resume_within`)             | dropped, and its keys are listed again       |
| damaged, or overlaps another segment           | dropped, and its keys are listed again       |

The list step holds the dataset's lock, and removes all segments once the listing is complete.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import human, run_steps
from penstock.core.errors import FailedError, PenstockError
from penstock.core.model import Listed
from penstock.core.row_codec import filled
from penstock.core.run_documents import LISTING_SEGMENT, ListingSegment
from penstock.dataset import documents
from penstock.fs import small_files
from penstock.listing.outside_lists import KeyList
from penstock.sources.listing_order import DisorderError, order
from penstock.tables.run_tables import ListingWriter, read_listing_columns
from penstock.tables.tables import count_of, values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.dataset.context import Context
    from penstock.sources.port import Continued

ROWS = 500_000  # most objects in a segment
SECONDS = 10.0  # seconds after which a segment is closed, so a kill loses at most this much of a listing
WORTH = 50_000  # number of objects for which a file is made before that time
LARGEST = (1 << 63) - 1  # the largest size in bytes that a row can hold


class _Held(NamedTuple):
    segment: ListingSegment
    number: int


class Resumption:
    """The segments of one source's listing, in their own folder."""

    def __init__(self, context: Context, dataset: str, folder: Path, lister: Continued) -> None:
        """`folder`: the folder of this source's listing alone, as returned by `place`."""
        self._context, self._dataset, self._folder, self._lister = context, dataset, folder, lister
        self._within = context.config.list.resume_within
        self._next = 0

    def batches(self) -> Iterator[Sequence[Listed]]:
        """Yield all objects, as the lister's own `list` does."""
        held = self._held()
        if held:
            rows = sum(saved.segment.rows for saved in held)
            text = (
                f"the listing goes on: {human.counted(rows, 'object')} were listed before it was broken off"
            )
            self._context.emit(run_steps.Noted(self._dataset, "list", text))
        position = b""
        for segment, number in held:
            if position < segment.begin:
                yield from self._written(position, segment.begin)
            yield from self._rows(number, segment)
            position = segment.end
        yield from self._written(position, None)

    def _held(self) -> list[_Held]:
        """Return the usable segments in the order of their keys, and remove the others."""
        segments: list[_Held] = []
        names = sorted(os.listdir(self._folder)) if self._folder.exists() else []
        for name in names:
            path = self._folder / name
            number = int(name[:8]) if name[:8].isdecimal() else -1
            self._next = max(self._next, number + 1)
            if not name.endswith(".json"):
                continue
            try:
                segment = documents.load(LISTING_SEGMENT, path)
            except ValueError:
                continue
            age = time.time() - segment.listed
            if 0 <= age <= self._within and count_of(self._files(number)[0]) == segment.rows:
                segments.append(_Held(segment, number))
        segments.sort(key=lambda candidate: candidate.segment.begin)
        kept: list[_Held] = []
        for candidate in segments:
            if not kept or kept[-1].segment.end <= candidate.segment.begin:
                kept.append(candidate)
        stay = {path.name for candidate in kept for path in self._files(candidate.number)}
        for name in names:
            if name not in stay:
                (self._folder / name).unlink()
        return kept

    def _rows(self, number: int, segment: ListingSegment) -> Iterator[Sequence[Listed]]:
        path, _ = self._files(number)
        position = segment.begin
        damaged = FailedError(
            "a segment of a listing is damaged",
            where=str(path),
            hint=f"remove {self._folder}: the source is listed anew then",
        )
        for batch in read_listing_columns(path):
            self._context.stop.check()
            held = values(batch)
            listed = filled(
                Listed, {name: held[name] for name in Listed._fields if name in held}, batch.num_rows
            )
            if not position < order(listed[0]) <= order(listed[-1]) <= segment.end:
                raise damaged
            position = order(listed[-1])
            yield listed
        if position != segment.end:
            raise damaged

    def _written(self, after: bytes, upto: bytes | None) -> Iterator[Sequence[Listed]]:
        """List the source's keys between `after` and `upto`, and save segments meanwhile."""
        writing = _Writing(self, after)
        try:
            for batch in self._lister.list_between(after, upto):
                writing.add(batch)
                yield batch
        except DisorderError:
            # If a store lists out of order, its listing between two keys may lack keys between them.
            writing.drop()
            for name in os.listdir(self._folder) if self._folder.exists() else ():
                (self._folder / name).unlink()
            raise
        except BaseException:
            writing.broken_off()
            raise
        writing.ended(upto)

    def sound(self, batch: Sequence[Listed]) -> bool:
        """Return whether the listing may be resumed: no key was rejected, and each row can be stored."""
        if self._within <= 0 or (isinstance(self._lister, KeyList) and self._lister.refused):
            return False
        return max(listed.size for listed in batch) <= LARGEST

    def new(self) -> tuple[Path, Path]:
        """Return the paths of a new segment: the file of its rows, and the document that makes it valid."""
        small_files.make_dirs(self._folder)
        self._next += 1
        return self._files(self._next - 1)

    def _files(self, number: int) -> tuple[Path, Path]:
        return self._folder / f"{number:08d}.parquet", self._folder / f"{number:08d}.json"


class _Writing:
    """Writes the segments of one range of keys while it is listed."""

    def __init__(self, resumption: Resumption, after: bytes) -> None:
        self._resumption, self._after = resumption, after
        # rows of a segment that has no file yet, so a listing of some seconds makes no files
        self._waiting: list[Sequence[Listed]] = []
        self._writer: ListingWriter | None = None
        self._document = Path()
        self._rows, self._began, self._off = 0, 0.0, False

    def add(self, batch: Sequence[Listed]) -> None:
        if self._off or not batch:
            return
        if not self._resumption.sound(batch):
            self._off = True
            self.drop()
            return
        if not self._rows:
            self._began = time.time()
        self._rows += len(batch)
        self._waiting.append(batch)
        late = time.time() - self._began >= SECONDS
        if self._writer is not None or self._rows >= WORTH or late:
            self._write()
        if self._rows >= ROWS or late:
            self._close()

    def broken_off(self) -> None:
        """Keep the segment in progress. It never raises PenstockError, since the listing's own error is
        reported."""
        try:
            if self._writer is not None:
                self._close()
        except PenstockError:
            self.drop()

    def ended(self, upto: bytes | None) -> None:
        """End the range. A segment that precedes other segments is kept for a later listing."""
        if upto is not None and self._rows and not self._off:
            self._write()
            self._close()
        self.drop()

    def _write(self) -> None:
        if self._writer is None:
            path, self._document = self._resumption.new()
            self._writer = ListingWriter(path)
        for batch in self._waiting:
            self._writer.add(batch)
            self._last = order(batch[-1])
        self._waiting = []

    def _close(self) -> None:
        assert self._writer is not None
        self._writer.close()
        segment = ListingSegment(self._after.hex(), self._last.hex(), self._began, self._rows)
        documents.write(LISTING_SEGMENT, self._document, segment)
        self._after, self._writer, self._rows = self._last, None, 0

    def drop(self) -> None:
        self._waiting, self._rows = [], 0
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None


def place(segments: Path, *identity: str) -> Path:
    """Return the folder of one listing below `segments`. `identity`: texts that decide which objects are
    listed."""
    text = "\0".join(identity).encode("utf-8", "surrogateescape")
    return segments / hashlib.sha256(text).hexdigest()[:16]
