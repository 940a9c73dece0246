"""Reads the data files of an S3 Inventory, CSV (gzip), Parquet and ORC, as columns of plain values. It keeps
one batch of rows in memory, or one stripe for ORC (64 MiB from Amazon S3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.orc as po
import pyarrow.parquet as pq

from penstock.core.errors import PreflightError
from penstock.tables.tables import strings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

BATCH = 8192  # rows in one batch
CSV_BLOCK = 1 << 20  # bytes of text that are parsed at once
FORMATS = ("CSV", "Parquet", "ORC")
# The values of each column, by its canonical name: text as `str` from `os.fsdecode`, times in nanoseconds,
# None if not stated. In CSV all values are text, and "" means not stated.
Rows = dict[str, list[Any]]


TIME = "lastmodifieddate"


def canonical(name: str) -> str:
    """Normalise a column's name: CSV has `LastModifiedDate`, the other formats `last_modified_date`."""
    return name.replace("_", "").lower()


def read(path: Path, kind: str, columns: Sequence[str], wanted: Sequence[str], where: str) -> Iterator[Rows]:
    """Read a data file in batches, in its order. `kind`: its format, from FORMATS. `columns`: the names of
    all its columns, in order. `wanted`: canonical names. Raises PreflightError if the file is damaged or
    lacks a column."""
    by_name = {canonical(name): name for name in columns}
    ways = {"CSV": _csv, "Parquet": _parquet, "ORC": _orc}
    try:
        for batch in ways[kind](path, columns, by_name, wanted):
            yield {
                name: (plain_times if name == TIME else plain_values)(batch[by_name[name]]) for name in wanted
            }
    except (OSError, EOFError, KeyError, ValueError, pa.ArrowException) as error:
        raise PreflightError(
            "a file of the inventory cannot be read",
            where=where,
            why=str(error).partition("\n")[0],
            hint="it is damaged, or no inventory's: have it fetched again, or use the next inventory",
        ) from error


def _csv(
    path: Path, columns: Sequence[str], by_name: Mapping[str, str], wanted: Sequence[str]
) -> Iterator[Mapping[str, pa.Array]]:
    with open(path, "rb") as plain:
        compressed = plain.read(2) == b"\x1f\x8b"
    names = [by_name[name] for name in wanted]
    with pa.input_stream(str(path), compression="gzip" if compressed else None) as stream:
        try:
            reader = pc.open_csv(
                stream,
                read_options=pc.ReadOptions(
                    column_names=list(columns), block_size=CSV_BLOCK, use_threads=False
                ),
                convert_options=pc.ConvertOptions(
                    column_types=dict.fromkeys(columns, pa.binary()),
                    include_columns=names,
                    strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):
                return
            raise
        for batch in reader:
            yield dict(zip(names, batch.columns, strict=True))


def _parquet(
    path: Path,
    columns: Sequence[str],  # noqa: ARG001 (the file has its own)
    by_name: Mapping[str, str],
    wanted: Sequence[str],
) -> Iterator[Mapping[str, pa.Array]]:
    names = [by_name[name] for name in wanted]
    with open(path, "rb") as file, pq.ParquetFile(file, pre_buffer=False) as table:
        _refuse_missing(names, table.schema_arrow.names)
        for batch in table.iter_batches(batch_size=BATCH, columns=names, use_threads=False):
            yield {name: batch[name] for name in names}


def _orc(
    path: Path,
    columns: Sequence[str],  # noqa: ARG001 (the file has its own)
    by_name: Mapping[str, str],
    wanted: Sequence[str],
) -> Iterator[Mapping[str, pa.Array]]:
    names = [by_name[name] for name in wanted]
    with open(path, "rb") as file:
        table = po.ORCFile(file)
        _refuse_missing(names, table.schema.names)
        for number in range(table.nstripes):
            stripe = table.read_stripe(number, columns=names)
            for start in range(0, stripe.num_rows, BATCH):
                some = stripe.slice(start, BATCH)
                yield {name: some[name] for name in names}


def _refuse_missing(names: Sequence[str], present: Sequence[str]) -> None:
    if missing := [name for name in names if name not in present]:
        raise ValueError(f"it has no column {', '.join(missing)}, which the manifest names")


def plain_times(column: pa.Array) -> list[Any]:
    """Convert a column of times, as `plain_values`. Raises ValueError for numbers: their unit is unknown."""
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        raise ValueError(f"its times are numbers ({column.type}), and not timestamps or text")
    return plain_values(column)


def plain_values(column: pa.Array) -> list[Any]:
    """Convert a column to plain values; times become nanoseconds since the epoch."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        each = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[kind.unit]
        numbers = column.cast(pa.int64()).to_pylist()
        return [None if number is None else number * each for number in numbers]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return strings(column)
    values: list[Any] = column.to_pylist()
    return values
