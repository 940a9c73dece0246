"""A stream of batches of rows that ascend in the bytes of their path, taken in pieces.

Every merge of such streams on columns goes by it: a listing with the current release's manifest
(`run.planning.unchanged_rows`), with the files that have another name there
(`run.planning.renamed_rows`), with the records of a run (`run.release.reconciliation`), and two manifests
(`look.sorted_rows`). A piece is a view of its batch. The cursor reads its stream and touches nothing else.
Nothing here loads pyarrow.compute, which takes 70 ms.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import methodcaller
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class RowCursor:
    """How far a stream has been taken."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Reads the first batch. The order of the rows is not checked."""
        self._batches = iter(batches)
        self.rows: pa.RecordBatch | None = None
        """What is left of the batch whose turn it is, never without rows; None at the end."""
        self.last = b""
        """The last path of `rows`."""
        self._read()

    def _read(self) -> None:
        self.rows = next((batch for batch in self._batches if batch.num_rows), None)
        if self.rows is not None:
            self.last = self.rows["path"][-1].as_py()

    def count(self, path: bytes) -> int:
        """How many of `rows` have this path or a lower one."""
        if self.rows is None:
            return 0
        if self.last <= path:
            return int(self.rows.num_rows)
        return bisect_right(self.rows["path"], path, key=methodcaller("as_py"))

    def take(self, most: int) -> pa.RecordBatch:
        """The next rows, so many or what `rows` has. When all of `rows` is taken the next batch is read."""
        assert self.rows is not None
        taken, self.rows = self.rows.slice(0, most), self.rows.slice(most)
        if not self.rows.num_rows:
            self._read()
        return taken

    def take_to(self, path: bytes) -> pa.RecordBatch | None:
        """The next rows up to this path, of as many batches as they lie in; None where there are none."""
        pieces = []
        while count := self.count(path):
            pieces.append(self.take(count))
        return pa.concat_batches(pieces) if len(pieces) > 1 else pieces[0] if pieces else None

    def rest(self) -> Iterator[pa.RecordBatch]:
        """All that is left, batch by batch."""
        while self.rows is not None:
            yield self.take(self.rows.num_rows)
