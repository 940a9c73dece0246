"""The shards of a comparison, made from a listing. Also the walk over tree, listing and survey, which finds
differences, and files that were touched since they were read.
"""

from __future__ import annotations

import os
import stat
from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import run_documents
from penstock.core.errors import IntegrityError
from penstock.core.findings import (
    AWAY,
    CHECKSUM,
    OTHER,
    READ,
    SAME,
    SIZE,
    SOURCE,
    UNREAD,
    Difference,
)
from penstock.core.run_documents import FILE_COST, Load, parts
from penstock.dataset import documents
from penstock.engine.checksums import COMBINABLE, listed
from penstock.fs.path_walk import Cursor
from penstock.jobs import array_job, audits_and_adoptions
from penstock.jobs.audits_and_adoptions import too_old
from penstock.run import adopted_tree
from penstock.sources.port import may_be_split
from penstock.tables.json_files import KeptFolders
from penstock.tables.run_tables import SHARD_FORM, read_listing
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from penstock.config.settings import PlanConfig
    from penstock.core.dataset_documents import Adoption
    from penstock.core.layout import RunLayout
    from penstock.core.model import Entry, Surveyed
    from penstock.core.run_documents import PlanInfo
    from penstock.dataset.context import Context
    from penstock.fs.path_walk import WalkedPath
    from penstock.fs.tree import Looked
    from penstock.run.adopted_tree import File
    from penstock.tables.run_tables import ShardsWriter


def make(
    context: Context,
    folder: RunLayout,
    adoption: Adoption,
    sources: Sequence[str],
    places: Iterable[Path],
) -> None:
    """Write the shards, then `plan.json`. An existing plan stays. `places` is as in `mark_differed`."""
    if folder.plan.exists():
        return
    if (survey := folder.survey(0).parent).exists():
        tree_removal.remove_tree(survey, context.spend)
    made = array_job.cut(
        context,
        context.layout(adoption.dataset),
        folder,
        "adopt",
        Load(adoption.files * FILE_COST + adoption.bytes, adoption.bytes, adoption.files),
        partial(_write, context, folder, sources),
        job=adoption.id,
        part_bytes=context.config.plan.part_bytes,
        form=SHARD_FORM,
    )
    mark_differed(folder, made, adoption, places)
    documents.write(run_documents.PLAN, folder.plan, made)


def mark_differed(folder: RunLayout, plan: PlanInfo, adoption: Adoption, places: Iterable[Path]) -> None:
    """Mark each file that differed in another comparison of the tree, with any listing of the source, so that
    its bytes are compared. `places` are the folders of comparisons. Durable on return."""
    paths: set[str] = set()
    for earlier in audits_and_adoptions.adoptions_of_tree(adoption, places):
        theirs = documents.load(run_documents.PLAN, earlier.plan)
        paths |= adopted_tree.differed(earlier, theirs)
        if audits_and_adoptions.differences(earlier).exists():
            paths.update(
                item.path for item in audits_and_adoptions.kept_differences(earlier) if item.kind == "content"
            )
    adopted_tree.mark_differed(folder, plan, paths)


def _write(context: Context, folder: RunLayout, sources: Sequence[str], shards: ShardsWriter) -> None:
    shards.at(0)  # an empty listing also has a shard
    for entries in read_listing(folder.listing):
        context.stop.check()
        files = list(_rows(entries, context.config.plan, sources))
        for shard, start, end in shards.runs([FILE_COST + row.length for row in files]):
            shard.add(files[start:end])


def _rows(entries: Sequence[Entry], limits: PlanConfig, sources: Sequence[str]) -> Iterator[Entry]:
    """Yield a row for each file, and for each part of a giant. A giant is one row if the listing states a
    checksum that its parts cannot prove together."""
    least = max(limits.giant_bytes, limits.part_bytes + 1)
    for entry in entries:
        whole = any(stated.kind == "full" and stated.algorithm not in COMBINABLE for stated in listed(entry))
        if entry.size < least or whole or not may_be_split(sources[entry.source], entry.token):
            yield entry
        else:
            yield from parts(entry, limits.giant_bytes, limits.part_bytes)


# The walk over tree, listing and survey, which finds differences and files touched since they were read.
#
# It makes a single pass over all three, in the order of the paths. Memory grows only with stale rows. A file
# counts as compared if inode, size, mtime and ctime are unchanged since it was read.

SECOND = 10**9


class Proven(NamedTuple):
    how: str  # one of `findings.PROOFS`
    grade: str  # one of `core.grades.SOURCE_GRADES`


class ClosingRules(NamedTuple):
    """The rules for judging the tree's content, listed or not."""

    wants: Callable[[str], bool]  # returns whether the dataset's `include` and `exclude` accept a path
    links_left_out: bool  # whether the listing leaves out links and special files
    times: bool  # whether the listing has files' times, so that other times are reported
    read_source: bool  # whether to read files at the source of which only the size was compared
    last: bool  # whether a touched file counts as moving from now on, since it was read often enough


class ClosingWalk:
    """One walk. Call `differences` once, and consume its results to the end; the totals are valid after
    that."""

    def __init__(
        self,
        tree: Path,
        rules: ClosingRules,
        judge: Callable[[File], Proven],
        folders: Iterable[str] = (),
        *,
        again: bool = False,
        since: float = 0.0,
        folder: Callable[[WalkedPath], None] = lambda _: None,
    ) -> None:
        """`judge` returns a giant's proof by its parts. Raises IntegrityError if they contradict the source.

        `folders` are empty folders that the dataset keeps. `again` means that all rows that differ, or are
        too old, are stale. `since` is in seconds since the epoch. `folder` is called with each folder of the
        tree.
        """
        self._path, self._rules, self._judge, self._again = tree, rules, judge, again
        self._folder = folder
        self._since = int(since * SECOND)
        self._tree = Cursor(tree, unreadable=self._unreadable)
        self._kept = KeptFolders(folders)
        self._dark: list[Difference] = []
        self._unlisted = ""  # the last of the outermost folders that contain no listed file
        self.stale: dict[int, list[Surveyed]] = defaultdict(list)  # {shard: rows to read again}
        self.same: Counter[Proven] = Counter()
        self.same_bytes: Counter[Proven] = Counter()
        self.methods: Counter[str] = Counter()  # {how caches were bypassed: number of rows that are the same}
        self.earlier = 0  # number of rows that are the same and were read before `since`

    def differences(self, files: Iterator[list[File]]) -> Iterator[Difference]:
        for some in files:
            yield from self._group(some)
        for item in self._tree.rest():
            yield from self._newly_dark()
            yield from self._beside(item, "")
        yield from self._newly_dark()
        for folder in self._kept.missing():
            yield Difference("missing", f"{folder}/", 0, "an empty folder of the source")

    def _group(self, some: Sequence[File]) -> Iterator[Difference]:
        paths = [file.entry.path for file in some]
        plain = list(map(self._is_plain, some))
        apart: set[int] = set()
        for index, item, own in self._tree.against(paths, partial(self._as_read, some, plain)):
            yield from self._newly_dark()
            if not own:
                if item is not None:
                    yield from self._beside(item, paths[index])
                continue
            for difference in self._own(some[index], item):
                if difference is _STALE:
                    apart.add(index)
                    continue
                if difference.kind != "time":
                    apart.add(index)
                yield difference
        for index, file in enumerate(some):
            if index not in apart:
                self._count(file)

    def _is_plain(self, file: File) -> bool:
        """Return whether a file that is unchanged since its reading needs no report."""
        if len(file.rows) > 1:
            return False
        (surveyed,) = file.rows
        if surveyed.state != SAME or (self._again and too_old(surveyed.seen_ns)):
            return False
        return surveyed.how != SIZE or not (self._rules.read_source or self._other_time(file))

    def _other_time(self, file: File) -> bool:
        if not self._rules.times:
            return False
        return file.entry.modified_ns // SECOND != file.rows[0].mtime_ns // SECOND

    def _as_read(self, some: Sequence[File], plain: Sequence[bool], looked: Looked, start: int) -> bool:
        stop = start + len(looked.mode)
        if not all(plain[start:stop]):
            return False
        files = some[start:stop]
        rows = [file.rows[0] for file in files]
        return (
            looked.size == [file.entry.size for file in files]
            and looked.mtime_ns == [row.mtime_ns for row in rows]
            and looked.ctime_ns == [row.ctime_ns for row in rows]
            and looked.inode == [row.inode for row in rows]
            and all(map(stat.S_ISREG, set(looked.mode)))
        )

    def _own(self, file: File, item: WalkedPath | None) -> Iterator[Difference]:
        """Yield the differences of a listed file; `_STALE` if it must be read again."""
        entry = file.entry
        states = {row.state for row in file.rows}
        if item is None:
            yield self._absent(file, states)
        elif item.kind != "file":
            yield _of(
                entry, "replaced", f"a {'special file' if item.kind == 'other' else item.kind} stands there"
            )
        elif item.size != entry.size:
            yield _of(entry, "size", f"it has {item.size} bytes, not {entry.size}")
        elif states == {SAME} and all(
            (row.inode, row.mtime_ns, row.ctime_ns) == (item.inode, item.mtime_ns, item.ctime_ns)
            for row in file.rows
        ):
            yield from self._as_it_was(file)
        elif self._again:
            yield self._is_stale(file)
        elif OTHER in states:
            row = next(row for row in file.rows if row.state == OTHER)
            yield _of(entry, "content", row.why, row.how)
        elif states - {SAME} and states <= {SAME, UNREAD, SOURCE, AWAY}:
            row = next(row for row in file.rows if row.state != SAME)
            yield _of(entry, row.state, row.why)
        elif self._rules.last:
            yield _of(entry, "moving", "it was written to or touched whenever it was read")
        else:
            yield self._is_stale(file)

    def _as_it_was(self, file: File) -> Iterator[Difference]:
        if self._again and any(too_old(row.seen_ns) for row in file.rows):
            yield self._is_stale(file)
            return
        if self._rules.read_source and any(row.how == SIZE for row in file.rows):
            yield self._is_stale(file)
            return
        if len(file.rows) > 1:
            try:
                self._judge(file)
            except IntegrityError as error:
                yield _of(file.entry, "content", error.reason, CHECKSUM)
                return
        if {row.how for row in file.rows} == {SIZE} and self._other_time(file):
            yield _of(file.entry, "time", "same size, another time; its bytes were not compared")

    def _is_stale(self, file: File) -> Difference:
        differed = self._differed(file)
        for shard, row in file.places:
            self.stale[shard].append(adopted_tree.stale(row, differed=differed))
        return _STALE

    def _differed(self, file: File) -> bool:
        """Return whether the file's bytes differed at the last reading. If so, an equal size proves nothing:
        only equal bytes make the file the same again."""
        if any(row.state != SAME and row.how for row in file.rows):
            return True
        if len(file.rows) == 1 or any(row.state != SAME for row in file.rows):
            return False
        try:
            self._judge(file)
        except IntegrityError:
            return True
        return False

    def _absent(self, file: File, states: set[str]) -> Difference:
        entry = file.entry
        try:
            mode = os.lstat(self._path / entry.path).st_mode
        except PermissionError as error:
            return _of(entry, UNREAD, error.strerror or "")
        except OSError:
            return _of(entry, "missing", "it is not there")
        if stat.S_ISDIR(mode):
            self._unlisted = entry.path
            return _of(entry, "replaced", "a folder stands there")
        if states == {UNREAD}:
            return _of(entry, UNREAD, file.rows[0].why)
        return _of(entry, "moving", "it came while the tree was walked")

    def _beside(self, item: WalkedPath, path: str) -> Iterator[Difference]:
        """Yield the difference of an unlisted item of the tree. `path` is that of the next listed file."""
        if item.kind == "dir":
            self._folder(item)
            if self._kept.meet(item.path) or item.holds(path):
                return
            if not f"{item.path}/".startswith(f"{self._unlisted}/") or not self._unlisted:
                self._unlisted = item.path
                yield Difference("folder", f"{item.path}/", 0, "no file of the source lies in it")
        elif not self._rules.wants(item.path):
            yield Difference("excluded", item.path, item.size, "`include` and `exclude` leave it out")
        elif item.kind == "file":
            yield Difference("extra", item.path, item.size, "the source does not have it")
        elif self._rules.links_left_out:
            yield Difference(
                "unlinked", item.path, 0, "links and special files are left out at the source, too"
            )
        elif item.kind == "link":
            yield Difference("link", item.path, 0, "a symbolic link that the source does not have")
        else:
            yield Difference("special", item.path, 0, "a FIFO, socket or device")

    def _unreadable(self, folder: str, error: OSError) -> None:
        why = f"the folder cannot be read: {os.strerror(error.errno or 0)}"
        self._dark.append(Difference(UNREAD, f"{folder}/", 0, why))

    def _newly_dark(self) -> Iterator[Difference]:
        while self._dark:
            yield self._dark.pop(0)

    def _count(self, file: File) -> None:
        row = file.rows[0]
        proven = self._judge(file) if len(file.rows) > 1 else Proven(row.how, row.source_grade)
        self.same[proven] += 1
        self.same_bytes[proven] += file.entry.size
        self.methods.update(surveyed.method for surveyed in file.rows)
        self.earlier += sum(surveyed.seen_ns < self._since for surveyed in file.rows)


_STALE = Difference("moving", "", 0, "")


def _of(entry: Entry, kind: str, why: str, how: str = "") -> Difference:
    return Difference(kind, entry.path, entry.size, why, how)


def proven_by(rows: Sequence[str]) -> str:
    """Return the weakest kind of comparison among a giant's parts."""
    return SIZE if SIZE in rows else READ if READ in rows else CHECKSUM
