"""Which rows of a listing the current release holds already: a merge of listing and manifest, by columns.

Both have up to 10^8 rows in the order of the paths' bytes, nearly all unchanged. Row by row, the plan of a
million took 28.9 CPU seconds. By columns, unchanged rows become no Python objects: 4.3 seconds, twice a first
plan (`tests/planning/test_unchanged_rows.py`). Memory holds one batch of the listing and the records up to
its last path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.core.grades import SIZE_ONLY
from penstock.core.model import PLAIN, Reuse
from penstock.tables.row_cursor import RowCursor
from penstock.tables.shards import FORM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ALIKE = ("token", "size", "key", "version")  # columns of the same value in an unchanged row
# Columns of a manifest that a `Reuse` has.
BROUGHT = tuple(name for name in Reuse._fields if name != "staging")
COLUMNS = ("path", *ALIKE, "source", "modified_ns", *BROUGHT)  # the columns read of a manifest
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

    Where a source does not state an object's size (`SourceChecksum` of the kind `read`), the object is
    unchanged only if the same bytes came again. Agreeing size and time never suffice. A giant's digest is
    over its parts: giants are copied anew.
    """

    sources: Mapping[int, int]  # maps the release's source indices to those now
    giant_bytes: int  # objects from this size on are split into parts over several shards
    keep_mtime: bool  # whether files get their object's time: then times must be the same, too
    proven: bool  # only files that a source checksum proved, and empty ones


def with_reuse(
    rows: Iterator[pa.RecordBatch],
    records: Iterator[pa.RecordBatch],
    rules: ReuseRules,
    free: Callable[[pa.RecordBatch], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield rows of shards, whole files, with `reuse` set where `records` have the same file.

    `records` holds the columns COLUMNS of a manifest. Both ascend in the bytes of the path. `free` gets the
    records that no row takes.
    """
    held = RowCursor(records)
    for batch in rows:
        matching = held.take_to(batch["path"][-1].as_py())
        reuse = _reuse(batch, matching, rules)
        if free and matching is not None:
            free(_left(batch, reuse, matching))
        yield batch if reuse is None else batch.set_column(_PLACE, _REUSE, reuse)
    if free:
        for rest in held.rest():
            free(rest)


def _reuse(listed: pa.RecordBatch, held: pa.RecordBatch | None, rules: ReuseRules) -> pa.Array | None:
    """Return the column; None where no row is unchanged."""
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
    import pyarrow.compute as pc

    if reuse is None:
        return held
    taken = listed["path"].filter(pc.is_valid(reuse))
    if len(taken) == held.num_rows:
        return held.slice(0, 0)
    return held.filter(pc.invert(pc.is_in(held["path"], taken)))


def brought(held: pa.RecordBatch, same: pa.Array, timed: pa.Array | None = None) -> pa.StructArray:
    """Return the column `reuse` of rows that are these records where `same` is true; else null. Where `timed`
    is false, it has no time."""
    import pyarrow.compute as pc

    columns = {name: held[name] for name in BROUGHT}
    columns["staging"] = pa.repeat("", held.num_rows)
    if timed is not None:
        columns["mtime_ns"] = pc.if_else(timed, columns["mtime_ns"], None)
    return pa.StructArray.from_arrays(
        [columns[name] for name in Reuse._fields], fields=list(_REUSE.type), mask=pc.invert(same)
    )
