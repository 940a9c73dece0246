"""Which rows of a listing the current release holds already: a merge of listing and manifest on columns.
Pure.

The problem: both have up to 10^8 rows in the order of the paths' bytes, and nearly all of them are unchanged.
Row by row, the plan of a million took 28.9 CPU seconds, 12.9 times a first plan. Here a batch of the listing
is compared with the records of the same paths column by column, and an unchanged row becomes no Python
object: 4.3 seconds, twice a first plan (`tests/planning/test_unchanged_rows.py` measures the ratio). In
memory are one batch of the listing and the records up to its last path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.core.digests import PLAIN
from penstock.core.grades import SIZE_ONLY
from penstock.core.model import Reuse
from penstock.tables.row_cursor import RowCursor
from penstock.tables.shards import FORM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ALIKE = ("token", "size", "key", "version")
"""Columns that have the same value in an unchanged row."""
BROUGHT = tuple(name for name in Reuse._fields if name != "staging")
"""Columns of a manifest that a `Reuse` has."""
COLUMNS = ("path", *ALIKE, "source", "modified_ns", *BROUGHT)
"""The columns of a manifest that are needed here."""
_PLACE = FORM.schema.get_field_index("reuse")
_REUSE = FORM.schema.field(_PLACE)


class ReuseRules(NamedTuple):
    """When the release's file at a path is the listed object.

    | token     | size | key, source, version | time, where kept | size below giants | unchanged |
    |-----------|------|----------------------|------------------|-------------------|-----------|
    | same      | same | same                 | same             | yes               | yes       |
    | none      |      |                      |                  |                   | no        |
    | different |      |                      |                  |                   | no        |
    | anything else differs                                                       || no        |

    An object whose size its source does not state (`SourceChecksum` of the kind `read`) is unchanged only if
    the same bytes came again. Nothing is called unchanged because size and time agree. A giant's digest is
    over its parts: giants are copied anew.
    """

    sources: Mapping[int, int]
    """Maps the index of a source in the release to its index now."""
    giant_bytes: int
    """Bytes from which an object is a giant, which is split into parts over several shards."""
    keep_mtime: bool
    """Whether files get the time of their object: then the times have to be the same, too."""
    proven: bool
    """Only files that a checksum of their source proved, and empty ones."""


def with_reuse(
    rows: Iterator[pa.RecordBatch],
    records: Iterator[pa.RecordBatch],
    rules: ReuseRules,
    free: Callable[[pa.RecordBatch], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of shards, whole files, with `reuse` set where `records`, the columns COLUMNS of a manifest, have
    the same file. Both ascend in the bytes of the path. `free` gets the records that no row takes."""
    held = RowCursor(records)
    for batch in rows:
        there = held.take_to(batch["path"][-1].as_py())
        reuse = _reuse(batch, there, rules)
        if free and there is not None:
            free(_left(batch, reuse, there))
        yield batch if reuse is None else batch.set_column(_PLACE, _REUSE, reuse)
    if free:
        for rest in held.rest():
            free(rest)


def _reuse(listed: pa.RecordBatch, held: pa.RecordBatch | None, rules: ReuseRules) -> pa.Array | None:
    """The column; None where none of the rows is unchanged."""
    if held is None:
        return None
    # Loading it takes 70 ms, which a plan without a release to link from does not pay.
    import pyarrow.compute as pc

    if not held["path"].equals(listed["path"]):
        held = held.take(pc.index_in(listed["path"], held["path"]))
    same = pc.greater(pc.binary_length(listed["token"]), 0)
    for name in ALIKE:
        same = pc.and_(same, pc.equal(listed[name], held[name]))
    theirs = pa.array(rules.sources.keys(), held["source"].type)
    mine = pa.array(rules.sources.values(), listed["source"].type)
    same = pc.and_(same, pc.equal(listed["source"], mine.take(pc.index_in(held["source"], theirs))))
    if pc.any(read := pc.match_substring(listed["checksum"], ":read:")).as_py():
        proof = pc.cast(held["source_proof"], listed["checksum"].type)
        same = pc.and_(same, pc.or_(pc.invert(read), pc.equal(listed["checksum"], proof)))
    if rules.keep_mtime:
        same = pc.and_(same, pc.equal(listed["modified_ns"], held["modified_ns"]))
    same = pc.and_(same, pc.less(listed["size"], rules.giant_bytes))
    same = pc.and_(same, pc.starts_with(held["digest"], PLAIN))
    if rules.proven:
        weak = pc.is_in(held["source_grade"], pa.array([SIZE_ONLY, ""]))
        same = pc.and_(same, pc.or_(pc.invert(weak), pc.equal(listed["size"], 0)))
    same = pc.fill_null(same, False)
    if not pc.any(same).as_py():
        return None
    return brought(held, same)


def _left(listed: pa.RecordBatch, reuse: pa.Array | None, held: pa.RecordBatch) -> pa.RecordBatch:
    """The records of which none is the file of a row."""
    import pyarrow.compute as pc

    if reuse is None:
        return held
    taken = listed["path"].filter(pc.is_valid(reuse))
    if len(taken) == held.num_rows:
        return held.slice(0, 0)
    return held.filter(pc.invert(pc.is_in(held["path"], taken)))


def brought(held: pa.RecordBatch, same: pa.Array, timed: pa.Array | None = None) -> pa.StructArray:
    """The column `reuse` of rows that are these records where `same` is true; else null. Where `timed` is
    false, it has no time."""
    import pyarrow.compute as pc

    columns = {name: held[name] for name in BROUGHT}
    columns["staging"] = pa.repeat("", held.num_rows)
    if timed is not None:
        columns["mtime_ns"] = pc.if_else(timed, columns["mtime_ns"], None)
    return pa.StructArray.from_arrays(
        [columns[name] for name in Reuse._fields], fields=list(_REUSE.type), mask=pc.invert(same)
    )
