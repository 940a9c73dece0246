"""`penstock diff`: counts and rows of what changed between two releases, or between a release and its source.

`look.release_comparison` reads both sides as rows in byte order of the paths; a judge (`look.judges`) says
which are equal. Other rows are kept for `rows`, and spill into temporary files (`SpilledRows`) until the
difference is closed.

| a path is in                         | what both sides prove of the content | kind        |
|--------------------------------------|--------------------------------------|-------------|
| both                                 | it is equal                          | `unchanged` |
| both                                 | it differs                           | `changed`   |
| both                                 | nothing that can be compared         | `unproven`  |
| the former; another is in the latter | the two files are equal              | `renamed`   |
| the former alone                     |                                      | `removed`   |
| the latter alone                     |                                      | `added`     |
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.catalogue_rows import DiffCount, DiffRow
from penstock.look.renames import alone, flags, paired, renamed
from penstock.look.sorted_rows import merged
from penstock.tables.spilled_rows import SpilledRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.look.renames import Pairs

UNCHANGED, CHANGED, UNPROVEN = "unchanged", "changed", "unproven"
RENAMED, REMOVED, ADDED = "renamed", "removed", "added"
KINDS = (UNCHANGED, CHANGED, UNPROVEN, RENAMED, REMOVED, ADDED)
LISTED = (CHANGED, UNPROVEN, RENAMED, REMOVED, ADDED)  # kinds whose rows are kept


class Judge(Protocol):
    """Decides which rows of two sides hold the same content. Batches have at least `path` (binary) and
    `size`."""

    keys: Sequence[str]  # columns that prove a rename, best first (`renames.paired`)

    def unlike(self, before: pa.RecordBatch, after: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """Return for rows of the same paths, as booleans, which changed and which cannot be compared."""

    def before_keys(self, rows: pa.RecordBatch) -> Sequence[pa.Array]:
        """Return the columns `keys` of rows of the former side."""

    def after_keys(self, rows: pa.RecordBatch) -> Sequence[pa.Array]:
        """As `before_keys`, of the latter side."""


class ManifestDifference:
    """The result of one comparison: `compare` fills it once. A context manager, at whose end its rows are
    gone."""

    def __init__(self, keys: Sequence[str], in_memory: int | None = None) -> None:
        """`keys`: those of the judge. `in_memory`: rows of a kind kept in memory; None: the default of
        `SpilledRows`."""
        kept = {} if in_memory is None else {"in_memory": in_memory}
        self._files = ExitStack()
        single = pa.schema(
            [("path", pa.binary()), ("size", pa.int64()), *((key, pa.binary()) for key in keys)]
        )
        both = pa.schema([("path", pa.binary()), ("size", pa.int64()), ("before", pa.int64())])
        self.rows_of = {
            kind: self._files.enter_context(SpilledRows(schema, **kept))
            for kind, schema in ((REMOVED, single), (ADDED, single), (CHANGED, both), (UNPROVEN, both))
        }
        self.counts = dict.fromkeys(KINDS, DiffCount())
        self._pairs: Pairs | None = None
        self._keys = keys

    @property
    def equal(self) -> bool:
        """Whether every file is proven equal."""
        return not any(self.counts[kind].files for kind in LISTED)

    def compare(
        self, judge: Judge, before: Iterable[pa.RecordBatch], after: Iterable[pa.RecordBatch], where: str
    ) -> Self:
        """Compare two streams to their ends. Raises FailedError, naming `where`, if the paths of one do not
        ascend."""
        for neighbours in merged(before, after, where):
            self._count_both(judge, neighbours.before, neighbours.after)
            self._keep_single(REMOVED, neighbours.removed, judge.before_keys)
            self._keep_single(ADDED, neighbours.added, judge.after_keys)
        for rows in self.rows_of.values():
            rows.finish()
        self._pair_renamed()
        return self

    def rows(self, kind: str) -> Iterator[DiffRow]:
        """Yield the rows of one kind of LISTED by path (for renamed files the new one). Only after
        `compare`."""
        assert self._pairs is not None
        if kind == RENAMED:
            for was, path, size in renamed(self.rows_of[REMOVED], self.rows_of[ADDED], self._pairs):
                yield DiffRow(kind, path, was, size, size)
        elif kind == REMOVED:
            for path, size in alone(self.rows_of[REMOVED], self._pairs.left):
                yield DiffRow(kind, path, None, None, size)
        elif kind == ADDED:
            for path, size in alone(self.rows_of[ADDED], self._pairs.came):
                yield DiffRow(kind, path, None, size, None)
        else:
            for _, chunk in self.rows_of[kind].chunks():
                for path, size, before in zip(
                    *(chunk[name].to_pylist() for name in chunk.schema.names), strict=True
                ):
                    yield DiffRow(kind, path, None, size, before)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def _count_both(self, judge: Judge, before: pa.RecordBatch, after: pa.RecordBatch) -> None:
        """Count rows of the same paths, and keep those not proven equal."""
        if not before.num_rows:
            return
        changed, unproven = judge.unlike(before, after)
        alike = pc.invert(pc.or_(changed, unproven))
        sizes = after["size"]
        self.counts[UNCHANGED] += DiffCount(
            alike.true_count, _sum(sizes.filter(alike)), _sum(sizes.filter(alike))
        )
        for kind, which in ((CHANGED, changed), (UNPROVEN, unproven)):
            if which.true_count:
                columns = [after["path"], sizes, before["size"]]
                rows = pa.record_batch(
                    [column.filter(which) for column in columns], ["path", "size", "before"]
                )
                self.rows_of[kind].add(rows)
                self.counts[kind] += DiffCount(rows.num_rows, _sum(rows["size"]), _sum(rows["before"]))

    def _keep_single(
        self, kind: str, rows: pa.RecordBatch, keys: Callable[[pa.RecordBatch], Sequence[pa.Array]]
    ) -> None:
        """Count and keep rows of one side only, with the columns that prove renames."""
        if rows.num_rows:
            columns = [rows["path"], rows["size"], *keys(rows)]
            self.rows_of[kind].add(pa.record_batch(columns, ["path", "size", *self._keys]))
            size = _sum(rows["size"])
            self.counts[kind] += DiffCount(rows.num_rows, size, bytes_before=size if kind == REMOVED else 0)

    def _pair_renamed(self) -> None:
        """Count as renamed what was removed and added with a common key (`renames.paired`)."""
        removed, added = self.rows_of[REMOVED], self.rows_of[ADDED]
        self._pairs = pairs = paired(removed, added, self._keys)
        size = 0
        if pairs.count:
            for start, chunk in added.chunks():
                came = pc.equal(flags(pairs.came, start, chunk.num_rows), 1)
                size += _sum(chunk["size"].filter(came))
        self.counts[RENAMED] = DiffCount(pairs.count, size, size)
        self.counts[REMOVED] += DiffCount(-pairs.count, -size, -size)
        self.counts[ADDED] += DiffCount(-pairs.count, -size)


def _sum(sizes: pa.Array) -> int:
    return pc.sum(sizes).as_py() or 0
