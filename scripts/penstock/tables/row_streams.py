"""Streams of rows. One class takes pieces from batches that ascend by the bytes of their path. The other
keeps rows in their order, in memory and beyond a limit in a temporary file.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_right
from operator import methodcaller
from typing import IO, TYPE_CHECKING, Self

import pyarrow as pa

from penstock.core.errors import FailedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


# Takes pieces from a stream of batches whose rows ascend by the bytes of their path. All merges on columns
# use it. A piece is a view of its batch. This module does not load pyarrow.compute, which takes 70 ms.


class RowCursor:
    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Reads the first batch. The order of the rows is not checked."""
        self._batches = iter(batches)
        # the remaining rows of the current batch, at least one row; None at the end
        self.rows: pa.RecordBatch | None = None
        self.last = b""  # the last path of `rows`
        self._read()

    def _read(self) -> None:
        self.rows = next((batch for batch in self._batches if batch.num_rows), None)
        if self.rows is not None:
            self.last = self.rows["path"][-1].as_py()

    def count(self, path: bytes) -> int:
        """Count the `rows` up to and including this path."""
        if self.rows is None:
            return 0
        if self.last <= path:
            return int(self.rows.num_rows)
        return bisect_right(self.rows["path"], path, key=methodcaller("as_py"))

    def take(self, most: int) -> pa.RecordBatch:
        """Take up to `most` of `rows`. Once all are taken, read the next batch."""
        assert self.rows is not None
        taken, self.rows = self.rows.slice(0, most), self.rows.slice(most)
        if not self.rows.num_rows:
            self._read()
        return taken

    def take_to(self, path: bytes) -> pa.RecordBatch | None:
        """Take the rows up to and including this path, from all batches; None if no row matches."""
        pieces = []
        while count := self.count(path):
            pieces.append(self.take(count))
        return pa.concat_batches(pieces) if len(pieces) > 1 else pieces[0] if pieces else None

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield all remaining rows, batch by batch."""
        while self.rows is not None:
            yield self.take(self.rows.num_rows)


# Keeps rows in their order: in memory, and beyond a limit in a temporary file in TMPDIR, never on the target.
# The file never has a name, so no file is left, however the process ends.

CHUNK = 1 << 16  # rows of each chunk except the last
IN_MEMORY = 1 << 19  # most rows that are kept in memory: some 100 MB of paths and digests


class SpilledRows:
    """Rows of one schema. Rows that were read are valid until this context manager ends."""

    def __init__(self, schema: pa.Schema, in_memory: int = IN_MEMORY) -> None:
        self._schema, self._most = schema, in_memory
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._chunks: list[pa.RecordBatch] = []
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchFileWriter | None = None
        self._reader: pa.RecordBatchFileReader | None = None
        self._last: tuple[int, pa.RecordBatch] | None = None
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def add(self, batch: pa.RecordBatch) -> None:
        """Append rows. Raises FailedError if the temporary file cannot be written."""
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self.count += batch.num_rows
        if self._rows >= CHUNK:
            rows = pa.concat_batches(self._waiting)
            whole = rows.num_rows - rows.num_rows % CHUNK
            for start in range(0, whole, CHUNK):
                self._keep(rows.slice(start, CHUNK))
            # The rest is copied, since a slice keeps its whole batch alive.
            rest = rows.slice(whole)
            self._waiting = [pa.concat_batches([rest])] if rest.num_rows else []
            self._rows = rest.num_rows

    def finish(self) -> Self:
        """End the adding of rows. Call it once."""
        if self._rows:
            self._keep(pa.concat_batches(self._waiting))
        self._waiting, self._rows = [], 0
        if self._writer is not None and self._file is not None:
            try:
                self._writer.close()
                self._file.flush()
            except OSError as error:
                raise _no_room(error) from error
            self._reader = pa.ipc.open_file(pa.memory_map(f"/proc/self/fd/{self._file.fileno()}"))
        return self

    def chunks(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield each chunk with the number of its first row. Chunks in the file are read on demand, and their
        pages may be dropped again."""
        for index in range(-(-self.count // CHUNK)):
            yield index * CHUNK, self._chunk(index)

    def row(self, number: int, column: str) -> object:
        """Return a value of one row. It is fast if successive requests are for neighbouring rows."""
        index, place = divmod(number, CHUNK)
        if self._last is None or self._last[0] != index:
            self._last = index, self._chunk(index)
        return self._last[1][column][place].as_py()

    def _chunk(self, index: int) -> pa.RecordBatch:
        return self._chunks[index] if self._reader is None else self._reader.get_batch(index)

    def _keep(self, chunk: pa.RecordBatch) -> None:
        if self._writer is None and (len(self._chunks) + 1) * CHUNK <= max(self._most, CHUNK):
            # The chunk is copied, since it may be a slice of a large batch.
            self._chunks.append(pa.concat_batches([chunk]))
            return
        try:
            if self._writer is None:
                self._file = tempfile.TemporaryFile(prefix="penstock-rows-")  # noqa: SIM115 (closed by `close`)
                self._writer = pa.ipc.new_file(self._file, self._schema)
                for earlier in self._chunks:
                    self._writer.write_batch(earlier)
                self._chunks = []
            self._writer.write_batch(chunk)
        except OSError as error:
            raise _no_room(error) from error

    def close(self) -> None:
        self._reader = self._last = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _no_room(error: OSError) -> FailedError:
    return FailedError(
        "rows cannot be kept on disk",
        where=tempfile.gettempdir(),
        why=os.strerror(error.errno) if error.errno else str(error),
        hint="set TMPDIR to a folder with more room",
    )
