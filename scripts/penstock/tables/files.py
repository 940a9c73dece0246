"""Records as columns: publish handles all files of a release in one process, so little may be done to each.
Pure. `tables.records` and `tables.manifest` make `Files` of what they read, batch by batch. A
record is what one copied file became: path, digest, grades, times (`core.model.Record`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from penstock.core.columns import BY_NAME, RECORDS
from penstock.core.model import Record
from penstock.core.row_codec import by_field, rows
from penstock.tables.tables import Form, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

_FORM = Form(RECORDS, Record._fields)


class Files:
    """Some records of whole files, field by field."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        """Of rows of a file of records or of a manifest, which may have been read in part: what is not
        there is not to be asked for."""
        self._batch = batch
        self._values: dict[str, list[Any]] = {}

    @classmethod
    def of(cls, records: Sequence[Record]) -> Self:
        """Of records that are objects, in their order."""
        return cls(pa.record_batch(_FORM.arrays(by_field(Record, records)), schema=_FORM.schema))

    def __len__(self) -> int:
        count: int = self._batch.num_rows
        return count

    def __getitem__(self, name: str) -> list[Any]:
        """A field of all records, in their order; not to be changed."""
        if name not in self._values:
            self._values[name] = plain(BY_NAME[name], self._batch[name])
        return self._values[name]

    def stored(self, name: str) -> pa.Array:
        """The same field as an Arrow array, as the file stores it."""
        return self._batch[name]

    def record(self, index: int) -> Record:
        """One record, by its place from 0."""
        return Record(*(self[name][index] for name in Record._fields))

    def records(self) -> list[Record]:
        """All records, in their order. Each becomes an object: for few of them."""
        return rows(Record, self)
