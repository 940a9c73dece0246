"""Checks plan's rows before a byte moves. It sums columns, finds archived objects, files that would be
recalled and files with holes, and rejects some files with an error that names them.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.config.source_kinds import FOLDER, folder, of_url
from penstock.core import human
from penstock.core.errors import LOOK_AT_FILE, NAMED_FILES, PenstockError, PreflightError
from penstock.core.run_documents import FILE_COST, REUSED_DIVISOR, costs
from penstock.fs.safe_open import printable
from penstock.fs.store_checks import data_states
from penstock.jobs.forecast import NOTHING, OnTarget
from penstock.listing.evidence import unprovable
from penstock.run.previous_release import REFUSED
from penstock.sources.port import REQUEST, may_be_split, open_source
from penstock.tables.run_tables import count_reused, read_listing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run
    from penstock.fs.stores import DataStates
    from penstock.jobs.forecast import Totals
    from penstock.run.previous_release import BaseRelease
    from penstock.sources.port import Reader


# Sums over rows of shards, by columns, so that unchanged rows do not become Python objects.
#
# A row's `reuse` is null for a file to copy. For any other file it states where on the target the file is.
# pyarrow.compute takes 70 ms to load, so it is loaded only if some rows are on the target already.


class Divided(NamedTuple):
    to_copy: Sequence[int]  # sizes in bytes of the files to copy
    linked: OnTarget  # files that a release has
    taken: OnTarget  # files that another run's staging, or an adopted tree, has


def divided(rows: pa.RecordBatch, sizes: Sequence[int]) -> Divided:
    if not count_reused(rows):
        return Divided(sizes, NOTHING, NOTHING)
    import pyarrow.compute as pc

    to_copy = rows["size"].filter(pc.is_null(rows["reuse"])).to_pylist()
    held = _of_release(rows)
    linked, taken = rows["size"].filter(held), rows["size"].filter(pc.invert(held))
    return Divided(to_copy, OnTarget(len(linked), _sum(linked)), OnTarget(len(taken), _sum(taken)))


def linked_sizes(rows: pa.RecordBatch) -> list[int]:
    """Return the sizes in bytes of the rows whose files a release has."""
    held: list[int] = rows["size"].filter(_of_release(rows)).to_pylist() if count_reused(rows) else []
    return held


def lying_rows(rows: pa.RecordBatch) -> list[bool]:
    if not count_reused(rows):
        return [False] * rows.num_rows
    import pyarrow.compute as pc

    lies: list[bool] = pc.is_valid(rows["reuse"]).to_pylist()
    return lies


def cost(rows: pa.RecordBatch) -> int:
    """Return the cost of all rows together (`core.run_documents.costs`)."""
    if not count_reused(rows):
        return sum(costs(rows["length"].to_pylist()))
    return FILE_COST * len(rows["length"]) + _sum(_costed_bytes(rows))


def each_cost(rows: pa.RecordBatch) -> list[int]:
    lengths = _costed_bytes(rows) if count_reused(rows) else rows["length"]
    return costs(lengths.to_pylist())


def folders(rows: pa.RecordBatch) -> Iterator[bytes]:
    """Yield the folders of these files, in order of first appearance; "" is the top. Folders may recur."""
    if not count_reused(rows):
        for folder, _ in groupby([path.rpartition(b"/")[0] for path in rows["path"].to_pylist()]):
            yield folder
        return
    import pyarrow.compute as pc

    split = pc.split_pattern(rows["path"], b"/", max_splits=1, reverse=True)
    below = pc.greater(pc.list_value_length(split), 1)
    yield from pc.unique(pc.if_else(below, pc.list_element(split, 0), b"")).to_pylist()


def _of_release(rows: pa.RecordBatch) -> pa.Array:
    """Return for each row whether a release (true) or another run (false) has it; null for rows to copy."""
    import pyarrow.compute as pc

    return pc.equal(pc.struct_field(rows["reuse"], "staging"), "")


def _costed_bytes(rows: pa.RecordBatch) -> pa.Array:
    """Return the bytes of each row, reduced to the cost of reading back if the row is not copied."""
    import pyarrow.compute as pc

    return pc.if_else(pc.is_valid(rows["reuse"]), pc.divide(rows["length"], REUSED_DIVISOR), rows["length"])


def _sum(column: pa.Array) -> int:
    import pyarrow.compute as pc

    total: int = pc.sum(column, min_count=0).as_py()
    return total


# Archived objects that a copy would have to read: plan counts them before a byte moves, and stops.
#
# The source's last listing stated the objects' storage class. Linked and taken-over files do not count, since
# they are not read at a source.


class ArchivedObjects:
    def __init__(self, dataset: str) -> None:
        self._dataset = dataset
        self._files: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._named: list[str] = []

    def add(self, batch: pa.RecordBatch, sizes: Sequence[int]) -> None:
        """Count the archived objects to copy among these rows of the plan. `sizes` are in bytes."""
        if not batch["archived"].total_values_length:
            return
        columns = (batch["path"].to_pylist(), batch["archived"].to_pylist(), sizes, lying_rows(batch))
        for path, stored, size, lies in zip(*columns, strict=True):
            if stored and not lies:
                self._count(os.fsdecode(path), os.fsdecode(stored), size)

    def _count(self, path: str, stored: str, size: int) -> None:
        self._files[stored] += 1
        self._bytes[stored] += size
        if len(self._named) < NAMED_FILES:
            self._named.append(f"{printable(path)}: {stored}, {human.size(size)}")

    def check(self) -> None:
        if not self._files:
            return
        counts = "; ".join(
            f"{human.counted(count, 'object')}, {human.size(self._bytes[stored])}, {stored}"
            for stored, count in sorted(self._files.items())
        )
        more = self._files.total() - len(self._named)
        raise PreflightError(
            "objects of the source are archived and cannot be read",
            where=self._dataset,
            why="\n  ".join([f"{counts}:", *self._named, *([f"and {more:,} more"] if more else [])]),
            hint="have them restored at the store and run the same command; or leave all archived objects "
            "out by `archived: skip` of the source, or some by `exclude`",
        )


# Files that a copy would recall from an archive: files to copy from folders, if their data is not in place.
#
# Plan counts them before a byte moves, and stops until the dataset's `recall` allows the copy. Linked and
# taken-over files do not count, since they are not read at a source.


class SourceRecall:
    """A count of files to recall, in one pass over a run's files. A context manager."""

    def __init__(self, run: Run) -> None:
        """Raises PreflightError if the folder of a source cannot be examined."""
        self._dataset, self._allowed = run.dataset, run.config.dataset.recall
        self._asked: dict[int, DataStates] = {}
        self._files: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._named: list[str] = []
        for number, url in enumerate(run.info.sources):
            if of_url(url) is not FOLDER:
                continue
            path = Path(folder(url))
            try:
                states = data_states(path.parent if path.is_file() else path)
            except OSError as error:
                self.close()
                raise PreflightError(
                    "the source folder cannot be looked at",
                    where=url,
                    why=error.strerror or str(error),
                    hint=LOOK_AT_FILE,
                ) from None
            if states is not None:
                self._asked[number] = states

    def close(self) -> None:
        for states in self._asked.values():
            states.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, batch: pa.RecordBatch, sizes: Sequence[int]) -> None:
        """Count the files to copy, among these rows, whose data is elsewhere. `sizes` are in bytes."""
        if not self._asked:
            return
        to_copy: dict[int, dict[str, int]] = {}
        columns = (batch["source"].to_pylist(), batch["key"].to_pylist(), sizes, lying_rows(batch))
        for source, key, size, lies in zip(*columns, strict=True):
            if source in self._asked and not lies:
                to_copy.setdefault(source, {})[os.fsdecode(key)] = size
        for source, files in to_copy.items():
            for key, state in self._asked[source].away([*files]).items():
                self._files[state.place] += 1
                self._bytes[state.place] += files[key]
                if len(self._named) < NAMED_FILES:
                    self._named.append(
                        f"{printable(key)}: {state.place}, {state.why}, {human.size(files[key])}"
                    )

    def sentence(self) -> str:
        if not self._files:
            return ""
        counts = (
            f"{human.counted(self._files[place], 'file')}, {human.size(self._bytes[place])}, {place}"
            for place in sorted(self._files)
        )
        return f"of the source's data is not in place: {'; '.join(counts)}"

    def check(self) -> None:
        """Raise PreflightError if the copy would recall more bytes than `recall` allows."""
        total = self._bytes.total()
        if total <= self._allowed:
            return
        count = self._files.total()
        named = [
            *self._named,
            *([f"and {count - len(self._named)} more"] if count > len(self._named) else []),
        ]
        raise PreflightError(
            "copying would have files of the source fetched from an archive",
            where=self._dataset,
            why="\n  ".join([f"{self.sentence()}; `recall` allows {human.size(self._allowed)}:", *named]),
            hint=f"set `datasets.{self._dataset}.recall` to {_enough(total)} or more, and the copy fetches "
            "them by reading; or have them restored by the archive's own command first, in the order of its "
            "tapes; or leave them out by `exclude`",
        )


def _enough(count: int) -> str:
    """Return a size of at least `count` bytes, written as in the configuration."""
    for unit, scale in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{-(-count // scale)}{unit}"
    return f"{count}B"


# The bytes that source files with holes take on a target that keeps holes (the copy keeps each hole).
#
# Only large files of folder sources are examined; small files count in full.

LEAST = 256 << 20  # bytes; smaller files are not examined, since each examined file must be opened


class SparseFiles:
    """The bytes that the large files of a run's plan take, found at their sources."""

    def __init__(self, run: Run, *, kept: bool) -> None:
        """`kept` says whether the target keeps holes. If it does not, every file counts in full."""
        self._dataset = run.config.dataset
        self._folders = {
            number for number, url in enumerate(run.info.sources) if kept and of_url(url) is FOLDER
        }
        self._readers: dict[int, Reader] = {}

    def taking(self, batch: pa.RecordBatch, sizes: Sequence[int]) -> Mapping[int, int]:
        """Map the index of each file with holes that is to be copied to the bytes that it takes."""
        if not self._folders or max(sizes, default=0) < LEAST:
            return {}
        lying = lying_rows(batch)
        taking: dict[int, int] = {}
        for index, size in enumerate(sizes):
            source = batch["source"][index].as_py() if size >= LEAST and not lying[index] else -1
            if source in self._folders:
                taken = self._data_bytes(source, os.fsdecode(batch["key"][index].as_py()), size)
                if taken < size:
                    taking[index] = taken
        return taking

    def _data_bytes(self, source: int, key: str, size: int) -> int:
        """Return the bytes of a file's data. An unreadable file counts in full: copy reports the error."""
        try:
            if source not in self._readers:
                self._readers[source] = open_source(self._dataset.sources[source], self._dataset).reader()
            return self._readers[source].data_bytes(key, size)
        except PenstockError:
            return size


def check(context: Context, run: Run) -> None:
    _refuse_unprovable(context, run)
    _refuse_unpinned(context, run)


def refuse_doubling(context: Context, run: Run, base: BaseRelease, totals: Totals) -> None:
    """Raise PreflightError if unchanged files cannot be linked, and no copies were requested."""
    if base.way != REFUSED or not totals.unchanged:
        return
    files = f"{human.counted(totals.unchanged, 'file')}, {human.size(totals.unchanged_bytes)}"
    again = f"`{context.program} run --copy-unchanged {run.dataset}` copies them on the target, which takes "
    again += f"{human.size(totals.unchanged_bytes)} ({totals.unchanged_bytes:,} bytes) more"
    if not base.differing:
        raise PreflightError(
            "the target's file system has no reflinks, and `plan.reuse: reflink` asks for them",
            where=run.dataset,
            why=f"{files}, are unchanged since release {base.release}",
            hint=f"{again}; `plan.reuse: link` or `auto` links them",
        )
    raise PreflightError(
        f"release {base.release} has other {', '.join(base.differing)} than this run asks for",
        where=run.dataset,
        why=f"{files}, are unchanged since then and would be linked, and a linked file has one mode, group, "
        "ACL and time in both releases",
        hint=f"{again}; `plan.reuse: none` fetches them from the source again; or leave `permissions` as "
        "they were",
    )


def _refuse_unprovable(context: Context, run: Run) -> None:
    """Raise PreflightError with the files that no checksum can ever prove, if proof is required."""
    verify = run.config.verify
    if verify.source_checksum != "require":
        return
    plan, info = run.config.plan, run.info
    stated = [of_url(url).states_checksums for url in info.sources]
    later = verify.digests if verify.whole_giants else ()
    named: list[str] = []
    count = 0
    for batch in read_listing(run.folder.listing):
        context.stop.check()
        for entry in batch:
            giant = entry.size >= plan.giant_bytes and entry.size > plan.part_bytes
            giant = giant and may_be_split(info.sources[entry.source], entry.token)
            why = unprovable(entry, stated=stated[entry.source], giant=giant, later=later)
            if why:
                count += 1
                if len(named) < NAMED_FILES:
                    named.append(f"{printable(entry.path)}: {why}")
    if count:
        more = [f"and {count - NAMED_FILES} more"] if count > NAMED_FILES else []
        raise PreflightError(
            f"{human.counted(count, 'file')} can never be proven as `verify.source_checksum: require` asks",
            where=run.dataset,
            why="\n  ".join(["", *named, *more]),
            hint="have the checksum files beside the data name them, leave them out by `exclude`, or set "
            "`verify.source_checksum: auto`",
        )


def _refuse_unpinned(context: Context, run: Run) -> None:
    """Raise PreflightError with the files that several requests read, and no version pins. Their bytes could
    be a mixture of two versions, unnoticed."""
    blocks = [of_url(url).blocks for url in run.info.sources]
    if not any(blocks):
        return
    named: list[str] = []
    count = 0
    for batch in read_listing(run.folder.listing):
        context.stop.check()
        for entry in batch:
            if blocks[entry.source] and not entry.token and entry.size > REQUEST:
                count += 1
                if len(named) < NAMED_FILES:
                    named.append(f"{printable(entry.path)}: {human.size(entry.size)}")
    if count:
        named += [f"and {count - NAMED_FILES} more"] if count > NAMED_FILES else []
        summary = (
            f"the source states neither version nor time, and a request gives {human.size(REQUEST)} at most:"
        )
        raise PreflightError(
            f"{human.counted(count, 'file')} cannot be pinned to one version while they are read",
            where=run.dataset,
            why="\n  ".join([summary, *named]),
            hint="leave them out by `exclude`, or reach the source by a protocol that states versions",
        )
