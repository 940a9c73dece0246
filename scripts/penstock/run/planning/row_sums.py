"""Sums over rows of shards, by columns: unchanged rows become no Python objects.

A row's `reuse` is null for a file to copy; else it names the holder of the file. pyarrow.compute takes 70 ms
to load, so it is loaded only for rows of which some lie on the target already.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.balance import FILE_COST, REUSED_DIVISOR, costs
from penstock.jobs.forecast import NOTHING, OnTarget
from penstock.tables.shards import count_reused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa


class Divided(NamedTuple):
    to_copy: Sequence[int]  # their sizes in bytes
    linked: OnTarget  # files that a release holds
    taken: OnTarget  # files that another run's staging, or an adopted tree, holds


def divided(rows: pa.RecordBatch, sizes: Sequence[int]) -> Divided:
    if not count_reused(rows):
        return Divided(sizes, NOTHING, NOTHING)
    import pyarrow.compute as pc

    to_copy = rows["size"].filter(pc.is_null(rows["reuse"])).to_pylist()
    held = _of_release(rows)
    linked, taken = rows["size"].filter(held), rows["size"].filter(pc.invert(held))
    return Divided(to_copy, OnTarget(len(linked), _sum(linked)), OnTarget(len(taken), _sum(taken)))


def linked_sizes(rows: pa.RecordBatch) -> list[int]:
    """Return the sizes in bytes of the rows that a release holds."""
    held: list[int] = rows["size"].filter(_of_release(rows)).to_pylist() if count_reused(rows) else []
    return held


def lying(rows: pa.RecordBatch) -> list[bool]:
    if not count_reused(rows):
        return [False] * rows.num_rows
    import pyarrow.compute as pc

    lies: list[bool] = pc.is_valid(rows["reuse"]).to_pylist()
    return lies


def cost(rows: pa.RecordBatch) -> int:
    """Return what all rows cost together (`core.balance.costs`)."""
    if not count_reused(rows):
        return sum(costs(rows["length"].to_pylist()))
    return FILE_COST * len(rows["length"]) + _sum(_costed_bytes(rows))


def each_cost(rows: pa.RecordBatch) -> list[int]:
    lengths = _costed_bytes(rows) if count_reused(rows) else rows["length"]
    return costs(lengths.to_pylist())


def folders(rows: pa.RecordBatch) -> Iterator[bytes]:
    """Yield the folders of these files, in order of first appearance; "" is the top. Folders may repeat."""
    if not count_reused(rows):
        for folder, _ in groupby([path.rpartition(b"/")[0] for path in rows["path"].to_pylist()]):
            yield folder
        return
    import pyarrow.compute as pc

    split = pc.split_pattern(rows["path"], b"/", max_splits=1, reverse=True)
    below = pc.greater(pc.list_value_length(split), 1)
    yield from pc.unique(pc.if_else(below, pc.list_element(split, 0), b"")).to_pylist()


def _of_release(rows: pa.RecordBatch) -> pa.Array:
    """Return which rows a release holds (true) or another run (false); null for rows to copy."""
    import pyarrow.compute as pc

    return pc.equal(pc.struct_field(rows["reuse"], "staging"), "")


def _costed_bytes(rows: pa.RecordBatch) -> pa.Array:
    """Return the bytes of each row; of rows not copied, the fraction that reading them back costs."""
    import pyarrow.compute as pc

    return pc.if_else(pc.is_valid(rows["reuse"]), pc.divide(rows["length"], REUSED_DIVISOR), rows["length"])


def _sum(column: pa.Array) -> int:
    import pyarrow.compute as pc

    total: int = pc.sum(column, min_count=0).as_py()
    return total
