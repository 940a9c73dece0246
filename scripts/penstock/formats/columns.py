"""Records as columns: publish handles every file of a release, alone, so little may be done to each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from penstock.core.model import Record
from penstock.formats.tables import plain, texts, tuples

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBERS = frozenset({"size", "modified_ns", "source", "mtime_ns", "ctime_ns"})
_RAW = frozenset({"parts"})
RECORD = [
    pa.field(name, pa.int64() if name in _NUMBERS else pa.binary(), nullable=False) for name in Record._fields
]
_SCHEMA = pa.schema(RECORD)


def column(name: str, given: Sequence[Any]) -> pa.Array:
    """A field of many records as it is stored."""
    if name in _NUMBERS:
        return pa.array(given, pa.int64())
    return pa.array(given, pa.binary()) if name in _RAW else texts(given)


class Files:
    """Some records of whole files, field by field."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        """Of rows of a file of records or of a manifest, which may have been read in part: what is not
        there is not to be asked for."""
        self._batch = batch
        self._values: dict[str, list[Any]] = {}

    @classmethod
    def of(cls, records: Sequence[Record]) -> Self:
        fields = zip(*records, strict=True) if records else [()] * len(Record._fields)
        arrays = [column(name, field) for name, field in zip(Record._fields, fields, strict=True)]
        return cls(pa.record_batch(arrays, schema=_SCHEMA))

    def __len__(self) -> int:
        count: int = self._batch.num_rows
        return count

    def __getitem__(self, name: str) -> list[Any]:
        """A field of all records, in their order; not to be changed."""
        if name not in self._values:
            stored = self._batch[name]
            self._values[name] = stored.to_pylist() if name in _RAW else plain(stored)
        return self._values[name]

    def stored(self, name: str) -> pa.Array:
        """The same as it is stored there."""
        return self._batch[name]

    def record(self, index: int) -> Record:
        return Record(*(self[name][index] for name in Record._fields))

    def records(self) -> list[Record]:
        return tuples(Record, zip(*(self[name] for name in Record._fields), strict=True))
