"""Records as columns: publish handles all files of a release in one process, so the work for each must be
small. A record is what one copied file became: path, digest, grades, times (`core.model.Record`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from penstock.core.model import Record
from penstock.core.row_codec import BY_NAME, RECORDS, by_field, rows
from penstock.tables.tables import Form, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

_FORM = Form(RECORDS, Record._fields)


class Files:
    def __init__(self, batch: pa.RecordBatch) -> None:
        """`batch`: rows of records or of a manifest, perhaps only some columns: request no others."""
        self._batch = batch
        self._values: dict[str, list[Any]] = {}

    @classmethod
    def of(cls, records: Sequence[Record]) -> Self:
        """Make columns of records, in their order."""
        return cls(pa.record_batch(_FORM.arrays(by_field(Record, records)), schema=_FORM.schema))

    def __len__(self) -> int:
        count: int = self._batch.num_rows
        return count

    def __getitem__(self, name: str) -> list[Any]:
        """Return a field of all records, in order; do not change it."""
        if name not in self._values:
            self._values[name] = plain(BY_NAME[name], self._batch[name])
        return self._values[name]

    def stored(self, name: str) -> pa.Array:
        """Return a field as the file's Arrow array."""
        return self._batch[name]

    def record(self, index: int) -> Record:
        return Record(*(self[name][index] for name in Record._fields))

    def records(self) -> list[Record]:
        """Return all records, in order. Each becomes an object: use for few."""
        return rows(Record, self)
