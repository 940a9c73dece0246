"""Divides a shard's rows into batches; a worker gets and reports one batch at a time.

Small rows share a batch of up to BATCH_ROWS rows or BATCH_BYTES. Batches shrink towards the end, so that no
worker is left with a long rest. A large row, and a giant's part, goes alone.
"""

from __future__ import annotations

from itertools import count, islice
from typing import TYPE_CHECKING

from penstock.core.model import Entry
from penstock.engine.tasks import Batch

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from penstock.core.model import Expected
    from penstock.engine.transfer.multipart import Multipart

BATCH_ROWS = 256  # rows of a batch, at most
BATCH_BYTES = 8 << 20  # bytes of a batch of small rows, at most
LARGE = 4 << 20  # bytes from which a row is a batch of its own
FEWEST = 8  # rows that a batch may have, however near the end is
BATCHES_LEFT = 4  # batches that each worker should still get until the end, while they are not too small


def batches(
    shard: Iterable[Sequence[Entry | Expected]],
    done: Container[int],
    left: int,
    workers: int,
    multipart: Multipart | None = None,
) -> Iterator[Batch]:
    """Divide the rows that are not `done` into batches, in the shard's order. `left`: the number of these
    rows.

    Of a row copied in parts (`multipart`), only the first job comes from here.
    """
    numbers = multipart.numbers if multipart else count()
    row = 0
    rows: list[int] = []
    entries: list[Entry | Expected] = []
    total = 0
    room = _room(left, workers)
    for group in shard:
        for entry in group:
            row += 1
            if row - 1 in done:
                continue
            is_part = entry.part >= 0
            length = entry.length if is_part else entry.size
            large = length >= LARGE or is_part
            if rows and (large or total + length > BATCH_BYTES or len(rows) >= room):
                yield Batch(next(numbers), rows, entries, total, False)
                left -= len(rows)
                rows, entries, total, room = [], [], 0, _room(left, workers)
            if large:
                if multipart and isinstance(entry, Entry) and multipart.goes_in_parts(row - 1, entry):
                    yield multipart.open(row - 1, entry)
                else:
                    yield Batch(next(numbers), [row - 1], [entry], length, True)
                left -= 1
            else:
                rows.append(row - 1)
                entries.append(entry)
                total += length
    if rows:
        yield Batch(next(numbers), rows, entries, total, False)


class Ahead:
    """A queue of batches that prefers a folder where no other stream works.

    The kernel holds a folder's lock over each create and rename: on a network file system as long as the
    server takes. Two streams in one folder are hardly faster than a single stream.
    """

    def __init__(self, jobs: Iterator[Batch], view: int, first: Multipart | None = None) -> None:
        """`view`: batches that are searched; 1 keeps their order. `first`: jobs of rows copied in parts,
        which come first."""
        self._jobs, self.view, self._first = jobs, view, first
        self._window: list[Batch] = []
        self._ended = False

    @property
    def empty(self) -> bool:
        """Whether all batches were taken, and no row copied in parts needs more than its last job."""
        return self._ended and not self._window and not (self._first and self._first.goes_on)

    def take(self, taken: set[str]) -> Batch | None:
        """Return the first batch outside the folders `taken`, else the first; None: none now.

        `first` may offer a job again once a job is done.
        """
        if self._first:
            if self._first.full:
                return None
            if (job := self._first.next()) is not None:
                return job
        window = self._window
        window += islice(self._jobs, wanted := self.view - len(window))
        self._ended = self._ended or (wanted > 0 and len(window) < self.view)
        if not window:
            return None
        for place, job in enumerate(window):
            if taken.isdisjoint(job.folders):
                return window.pop(place)
        return window.pop(0)


def _room(left: int, workers: int) -> int:
    return max(FEWEST, min(BATCH_ROWS, left // (workers * BATCHES_LEFT)))
