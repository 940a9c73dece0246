"""`elements.parquet` beside a report: a row for each element of the run, as in `core.element_documents`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.core import element_documents
from penstock.core.element_documents import COLUMNS, TIME, ElementRow
from penstock.tables.tables import TableWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_TYPES: Mapping[object, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    TIME: pa.timestamp("ms", tz="UTC"),
}


class _Form(NamedTuple):
    """A form like `tables.Form`, for rows that do not describe files."""

    kind: str
    schema: pa.Schema
    options: dict[str, object]


def _schema() -> pa.Schema:
    return pa.schema(
        [
            pa.field(
                column.name,
                _TYPES[column.kind],
                metadata={"means": column.means, **({"unit": column.unit} if column.unit else {})},
            )
            for column in COLUMNS
        ]
    )


def write(path: Path, rows: Sequence[ElementRow]) -> None:
    """Write the file, durable on return and readable for everybody. Raises NoSpaceError, FailedError."""
    form = _Form(f"elements {element_documents.FORMAT}", _schema(), {})
    columns = []
    for column in COLUMNS:
        values = [getattr(row, column.name) for row in rows]
        if column.kind == TIME:
            values = [None if value is None else round(value * 1000) for value in values]
        columns.append(pa.array(values, _TYPES[column.kind]))
    with TableWriter(path, form, mode=0o644) as writer:
        writer.write(columns)
        writer.close()
