"""A tree that penstock did not write, and that becomes a release. This module has the survey of its files,
the rows that plan takes over, and how they get their final state.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import human, run_steps
from penstock.core.errors import FailedError
from penstock.core.findings import (
    NOT_LISTED,
    READ,
    SAME,
    STALE,
    TO_FETCH,
    merge,
    taken,
)
from penstock.core.grades import SIZE_ONLY
from penstock.core.human import in_quotes
from penstock.core.layout import RunLayout
from penstock.core.model import DIGEST_BYTES, Copied, Entry, Reuse, Surveyed, of_hex
from penstock.core.row_codec import reused_line
from penstock.dataset import documents
from penstock.dataset.documents import read_plan
from penstock.engine import journal
from penstock.fs.capabilities import facts
from penstock.fs.tree import Calls
from penstock.host.kernel_facts import host_name
from penstock.jobs import audits_and_adoptions
from penstock.tables import run_tables
from penstock.tables.run_tables import as_columns, as_rows, read_shard
from penstock.target import dataset_folders, modes, tree_removal
from penstock.target.adopted_files import AdoptedFiles, move_tree
from penstock.target.staging_folder import Barrier

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from penstock.core.dataset_documents import AdoptedTree
    from penstock.core.run_documents import PlanInfo, ShardInfo
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run
    from penstock.jobs.run_cleanup import AbandonedStaging
    from penstock.tables.run_tables import ShardSurvey
    from penstock.target.adopted_files import Settled


NOT_YET = Surveyed(0, "")  # the survey's state of a row that was not read yet


class File(NamedTuple):
    entry: Entry  # the listing's entry of the whole file, or of a giant's first part
    places: Sequence[tuple[int, int]]  # shard and row number of each row
    rows: Sequence[Surveyed]


def read(folder: RunLayout, plan: PlanInfo) -> Iterator[list[File]]:
    """Yield all files of the listing, in order, some thousands at a time."""
    from penstock.tables.run_tables import ShardSurvey, read_shard

    held: File | None = None
    for shard in plan.shards:
        survey = ShardSurvey(folder.survey(shard.index), shard.rows)
        row = 0
        for group in read_shard(folder.shard(shard.index)):
            files: list[File] = []
            for number, (entry, surveyed) in enumerate(
                zip(group, _seen(survey, row, len(group)), strict=True), row
            ):
                place = (shard.index, number)
                if entry.part < 0 or entry.part == 0 or held is None:
                    file = File(entry, (place,), (surveyed,))
                else:
                    file = held._replace(places=(*held.places, place), rows=(*held.rows, surveyed))
                if entry.part >= 0 and entry.offset + entry.length < entry.size:
                    held = file
                    continue
                held = None
                files.append(file)
            row += len(group)
            if files:
                yield files


def _seen(survey: ShardSurvey, first: int, count: int) -> list[Surveyed]:
    numbers = range(first, first + count)
    surveyed = [number for number in numbers if survey.state(number)]
    if len(surveyed) == count:
        return survey.rows(surveyed)
    rows = dict(zip(surveyed, survey.rows(surveyed), strict=True)) if surveyed else {}
    return [rows.get(number, NOT_YET) for number in numbers]


def mark_stale(folder: RunLayout, rows: Mapping[int, Sequence[Surveyed]]) -> None:
    """Mark rows, given by shard, to be read again. Durable on return. No element may be at work."""
    from penstock.tables import run_tables

    for shard, some in rows.items():
        run_tables.put(folder.survey(shard), iter([list(some)]))


def stale(row: int, *, differed: bool) -> Surveyed:
    """Return the state of a row to be read again. If it differed, that reading compares its bytes."""
    return Surveyed(row, STALE, READ if differed else "")


def differed(folder: RunLayout, plan: PlanInfo) -> set[str]:
    """Return the paths of files with a row whose bytes differed at the last reading."""
    from penstock.tables.run_tables import ShardSurvey

    paths: set[str] = set()
    for shard in plan.shards:
        survey = ShardSurvey(folder.survey(shard.index), shard.rows)
        rows = survey.differed(row for row in range(shard.rows) if survey.state(row) not in ("", SAME))
        if rows:
            paths.update(entry.path for row, entry in _numbered(folder, shard.index) if row in rows)
    return paths


def mark_differed(folder: RunLayout, plan: PlanInfo, paths: Collection[str]) -> None:
    """Mark these files, so that their bytes are compared. No element may be at work. Durable on return."""
    for shard in plan.shards if paths else ():
        rows = [
            stale(row, differed=True) for row, entry in _numbered(folder, shard.index) if entry.path in paths
        ]
        if rows:
            mark_stale(folder, {shard.index: rows})


def _numbered(folder: RunLayout, shard: int) -> Iterator[tuple[int, Entry]]:
    from penstock.tables.run_tables import read_shard

    return enumerate(entry for group in read_shard(folder.shard(shard)) for entry in group)


# A tree that penstock did not write becomes a release: the rows that plan takes over, and their final state.
#
# Plan takes over each file that a comparison (`penstock adopt`) found to equal the source. Before the copy
# begins, one rename makes the tree the staging's `data`. Files that the release will not contain are moved
# aside. Each file that is unchanged since its reading is settled: it gets its final mode, group and time, and
# a line in the journals. The run's survey keeps the files' state, so verify does not read untouched files
# again.
#
# | killed                   | the next copy                                                               |
# |--------------------------|-----------------------------------------------------------------------------|
# | before the rename        | renames                                                                     |
# | after the rename         | recognizes the tree in the staging by its inode                             |
# | while files are settled  | settles files without a journal line. If such a file has its mode already,  |
# |                          | someone else may have touched it, so verify reads it                        |

GROUP = 16_384  # number of rows that are recorded together; after a kill, verify reads about this many again


class _Lying(NamedTuple):
    path: str
    file: File


class AdoptedRows:
    """The rows that a plan takes over from a tree, instead of rows of `target_findings.TakeOver`. Each pass
    over the listing yields the same rows."""

    def __init__(self, mark: AdoptedTree, run: Run, *, reflinks: bool) -> None:
        """`reflinks` says whether a copy on the target shares its original's blocks."""
        self.mark, self._plan, self._reflinks = mark, run.config.plan, reflinks
        # sizes of files that are copied on the target, since other accounts own them or other names link them
        self.own_sizes: list[int] = []
        self.stagings: Sequence[AbandonedStaging] = ()
        self.used: set[str] = set()
        # Always empty, since giants come with the tree.
        self.giants: dict[str, tuple[str, int, dict[int, Reuse]]] = {}
        self._parts: dict[str, dict[int, Reuse]] = {}

    def __bool__(self) -> bool:
        return True

    def over(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows: Iterator[list[Entry]] = map(as_rows, batches)
        self.own_sizes = []
        lying = (_Lying(file.entry.path, file) for file in good_files(self.mark))
        return chain.from_iterable(map(as_columns, merge(rows, lying, self._reused)))

    def parts(self, rows: Iterable[Entry]) -> Iterator[Entry]:
        for row in rows:
            reuse = self._parts.get(row.path, {}).get(row.part)
            yield row._replace(reuse=reuse) if reuse else row

    def _reused(self, entry: Entry, lying: _Lying) -> Reuse | None:
        file = lying.file
        if not self._reflinks and not _is_alone(file):
            self.own_sizes.append(entry.size)
        giant = entry.size >= max(self._plan.giant_bytes, self._plan.part_bytes + 1)
        if giant:
            self._parts[entry.path] = {n: taken(part, self.mark.key) for n, part in _parts_of(file)}
            return None
        (row,) = file.rows
        return taken(_copied(row), self.mark.key)


def _copied(row: Surveyed) -> Copied:
    return Copied(row.row, row.digest, row.source_grade or SIZE_ONLY, row.source_proof, linked=True)


def _parts_of(file: File) -> Iterator[tuple[int, Copied]]:
    """Yield the parts of a giant. It was read in parts, or as a whole with digests of its parts."""
    if len(file.rows) > 1 or not file.rows[0].parts:
        yield from enumerate(map(_copied, file.rows))
        return
    parts = file.rows[0].parts
    for number in range(len(parts) // DIGEST_BYTES):
        digest = parts[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]
        yield number, Copied(0, of_hex(digest.hex()), SIZE_ONLY, "", linked=True)


def good_files(mark: AdoptedTree) -> Iterator[File]:
    """Yield, in order, the comparison's files that equal the source."""
    folder = RunLayout(Path(mark.folder))
    bad = {
        difference.path
        for difference in audits_and_adoptions.kept_differences(folder)
        if difference.kind in TO_FETCH or difference.kind == "source"
    }
    for files in read(folder, read_plan(folder)):
        for file in files:
            if file.entry.path not in bad and all(row.state == SAME for row in file.rows):
                yield file


def _is_alone(file: File) -> bool:
    surveyed = file.rows[0]
    return surveyed.uid == os.geteuid() and surveyed.links == 1


def sentence(mark: AdoptedTree, files: int) -> str:
    return (
        f"{files:,} files are taken over from the tree {mark.tree}, which becomes the release by one rename"
    )


def settle(context: Context, run: Run) -> None:
    """Make the run's adopted tree, if any, the staging's `data`, and record the files taken over. Call it
    under the dataset's lock, while no element of copy lives. Does not repeat work done before."""
    mark = documents.read_adopted_tree(run.folder)
    if mark is None or mark.settled:
        return
    context.assert_held()
    folder = RunLayout(Path(mark.folder))
    _move(run, mark, folder)
    policy = run.config.dataset.permissions
    gid, rules = modes.group_id(policy), modes.access_rules(policy)
    dataset_folders.open_staging(run.layout, run.release, modes.dir_mode(policy), gid, rules)
    tree_removal.open_folders(run.data)
    with AdoptedFiles(
        run.data,
        Path(mark.aside),
        file_mode=modes.file_mode(policy),
        gid=gid,
        keep_mtime=policy.mtime == "keep",
        fsync=facts(run.data).durability == "fsync",
        rules=rules,
        note=partial(audits_and_adoptions.note_aside, folder),
        spend=context.spend,
    ) as adopted:
        _Settling(context, run, mark, adopted).all()
    documents.write_adopted_tree(run.folder, mark._replace(settled=True))


def _move(run: Run, mark: AdoptedTree, folder: RunLayout) -> None:
    tree = run.data if documents.stands_in(mark, run.data) else Path(mark.tree)
    if not documents.stands_in(mark, tree):
        raise FailedError(
            "the tree is neither where it was nor in the staging",
            where=mark.tree,
            why=f"no folder of inode {mark.inode} is there or at {run.data}",
            hint=f"move it back to {mark.tree}; where another tree stands there now, `penstock adopt "
            f"{run.dataset} {mark.tree} --seal` compares that one; without a tree, remove "
            f"{run.folder.folder}: `penstock run {run.dataset}` fetches all then",
        )
    audits_and_adoptions.note_tree(folder, mark.tree, str(run.data), os.lstat(tree))
    move_tree(Path(mark.tree), run.data, mark.inode)


class _Row(NamedTuple):
    row: int
    entry: Entry
    reuse: Reuse
    file: File


@dataclass
class _Settling:
    context: Context
    run: Run
    mark: AdoptedTree
    adopted: AdoptedFiles
    # {path: settled giant}, kept since a giant's parts may be in several shards
    giants: dict[str, Settled] = field(default_factory=dict)
    # (path of a shared file, reason why it was copied)
    copied: list[tuple[str, str]] = field(default_factory=list)

    def all(self) -> None:
        folder = RunLayout(Path(self.mark.folder))
        for item in audits_and_adoptions.kept_differences(folder):
            if item.kind in NOT_LISTED or (item.kind in TO_FETCH and item.kind != "missing"):
                self.adopted.set_aside(item.path)
        files = _Files(good_files(self.mark))
        for shard in self.run.plan.shards:
            self._shard(shard, files)
        if self.copied:
            first, why = self.copied[0]
            count = human.counted(len(self.copied), "file")
            text = (
                f"copied on the target, and moved aside unchanged: {count}, such as {in_quotes(first)}: {why}"
            )
            self.context.emit(run_steps.Noted(self.run.dataset, "copy", text))

    def _own(self, row: _Row, settled: Settled) -> Settled:
        """Replace a file that another account owns, or that has further links, by a copy, which verify reads
        back."""
        path, surveyed = row.entry.path, row.file.rows[0]
        inode = self.adopted.own(path, inode=surveyed.inode, size=row.entry.size)
        if not inode:
            return settled
        self.copied.append((path, settled.why))
        done = self.adopted.settle(
            path,
            inode=inode,
            size=row.entry.size,
            mtime_ns=surveyed.mtime_ns,
            ctime_ns=0,
            wanted_ns=row.entry.modified_ns,
        )
        if path in self.giants:
            self.giants[path] = done
        return done

    def _instead(self, path: str, why: str) -> None:
        text = f"{in_quotes(path)} is fetched anew: {why}"
        self.context.emit(run_steps.Warned(self.run.dataset, "copy", text))
        self.adopted.set_aside(path)

    def _shard(self, shard: ShardInfo, files: _Files) -> None:
        journals = self.run.folder.journals(shard.index)
        done = set(journal.replay(journals, shard.digest))
        writer = journal.Journal(
            journals, shard_digest=shard.digest, run=self.run.id, attempt="adopt", host=host_name()
        )
        try:
            for number, rows in enumerate(_grouped(_met(self.run, shard, self.mark, files))):
                self.context.stop.check()
                self.context.assert_held()
                left = [row for row in rows if row.row not in done]
                if left:
                    self._group(shard, number, left, writer)
        finally:
            writer.close()

    def _group(self, shard: ShardInfo, number: int, rows: Sequence[_Row], writer: journal.Journal) -> None:
        files = [list(same) for _, same in groupby(rows, lambda row: row.entry.path)]
        before = (_before(same[0].file) for same in files)
        name = f"{shard.index:05d}-{number:05d}"
        audits_and_adoptions.note_files(RunLayout(Path(self.mark.folder)), name, before)
        with Barrier(self.run.data) as barrier, Calls() as calls:
            settled = calls.each(lambda some: [self._settle(same[0]) for same in some], files)
            settled = [
                self._own(same[0], outcome) if outcome.others else outcome
                for same, outcome in zip(files, settled, strict=True)
            ]
            barrier.wait()
        stands: list[Surveyed] = []
        lines: list[str] = []
        for same, outcome in zip(files, settled, strict=True):
            if outcome.why:
                self._instead(same[0].entry.path, outcome.why)
                continue
            for row in same:
                lines.append(reused_line(row.row, row.reuse))
                if outcome.certain and not audits_and_adoptions.too_old(row.file.rows[0].seen_ns):
                    surveyed = row.file.rows[min(max(row.entry.part, 0), len(row.file.rows) - 1)]
                    stands.append(
                        surveyed._replace(
                            row=row.row, digest=row.reuse.digest, mtime_ns=outcome.mtime_ns,
                            ctime_ns=outcome.ctime_ns, parts=b"",
                        )
                    )  # fmt: skip
        if stands:
            run_tables.put(self.run.folder.survey(shard.index), iter([stands]))
        writer.append("".join(lines).encode())
        writer.sync()

    def _settle(self, row: _Row) -> Settled:
        if row.entry.path in self.giants:
            return self.giants[row.entry.path]
        surveyed = row.file.rows[0]
        settled = self.adopted.settle(
            row.entry.path,
            inode=surveyed.inode,
            size=row.entry.size,
            mtime_ns=surveyed.mtime_ns,
            ctime_ns=surveyed.ctime_ns,
            wanted_ns=row.entry.modified_ns,
        )
        if row.entry.part >= 0:
            self.giants[row.entry.path] = settled
        return settled


def _before(file: File) -> dict[str, object]:
    surveyed = file.rows[0]
    return {
        "path": file.entry.path, "mode": surveyed.mode & 0o7777, "uid": surveyed.uid, "gid": surveyed.gid,
        "mtime_ns": surveyed.mtime_ns,
    }  # fmt: skip


class _Files:
    """Files in the order of their paths. `of` may return a file again: a giant's parts may span shards."""

    def __init__(self, files: Iterator[File]) -> None:
        self._files, self._now = files, next(files, None)

    def of(self, path: str) -> File:
        """Return the file of this path; paths must ascend. Raises FailedError if the file is missing."""
        while self._now is not None and self._now.entry.path != path:
            self._now = next(self._files, None)
        if self._now is None:
            raise FailedError(
                "the comparison of an adopted tree has lost a file",
                where=path,
                hint="compare it again: `penstock adopt`",
            )
        return self._now


def _met(run: Run, shard: ShardInfo, mark: AdoptedTree, files: _Files) -> Iterator[_Row]:
    """Yield the shard's rows that are taken over, each with its file. Shards must come in order."""
    row = -1
    for group in read_shard(run.folder.shard(shard.index)):
        for entry in group:
            row += 1
            if entry.reuse and entry.reuse.staging == mark.key:
                yield _Row(row, entry, entry.reuse, files.of(entry.path))


def _grouped(rows: Iterator[_Row]) -> Iterator[list[_Row]]:
    """Yield the rows in groups of GROUP or more; a giant's parts are in the same group."""
    some: list[_Row] = []
    for row in rows:
        if len(some) >= GROUP and row.entry.path != some[-1].entry.path:
            yield some
            some = []
        some.append(row)
    if some:
        yield some
