"""What plan adds up of rows of shards, on columns: unchanged rows become no Python objects.

pyarrow.compute, which takes 70 ms to load, is loaded only for rows of which some lie on the target already.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.balance import FILE_COST, REUSED_SHARE, costs
from penstock.core.model import Reuse
from penstock.formats.shards import reused
from penstock.planning.forecast import NOTHING, Lying

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa


class Divided(NamedTuple):
    """Rows of whole files by what is done with them."""

    to_copy: Sequence[int]
    """Their sizes."""
    linked: Lying
    taken: Lying


def divided(rows: pa.RecordBatch, sizes: Sequence[int], *, taking: bool) -> Divided:
    """These rows, of these sizes. `taking`: some may be taken over from another run's staging."""
    if not any_reused(rows):
        return Divided(sizes, NOTHING, NOTHING)
    import pyarrow.compute as pc

    lies = _lies(rows)
    lying = rows["size"].filter(lies)
    files, held, taken = len(lying), _sum(lying), NOTHING
    if taking:
        over = [size for text, size in zip(reused(rows), sizes, strict=True) if Reuse.is_taken(text)]
        taken = Lying(len(over), sum(over))
    to_copy = rows["size"].filter(pc.invert(lies)).to_pylist()
    return Divided(to_copy, Lying(files - taken.files, held - taken.bytes), taken)


def linked_sizes(rows: pa.RecordBatch, sizes: Sequence[int], *, taking: bool) -> list[int]:
    """The sizes of those of these rows that a release holds; arguments as of `divided`."""
    if taking:
        texts = zip(reused(rows), sizes, strict=False)
        return [size for text, size in texts if text and not Reuse.is_taken(text)]
    held: list[int] = rows["size"].filter(_lies(rows)).to_pylist() if any_reused(rows) else []
    return held


def cost(rows: pa.RecordBatch) -> int:
    """What all rows cost together (`core.balance.costs`)."""
    if not any_reused(rows):
        return sum(costs(rows["length"].to_pylist(), ()))
    return FILE_COST * len(rows["length"]) + _sum(_shares(rows))


def each_cost(rows: pa.RecordBatch) -> list[int]:
    """What each row costs."""
    lengths = _shares(rows) if any_reused(rows) else rows["length"]
    return costs(lengths.to_pylist(), ())


def folders(rows: pa.RecordBatch) -> Iterator[bytes]:
    """The folders of these files, in the order in which they first appear; "" is the top. A folder may come
    more than once."""
    if not any_reused(rows):
        for folder, _ in groupby([path.rpartition(b"/")[0] for path in rows["path"].to_pylist()]):
            yield folder
        return
    import pyarrow.compute as pc

    split = pc.split_pattern(rows["path"], b"/", max_splits=1, reverse=True)
    below = pc.greater(pc.list_value_length(split), 1)
    yield from pc.unique(pc.if_else(below, pc.list_element(split, 0), b"")).to_pylist()


def any_reused(rows: pa.RecordBatch) -> bool:
    return bool(rows["reuse"].total_values_length)


def _lies(rows: pa.RecordBatch) -> pa.Array:
    import pyarrow.compute as pc

    return pc.greater(pc.binary_length(rows["reuse"]), 0)


def _shares(rows: pa.RecordBatch) -> pa.Array:
    """The bytes of each row, and of those that are not copied the part that reading them back costs."""
    import pyarrow.compute as pc

    return pc.if_else(_lies(rows), pc.divide(rows["length"], REUSED_SHARE), rows["length"])


def _sum(column: pa.Array) -> int:
    import pyarrow.compute as pc

    total: int = pc.sum(column, min_count=0).as_py()
    return total
