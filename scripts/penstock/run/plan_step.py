"""plan: splits the listing into shards (the units that elements copy), balanced and durable, after space,
inodes and quota were checked.

`plan.json` is written last: its presence means that shards and staging (the tree in which the release grows)
exist. If the target has no room, no staging is made, but by then another run's staging for the same release
has been renamed. Two passes over the listing, in bounded memory, count the files and write the shards. The
count is repeated if renamed files were recognised, or if the release to link from cannot be read. A giant is
an object split into parts over several shards.
"""

from __future__ import annotations

import contextlib
import time
from itertools import chain, starmap
from os import fsdecode
from typing import TYPE_CHECKING

from penstock.core import human, run_documents, run_steps
from penstock.core.errors import PenstockError
from penstock.core.layout import DATA
from penstock.core.run_documents import Cut, Load, parts
from penstock.core.run_steps import sentence
from penstock.dataset import (
    documents,
    run_store,
    seals,
    staging_notice,
)
from penstock.fs import small_files, watched_facts
from penstock.jobs import forecast, run_cleanup
from penstock.jobs.dataset_state import holding
from penstock.jobs.forecast import TargetStores, Totals
from penstock.jobs.run_cleanup import drop_stale
from penstock.look.views import run_summary
from penstock.run import adopted_tree, plan_checks, previous_release
from penstock.run.adopted_tree import AdoptedRows
from penstock.run.plan_checks import ArchivedObjects, SourceRecall, SparseFiles
from penstock.run.previous_release import (
    COPY,
    LINK,
    MOST,
    NONE,
    REFLINK,
    RenamedRows,
    ReuseRules,
)
from penstock.run.target_findings import HeldFiles, TakeOver, TargetProbe
from penstock.sources.port import may_be_split
from penstock.tables import json_files
from penstock.tables.run_tables import ShardsWriter, as_columns, as_rows
from penstock.target import dataset_folders, modes, tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from penstock.core.run_documents import PlanInfo, RunInfo, ShardInfo
    from penstock.core.run_steps import CheckResult
    from penstock.core.step_results import PlanResult
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run
    from penstock.jobs.run_cleanup import AbandonedStaging

STEP = "plan"
SHOWN_EVERY = 0.2  # seconds between two reports of progress, at least


def run(context: Context, dataset: str) -> PlanResult:
    """Plan the run that list found or made. Returns the receipt: {dataset, run, release, published, files,
    bytes, giants, unchanged, unchanged_bytes, renamed, taken, taken_bytes, shards (their number), base,
    folders, why}. Raises NoSpaceError with the figures, and PreflightError for files that can never be proven
    as required, before anything moves."""
    run = run_store.open_run(context.layout(dataset), context.run)
    context.emit(run_steps.Started(dataset, STEP, files=run.info.files, bytes=run.info.bytes))
    watched_facts.require_servers(run.layout.root)
    if seals.of_run(run) is not None:
        receipt = _receipt(run, _published_plan(run), published=True)
    else:
        with holding(context, dataset, run.id, STEP):
            plan_checks.check(context, run)
            why = drop_stale(context, run)
            if why:
                context.emit(run_steps.Noted(dataset, STEP, text=f"{why}: it is made anew"))
            if not run.folder.plan.exists():
                _plan(context, run)
            # A run that takes the lock later removes this plan.
            receipt = _receipt(run, run.plan, published=False)
    context.emit(run_steps.Ended(dataset, STEP, receipt))
    return receipt


def _receipt(run: Run, plan: PlanInfo, *, published: bool) -> PlanResult:
    return {
        "dataset": run.dataset,
        "run": run.id,
        "release": run.release,
        "published": published,
        "files": plan.files,
        "bytes": plan.bytes,
        "giants": plan.giants,
        "unchanged": plan.unchanged,
        "unchanged_bytes": plan.unchanged_bytes,
        "renamed": plan.renamed,
        "taken": plan.taken,
        "taken_bytes": plan.taken_bytes,
        "shards": len(plan.shards),
        "base": plan.base,
        "folders": plan.folders,
        "why": list(plan.why),
    }


def _published_plan(run: Run) -> PlanInfo:
    """Return the plan of a published run; if it is unreadable, the counts of the run's description."""
    with contextlib.suppress(PenstockError):
        return run.plan
    info = run.info
    why = (f"release {info.release} is published already",)
    return run_documents.PlanInfo(
        info.run, info.release, None, info.files, info.bytes, 0, 0, 0, (), 0, 0, why
    )


class _Planner:
    def __init__(self, context: Context, run: Run, gid: int | None) -> None:
        self.context, self.run, self.info, self.folder, self.gid = context, run, run.info, run.folder, gid
        self.dataset, self.plan = run.config.dataset, run.config.plan
        self.base = previous_release.none("")
        self.over: TakeOver | AdoptedRows = TakeOver((), run, proven=False)
        self.rules = ReuseRules({}, 0, True, False)
        self.renamed = RenamedRows(self.rules)
        self.stores = TargetStores(run.layout, context.config.target, gid)
        self.sparse = SparseFiles(run, kept=False)
        self.require = run.config.verify.source_checksum == "require"
        self.recall = ""  # a sentence on the data that copying recalls from an archive; "" if it recalls none

    def files(self) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
        """Yield the listing as rows of a shard, with their sizes in bytes. Giants are not yet split."""
        shown, files, size = 0.0, 0, 0
        batches = self.base.files(self.folder.listing, self.over, self.rules, self.renamed)
        for batch in batches:
            self.context.stop.check()
            sizes = batch["size"].to_pylist()
            yield batch, sizes
            files += len(sizes)
            size += sum(sizes)
            if time.monotonic() - shown >= SHOWN_EVERY:
                shown = time.monotonic()
                self.context.emit(run_steps.Progressed(self.info.dataset, STEP, files=files, bytes=size))

    def rows(self, batch: pa.RecordBatch, sizes: list[int]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these files: sequences of whole files, and between them each giant's parts."""
        start = 0
        for index in self._giants(batch, sizes):
            yield batch.slice(start, index - start)
            (giant,) = as_rows(batch.slice(index, 1))
            rows = parts(giant, self.plan.giant_bytes, self.plan.part_bytes)
            yield from as_columns(self.over.parts(rows))
            start = index + 1
        yield batch.slice(start)

    def count(self) -> Totals:
        """Count the files.

        Raises PreflightError if copying would recall more from an archive than is allowed, or would read
        objects that must be restored first.
        """
        self.rules = ReuseRules(
            self.base.sources or {},
            self.plan.giant_bytes,
            self.dataset.permissions.mtime == "keep",
            self.require,
        )
        self.renamed = RenamedRows(self.rules)
        archived = ArchivedObjects(self.run.dataset)
        with SourceRecall(self.run) as recall:
            totals = self._count(recall, archived)
        held = HeldFiles(self.run.layout.release(self.base.release or "") / DATA, self.context.stop.check)
        if self.renamed.match(held.md5):
            archived = ArchivedObjects(self.run.dataset)
            with SourceRecall(self.run) as recall:
                totals = self._count(recall, archived)
            totals.renamed, totals.renamed_bytes = self.renamed.files, self.renamed.bytes
            if self.base.way == LINK:
                totals.copy_on_target(self.renamed.own_sizes)
        if isinstance(self.over, AdoptedRows):
            totals.copy_on_target(self.over.own_sizes)
        recall.check()
        archived.check()
        self.recall = recall.sentence()
        return totals

    def _count(self, recall: SourceRecall, archived: ArchivedObjects) -> Totals:
        totals = Totals(to_place=self.stores.sizes)
        before = b""
        for batch, sizes in self.files():
            recall.add(batch, sizes)
            archived.add(batch, sizes)
            divided = plan_checks.divided(batch, sizes)
            sparse = self.sparse.taking(batch, sizes)
            totals.add(*divided, sparse=[(sizes[index], less) for index, less in sparse.items()])
            if self.base.way == COPY:
                totals.copy_on_target(plan_checks.linked_sizes(batch))
            elif self.base.way == REFLINK:
                totals.own_files += divided.linked.files
            for giant in (giants := self._giants(batch, sizes)):
                totals.add_giant(self._lying(batch, giant), sparse=giant in sparse)
            totals.giants += len(giants)
            for rows in self.rows(batch, sizes):
                totals.rows += rows.num_rows
                totals.cost += plan_checks.cost(rows)
            for folder in plan_checks.folders(batch):
                totals.folders += _new_folders(before, folder)
                before = folder
        return totals

    def shards(self, totals: Totals, wanted: int) -> list[ShardInfo]:
        if self.folder.shard(0).parent.exists():
            tree_removal.remove_tree(self.folder.shard(0).parent, self.context.spend)
        cut = Cut(totals.cost, wanted)
        with ShardsWriter(self.folder.shard, cut) as shards:
            shards.at(0)  # an empty listing has a shard, too
            for rows in chain.from_iterable(starmap(self.rows, self.files())):
                for index, start, end in _runs(cut, rows):
                    shards.at(index).add_columns(rows.slice(start, end - start))
            return shards.close()

    def _lying(self, batch: pa.RecordBatch, index: int) -> int:
        (giant,) = as_rows(batch.slice(index, 1))
        rows = self.over.parts(parts(giant, self.plan.giant_bytes, self.plan.part_bytes))
        return sum(row.length for row in rows if row.reuse)

    def _giants(self, batch: pa.RecordBatch, sizes: list[int]) -> list[int]:
        """Return the indices of the files to split. No linked file is split. A file is split only if its
        token pins it, since without that its parts could be of different versions."""
        least = max(self.plan.giant_bytes, self.plan.part_bytes + 1)
        if max(sizes, default=0) < least:
            return []
        return [
            index
            for index, size in enumerate(sizes)
            if size >= least
            and may_be_split(
                self.info.sources[batch["source"][index].as_py()], fsdecode(batch["token"][index].as_py())
            )
        ]


def _runs(cut: Cut, rows: pa.RecordBatch) -> list[tuple[int, int, int]]:
    """Return (shard, start, end) for each sequence of rows that are in the same shard."""
    shard = cut.together(plan_checks.cost(rows))
    return cut.runs(plan_checks.each_cost(rows)) if shard is None else [(shard, 0, rows.num_rows)]


def _plan(context: Context, run: Run) -> None:
    layout, info = run.layout, run.info
    gid = modes.group_id(run.config.dataset.permissions)
    planner = _Planner(context, run, gid)
    run_cleanup.make_way(context, run)
    tried = TargetProbe(run)
    tried.check()
    planner.sparse = SparseFiles(run, kept=tried.holes)
    for result in tried.results:
        said = run_steps.Warned if result.verdict == "warning" else run_steps.Noted
        context.emit(said(info.dataset, STEP, text=sentence(result)))
    mark = documents.read_adopted_tree(run.folder)
    if mark is not None:
        planner.base = previous_release.none(f"the tree {mark.tree} is adopted")
        planner.over = AdoptedRows(mark, run, reflinks=tried.reflinks)
    else:
        planner.base = previous_release.find(run, tried, copy_unchanged=context.copy_unchanged)
    if mark is None and planner.plan.reuse != NONE:
        stagings = run_cleanup.find(context, run)
        distrust = bool(run_store.replaced(layout))
        planner.over = TakeOver(stagings, run, proven=planner.require, distrust=distrust)
    try:
        totals = planner.count()
    except previous_release.UnreadableError as error:
        planner.base = previous_release.none(str(error))
        totals = planner.count()
    plan_checks.refuse_doubling(context, run, planner.base, totals)
    stores = planner.stores
    enough, checks = forecast.take(context, layout, layout.under_way, STEP, totals, stores)
    _make(context, planner, totals, tried, enough, checks)
    # The staging folder may have got another striping than requested.
    staging_notice.restate(layout, layout.under_way, pool=stores.pool, chunk_files=stores.chunk_files)


def _make(
    context: Context,
    planner: _Planner,
    totals: Totals,
    tried: TargetProbe,
    enough: str,
    checks: list[CheckResult],
) -> None:
    run, info, folder, layout = planner.run, planner.info, planner.folder, planner.run.layout
    policy, gid = planner.dataset.permissions, planner.gid
    rules = modes.access_rules(policy)
    slots = context.cluster.slots("copy")
    load = Load(totals.cost, totals.to_copy[1], totals.rows)
    decision = forecast.shards(context, layout, run.config, load, "copy", "verify")
    if links := _links_sentence(info):
        context.emit(run_steps.Noted(info.dataset, STEP, text=links))
    run_cleanup.clear_own(context, run)
    tried.keep()
    used = [staging for staging in planner.over.stagings if staging.key in planner.over.used]
    for staging in used:
        run_cleanup.take(staging, info.run)
    data = dataset_folders.open_staging(layout, info.release, policy.dir_mode, gid, rules)
    try:
        checks += planner.stores.stripe(data, totals)
    except PenstockError:
        tree_removal.remove_tree(data.parent, context.spend)
        raise
    _warn(context, info, checks)
    for name in json_files.read_empty_folders(folder.empty_folders):
        small_files.make_dirs(data / name)
    shards = planner.shards(totals, decision.shards)
    takes = forecast.copy_time(context.config, layout, totals, min(slots, len(shards)), tried.rates)
    if totals.to_copy[0]:
        context.emit(run_steps.Noted(info.dataset, STEP, text=takes))
    carries, linked = previous_release.decide(run, planner.base, totals, stable=tried.keeps_inodes)
    if linked:
        context.emit(run_steps.Noted(info.dataset, STEP, text=linked))
    plan = run_documents.PlanInfo(
        run=info.run,
        release=info.release,
        base=planner.base.release if totals.unchanged else None,
        way=planner.base.way if totals.unchanged else LINK,
        files=totals.files,
        bytes=totals.bytes,
        giants=totals.giants,
        unchanged=totals.unchanged,
        unchanged_bytes=totals.unchanged_bytes,
        renamed=totals.renamed,
        renamed_bytes=totals.renamed_bytes,
        shards=tuple(shards),
        part_bytes=planner.plan.part_bytes,
        folders=totals.folders,
        taken=totals.taken,
        taken_bytes=totals.taken_bytes,
        stagings={staging.key: staging.name for staging in used},
        staging_inodes={staging.key: staging.inode for staging in used},
        carries=carries,
        giants_taken=[[run, path, str(size)] for path, (run, size, _) in sorted(planner.over.giants.items())],
        why=(
            f"{human.counted(len(shards), 'shard')}: {decision.why}",
            _adopted_sentence(planner.over, totals) or _reuse_sentence(planner.base, totals, tried.link_cost),
            *([text] if (text := _renamed_sentence(planner, totals)) else []),
            *([_taken_sentence(totals, used)] if used else []),
            *([links] if links else []),
            *([planner.recall] if planner.recall else []),
            *tried.sentences(),
            f"{takes}; verify reads it once more",
            *([linked] if linked else []),
            enough,
            *map(sentence, checks),
        ),
    )
    documents.write(run_documents.PLAN, folder.plan, plan)


def _warn(context: Context, info: RunInfo, results: Iterable[CheckResult]) -> None:
    for result in results:
        if result.verdict == "warning":
            context.emit(run_steps.Warned(info.dataset, STEP, text=sentence(result)))


def _reuse_sentence(base: previous_release.BaseRelease, totals: Totals, link_cost: str) -> str:
    if base.release is None:
        return f"everything is copied: {base.why}"
    linked = "are linked" + (f" (calls on a linked file take here: {link_cost})" if link_cost else "")
    are = {
        REFLINK: "share their blocks with it (reflinks)",
        COPY: f"are copied on the target: {human.size(totals.own_bytes)} are stored once more",
    }
    return (
        f"{totals.unchanged:,} of {human.counted(totals.files, 'file')} are unchanged since release "
        f"{base.release} and {are.get(base.way, linked)}"
    )


def _adopted_sentence(over: TakeOver | AdoptedRows, totals: Totals) -> str:
    return adopted_tree.sentence(over.mark, totals.taken) if isinstance(over, AdoptedRows) else ""


def _renamed_sentence(planner: _Planner, totals: Totals) -> str:
    if planner.renamed.too_many and totals.to_copy[0]:
        return f"no renamed files are looked for: more than {MOST:,} are new, or left over of the release"
    if not totals.renamed:
        return ""
    text = (
        f"{human.counted(totals.renamed, 'file')} of them, {human.size(totals.renamed_bytes)}, lie there "
        "under another name and are known by their checksums"
    )
    own = planner.renamed.own_sizes if planner.base.way == LINK else []
    if own:
        text += (
            f"; {human.counted(len(own), 'file')}, {human.size(sum(own))}, of another time are copied there"
        )
    return text


def _taken_sentence(totals: Totals, used: Sequence[AbandonedStaging]) -> str:
    runs = ", ".join(f"run {staging.key} ({staging.name})" for staging in used)
    whole = human.counted(totals.taken, "file")
    return (
        f"{whole}, {human.size(totals.taken_bytes)}, taken over from what did not end: {runs}; they are read "
        "back again"
    )


def _links_sentence(info: RunInfo) -> str:
    text = run_summary.hard_links(info.hard_links)
    return text and f"hard links of the source become files of their own: {text}"


def _new_folders(before: bytes, folder: bytes) -> int:
    """Return how many folders `folder` adds to `before` and the folders above it, in byte order."""
    if not folder:
        return 0
    mine, theirs = folder.split(b"/"), before.split(b"/") if before else []
    common = 0
    for own_name, their_name in zip(mine, theirs, strict=False):
        if own_name != their_name:
            break
        common += 1
    return len(mine) - common
