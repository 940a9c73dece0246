"""Takes pieces of a stream of batches whose rows ascend by the bytes of their path: the basis of all merges
on columns. A piece is a view of its batch. Nothing here loads pyarrow.compute, which takes 70 ms."""

from __future__ import annotations

from bisect import bisect_right
from operator import methodcaller
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class RowCursor:
    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Reads the first batch. The order of the rows is not checked."""
        self._batches = iter(batches)
        # the rest of the current batch, never without rows; None at the end
        self.rows: pa.RecordBatch | None = None
        self.last = b""  # the last path of `rows`
        self._read()

    def _read(self) -> None:
        self.rows = next((batch for batch in self._batches if batch.num_rows), None)
        if self.rows is not None:
            self.last = self.rows["path"][-1].as_py()

    def count(self, path: bytes) -> int:
        """Count the `rows` up to this path, included."""
        if self.rows is None:
            return 0
        if self.last <= path:
            return int(self.rows.num_rows)
        return bisect_right(self.rows["path"], path, key=methodcaller("as_py"))

    def take(self, most: int) -> pa.RecordBatch:
        """Take up to `most` of `rows`; once all are taken, read the next batch."""
        assert self.rows is not None
        taken, self.rows = self.rows.slice(0, most), self.rows.slice(most)
        if not self.rows.num_rows:
            self._read()
        return taken

    def take_to(self, path: bytes) -> pa.RecordBatch | None:
        """Take the rows up to this path, from all batches; None: no such rows."""
        pieces = []
        while count := self.count(path):
            pieces.append(self.take(count))
        return pa.concat_batches(pieces) if len(pieces) > 1 else pieces[0] if pieces else None

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield all remaining rows, batch by batch."""
        while self.rows is not None:
            yield self.take(self.rows.num_rows)
