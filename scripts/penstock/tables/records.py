"""What verify read of a shard: one record for each of the shard's rows, in its order. The file appears under
its name only when complete and durable. Here a giant's parts are rows; publish joins them into the manifest's
records."""

from __future__ import annotations

from itertools import groupby
from operator import lt
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import row_codec as table
from penstock.core.errors import STATE_ANEW, FailedError
from penstock.core.model import Record
from penstock.core.row_codec import rows
from penstock.tables.files import Files
from penstock.tables.tables import Form, TableWriter, read_batches, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

_PLACE = ("row", "part", "offset", "length")
_FORM = Form(table.RECORDS, (*_PLACE, *Record._fields))


class SeenRow(NamedTuple):
    row: int
    part: int  # -1: a whole file. Else `record` is of this part: its digest, proof and grades.
    offset: int  # of the part in its object, in bytes; so is `length`
    length: int
    record: Record


def extend_shard(
    path: Path,
    shard: Iterable[tuple[Sequence[int], pa.RecordBatch]],
    columns: Callable[[Sequence[int]], Mapping[str, Sequence[object]]],
) -> None:
    """Write a shard's records without handling its rows one by one.

    An `Entry`'s fields come from the shard's rows as stored (`numbered`, or those of another version), the
    others from `columns(numbers of rows)`, by name. The file is durable on return. Raises NoSpaceError,
    FailedError.
    """
    with TableWriter(path, _FORM) as writer:
        for numbers, batch in shard:
            have = dict(zip(batch.schema.names, batch.columns, strict=True))
            more = {"row": numbers, **columns(numbers)}
            writer.write([have[c.name] if c.name in have else stored(c, more[c.name]) for c in _FORM.columns])
        writer.close()


def read_records(path: Path) -> Iterator[Files | list[SeenRow]]:
    """Read the rows in order, at most 8,192 at a time: neighbouring whole files, or parts of giants. Raises
    FailedError, also if their numbers do not ascend."""
    last = -1
    for batch in read_batches(path, _FORM):
        numbers = [last, *batch["row"].to_pylist()]
        if not all(map(lt, numbers, numbers[1:])):
            raise FailedError("a shard's records are not in order", where=str(path), hint=STATE_ANEW)
        last = numbers[-1]
        parts = batch["part"].to_pylist()
        if parts.count(-1) == len(parts):
            yield Files(batch)
            continue
        start = 0
        for whole, run in groupby(parts, (-1).__eq__):
            length = len(list(run))
            some = batch.slice(start, length)
            yield Files(some) if whole else _rows(some)
            start += length


def _rows(batch: pa.RecordBatch) -> list[SeenRow]:
    places = {name: batch[name].to_pylist() for name in _PLACE}
    return rows(SeenRow, {**places, "record": Files(batch).records()})
