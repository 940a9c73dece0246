"""Records of whole files as columns: publish handles every file of a release, alone, so little may be
done to each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from penstock.core.model import Record
from penstock.formats.tables import strings, texts, tuples

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBERS = frozenset({"size", "modified_ns", "source", "mtime_ns", "ctime_ns"})
_RAW = frozenset({"parts"})
RECORD = [
    pa.field(name, pa.int64() if name in _NUMBERS else pa.binary(), nullable=False) for name in Record._fields
]
_SCHEMA = pa.schema(RECORD)


def column(name: str, values: Sequence[Any]) -> pa.Array:
    """A field of many records as it is stored."""
    if name in _NUMBERS:
        return pa.array(values, pa.int64())
    return pa.array(values, pa.binary()) if name in _RAW else texts(values)


def values(name: str, stored: pa.Array) -> list[Any]:
    """The inverse of `column`."""
    found: list[Any] = stored.to_pylist() if name in _NUMBERS or name in _RAW else strings(stored)
    return found


class Files:
    """Some records, field by field."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        """Of a batch with the columns of `RECORD`, and perhaps others."""
        self._batch = batch
        self._values: dict[str, list[Any]] = {}

    @classmethod
    def of(cls, records: Sequence[Record]) -> Self:
        columns = zip(*records, strict=True) if records else [()] * len(Record._fields)
        arrays = [column(name, values) for name, values in zip(Record._fields, columns, strict=True)]
        return cls(pa.record_batch(arrays, schema=_SCHEMA))

    def __len__(self) -> int:
        count: int = self._batch.num_rows
        return count

    def __getitem__(self, name: str) -> list[Any]:
        """A field of all records, in their order; not to be changed."""
        if name not in self._values:
            self._values[name] = values(name, self._batch[name])
        return self._values[name]

    def stored(self, name: str) -> pa.Array:
        """The same as it is stored."""
        return self._batch[name]

    def record(self, index: int) -> Record:
        return Record(*(self[name][index] for name in Record._fields))

    def records(self) -> list[Record]:
        return tuples(Record, zip(*(self[name] for name in Record._fields), strict=True))
