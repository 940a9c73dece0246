"""New rows of a listing whose bytes the current release holds under another name, found by their checksums.

A store has no rename: a moved object is a new key. Its checksum, if the source states one, may already have
proven a file of the release that no row takes as unchanged. Then the object is not fetched again.

| the source states of the new row     | the release's file was proven by  | same size | reused           |
|--------------------------------------|-----------------------------------|-----------|------------------|
| a strong checksum of all its bytes   | the same checksum                 | yes       | yes              |
| xxh3_128 of all its bytes            | any, and its digest is the same   | yes       | yes              |
| an etag of 32 hexadecimal digits     | an MD5 of this value, by reading  | yes       | yes              |
| the same                             | another one; its etag is the same | yes       | if its MD5 is it |
| size and time, a CRC, a sum of parts | any                               | yes       | no               |

The fourth row is usual at stores that state a CRC of each object: the CRC proves a fetched file, so its MD5
is not computed then. Computing it now, of the file here, costs less than fetching the object.

Each file of the release is taken once, so no two names of a release are one inode. Empty files and giants are
left out. At most MOST new rows and MOST untaken files are kept in memory; a larger change is not searched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.core.model import PLAIN, STRONG_CHECKSUM
from penstock.run.planning.unchanged_rows import brought
from penstock.tables.row_cursor import RowCursor
from penstock.tables.shards import FORM
from penstock.tables.tables import strings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.run.planning.unchanged_rows import ReuseRules

MOST = 1_000_000  # rows of either kind that are kept: some 200 bytes each
_MD5 = "^[0-9a-f]{32}$"
_NEW = ("path", "size", "modified_ns", "checksum", "token")


class RenamedRows:
    """The renamed files of one plan.

    First `gather` one pass over the rows and the release's records. If `match` then finds renamed files,
    `mark` them in each further pass.
    """

    def __init__(self, rules: ReuseRules) -> None:
        self._rules = rules
        self._new: list[pa.RecordBatch] = []
        self._free: list[pa.RecordBatch] = []
        self._counts = [0, 0]
        self._matched: pa.RecordBatch | None = None
        self.gathering = True
        self.files = self.bytes = 0  # of renamed files
        # Sizes of renamed files whose time differs from the release's, where times are kept: they get own
        # inodes.
        self.own_sizes: list[int] = []

    @property
    def too_many(self) -> bool:
        """Whether more rows are new, or left over, than are kept: then nothing is searched."""
        return max(self._counts) > MOST

    def free(self, records: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        plain = pc.and_(pc.greater(records["size"], 0), pc.less(records["size"], self._rules.giant_bytes))
        self._keep(self._free, 1, records.filter(pc.and_(plain, pc.starts_with(records["digest"], PLAIN))))

    def gather(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows as they are, and keep the new ones."""
        import pyarrow.compute as pc

        for batch in rows:
            new = pc.and_(pc.is_null(batch["reuse"]), pc.greater(batch["size"], 0))
            new = pc.and_(new, pc.less(batch["size"], self._rules.giant_bytes))
            self._keep(self._new, 0, batch.filter(new).select(_NEW))
            yield batch

    def match(self, md5_of: Callable[[bytes, int], str]) -> bool:
        """Return whether any gathered row is a file of the release; gather no more. `md5_of` reads a file of
        the release, by path and size; "" if it does not read the file."""
        self.gathering = False
        new, free = self._new, self._free
        self._new, self._free = [], []
        if self.too_many or not new or not free:
            return False
        self._match(_joined(new), _joined(free), md5_of)
        return self.files > 0

    def mark(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        matched = RowCursor([] if self._matched is None else [self._matched])
        places = {name: FORM.schema.get_field_index(name) for name in ("reuse", "held_as")}
        for batch in rows:
            some = matched.take_to(batch["path"][-1].as_py())
            if some is not None:
                index = pc.index_in(batch["path"], some["path"])
                renamed = pc.is_valid(index)
                for name, place in places.items():
                    column = pc.if_else(renamed, some[name].take(index), batch[name])
                    batch = batch.set_column(place, FORM.schema.field(place), column)
            yield batch

    def _keep(self, kept: list[pa.RecordBatch], which: int, rows: pa.RecordBatch) -> None:
        self._counts[which] += rows.num_rows
        if rows.num_rows and not self.too_many:
            kept.append(rows)

    def _match(self, new: pa.RecordBatch, free: pa.RecordBatch, md5_of: Callable[[bytes, int], str]) -> None:
        sizes, held = new["size"], free["size"]
        taken = _paired(_stated(new), sizes, _proven(free, whole=not self._rules.proven), held)
        mine, theirs = (
            _but(rows.num_rows, [pair[side] for pair in taken]) for side, rows in enumerate((new, free))
        )
        paths, etags = free["path"], _etags(new)
        taken += [
            (mine_at, theirs_at)
            for mine_at, theirs_at in _paired(_only(etags, mine), sizes, _only(_etags(free), theirs), held)
            if md5_of(paths[theirs_at].as_py(), held[theirs_at].as_py()) == etags[mine_at].as_py()
        ]
        if not taken:
            return
        taken.sort()
        new, free = (
            new.take([mine_at for mine_at, _ in taken]),
            free.take([theirs_at for _, theirs_at in taken]),
        )
        reuse = brought(free, pa.repeat(True, free.num_rows), self._timed(new, free))
        self._matched = pa.record_batch({"path": new["path"], "reuse": reuse, "held_as": free["path"]})
        sizes = new["size"].to_pylist()
        self.files, self.bytes = len(sizes), sum(sizes)

    def _timed(self, new: pa.RecordBatch, free: pa.RecordBatch) -> pa.Array:
        """Return, by its time, whether each row may be the release's inode."""
        import pyarrow.compute as pc

        if not self._rules.keep_mtime:
            return pa.repeat(pa.scalar(True), new.num_rows)
        same = pc.equal(new["modified_ns"], free["modified_ns"])
        self.own_sizes = new["size"].filter(pc.invert(same)).to_pylist()
        return same


def _paired(stated: pa.Array, sizes: pa.Array, proven: pa.Array, held: pa.Array) -> list[tuple[int, int]]:
    """Pair each index of `stated` with one of `proven` of the same value and size; nulls have no pair. No
    index is in two pairs."""
    import pyarrow.compute as pc

    common = pc.drop_null(proven)
    shared = pc.indices_nonzero(pc.and_(pc.is_valid(stated), pc.is_in(stated, common)))
    if not len(shared):
        return []
    by_checksum: dict[tuple[str, int], list[int]] = {}
    theirs = pc.indices_nonzero(pc.and_(pc.is_valid(proven), pc.is_in(proven, pc.drop_null(stated))))
    for index in reversed(theirs.to_pylist()):
        by_checksum.setdefault((proven[index].as_py(), held[index].as_py()), []).append(index)
    return [
        (index, same.pop())
        for index in shared.to_pylist()
        if (same := by_checksum.get((stated[index].as_py(), sizes[index].as_py())))
    ]


def _but(count: int, indices: list[int]) -> pa.Array:
    kept = bytearray(b"\1") * count
    for index in indices:
        kept[index] = 0
    return pa.array(map(bool, kept), pa.bool_())


def _only(values: pa.Array, kept: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.if_else(kept, values, None)


def _etags(rows: pa.RecordBatch) -> pa.Array:
    import pyarrow.compute as pc

    token = pa.array(strings(rows["token"]), pa.string())
    return pc.if_else(pc.match_substring_regex(token, _MD5), token, None)


def _stated(new: pa.RecordBatch) -> pa.Array:
    """Return the checksum of each new row; null if its source states no strong one."""
    import pyarrow.compute as pc

    checksum = pa.array(strings(new["checksum"]), pa.string())
    etag = pc.binary_join_element_wise("md5:full:", _etags(new), "")
    return pc.if_else(pc.match_substring_regex(checksum, STRONG_CHECKSUM), checksum, etag)


def _proven(free: pa.RecordBatch, *, whole: bool) -> pa.Array:
    """Return the strong checksum that proved each file; else, with `whole`, the file's own digest."""
    import pyarrow.compute as pc

    own = pc.replace_substring(free["digest"], PLAIN, f"{PLAIN}full:")
    none = own if whole else pa.nulls(free.num_rows, pa.string())
    return pc.if_else(
        pc.match_substring_regex(free["source_proof"], STRONG_CHECKSUM), free["source_proof"], none
    )


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
