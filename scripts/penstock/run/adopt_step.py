"""adopt: compare a tree that penstock did not write with a dataset's source; resumable.

Elements of an array read the tree, and, on request, the source. The tree is not changed, and nothing is
recalled from an archive or a tier beyond `audit.recall`. The same command continues a stopped comparison. A
file counts as the same only if it equals the source, was read in full, and did not change until the
comparison ended. The result also states how it was compared.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config import serialization
from penstock.core import run_documents, run_steps, typed_json
from penstock.core.dataset_documents import Adoption
from penstock.core.errors import FindingsError, PreflightError
from penstock.core.findings import (
    CHECKSUM,
    KINDS,
    SIZE,
    TOLD,
)
from penstock.core.grades import SIZE_ONLY
from penstock.core.layout import EMPTY_FOLDERS, RunLayout
from penstock.dataset import documents, receipts, staging_notice
from penstock.engine.checksums import combine, compose, judge_giant, listed
from penstock.fs import small_files
from penstock.fs.safe_open import storage_error
from penstock.jobs import array_job, audits_and_adoptions
from penstock.jobs.array_runner import run_array
from penstock.jobs.array_supervision import started_event
from penstock.jobs.dataset_state import lock_of
from penstock.jobs.forecast import element_time
from penstock.listing.collection import folder_of, gather, open_sources, ordered
from penstock.listing.evidence import GiantChecksums
from penstock.listing.listers import reach
from penstock.listing.outside_lists import Filter
from penstock.run import adopt_seal, adopted_tree, closing_walk
from penstock.run.closing_walk import (
    ClosingRules,
    ClosingWalk,
    Proven,
    proven_by,
)
from penstock.tables import json_files
from penstock.target import dataset_folders, tree_removal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.config.settings import DatasetConfig
    from penstock.core.findings import Difference
    from penstock.core.layout import DatasetLayout
    from penstock.core.model import Surveyed
    from penstock.core.step_results import AdoptionResult, AmountJson
    from penstock.dataset.context import Context
    from penstock.fs.path_walk import WalkedPath
    from penstock.run.adopted_tree import File
    from penstock.sources.port import Source

STEP = "adopt"
# name of the lock that lets one comparison of a dataset work at a time; other steps do not wait for it
LOCK = "adopt.lock"
SHOWN = 1000  # number of differences in a result, at most; `differences.jsonl` has all of them
ROUNDS = 3  # number of readings of a file that was touched meanwhile, before it counts as moving


@dataclass(frozen=True)
class Request:
    tree: Path
    read_source: bool = False  # whether to read the source's files if the source states no checksum
    # whether the tree will become a release; the comparison's state is then kept in the dataset's own folder
    seal: bool = False


def run(context: Context, dataset: str, request: Request) -> AdoptionResult:
    """Compare the tree with the dataset's source; the result's `status` is SAME, PARTLY or DIFFERS.

    Raises PreflightError if tree or source cannot be read, LockedError if another comparison of the dataset
    is at work, FailedError. After an InterruptedRunError the same command continues.
    """
    tree, status = _tree(request.tree)
    if request.seal:
        adopt_seal.prepare(context, dataset, tree)
    layout = _layout(context, dataset)
    config = context.dataset(dataset)
    sources = open_sources(config)
    for source_config, source in zip(config.sources, sources, strict=True):
        _apart(tree, source)
        reach(source_config, source, context.waiting(dataset, STEP, source.url))
        _not_the_same(tree, source)
    context.emit(run_steps.Started(dataset, STEP))
    small_files.make_dirs(layout.adoptions)
    with lock_of(context, layout, "", STEP, LOCK):
        began = time.time()
        folder, adoption = _meet(context, config, layout, sources, tree, status, request)
        comparison = _Comparison(context, config, layout, folder, adoption, sources)
        result = comparison.run(began)
        audits_and_adoptions.tidy_adoptions(layout, adoption.id)
    context.emit(run_steps.Ended(dataset, STEP, {k: v for k, v in result.items() if k != "differences"}))
    return result


def _layout(context: Context, dataset: str) -> DatasetLayout:
    """Return the dataset's own state if this account stages it, otherwise a folder of this account."""
    layout = context.layout(dataset)
    if os.path.lexists(layout.folder) and dataset_folders.owns(layout):
        dataset_folders.check_owner(layout)
        if layout.state.is_dir():
            return layout
    own = staging_notice.state_beside(layout, "this comparison")
    context.emit(run_steps.Noted(dataset, STEP, f"what is seen is kept in {own.adoptions}"))
    return own


def _tree(path: Path) -> tuple[Path, os.stat_result]:
    tree = Path(os.path.realpath(path))
    try:
        status = tree.stat()
        os.close(os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        raise PreflightError(
            "the tree cannot be read",
            where=str(path),
            why=str(error.strerror),
            hint="name its top folder: what lies in it is compared with the source",
        ) from None
    return tree, status


def _apart(tree: Path, source: Source) -> None:
    """Raise PreflightError if tree and source are the same, or one contains the other."""
    folder = folder_of(source)
    if folder is None:
        return
    mine, theirs = str(tree), os.path.realpath(folder)
    if os.path.commonpath([mine, theirs]) in (mine, theirs):
        raise PreflightError(
            "the tree and the source lie in one another",
            where=source.url,
            why=f"the tree is {mine}",
            hint="name the copy as the tree, and the original as the dataset's source",
        )


def _not_the_same(tree: Path, source: Source) -> None:
    """Raise the error of `_apart` also if a bind mount shows one folder at two paths."""
    folder = folder_of(source)
    if folder is None:
        return

    def with_above(path: Path) -> list[tuple[int, int]]:
        stats = [folder.stat() for folder in (path, *path.parents)]
        return [(status.st_dev, status.st_ino) for status in stats]

    mine, theirs = with_above(tree), with_above(Path(os.path.realpath(folder)))
    if mine[0] in theirs or theirs[0] in mine:
        raise PreflightError(
            "the tree and the source are one folder, by two paths",
            where=source.url,
            why=f"the tree is {tree}, of the same device and inode, or one lies in the other",
            hint="name the copy as the tree, and the original as the dataset's source",
        )


def _places(layout: DatasetLayout) -> set[Path]:
    return {layout.adoptions, staging_notice.own_layout(layout).adoptions}


def _meet(
    context: Context,
    config: DatasetConfig,
    layout: DatasetLayout,
    sources: list[Source],
    tree: Path,
    status: os.stat_result,
    request: Request,
) -> tuple[RunLayout, Adoption]:
    spool = layout.adoptions / f"{audits_and_adoptions.NEW}{secrets.token_hex(8)}"
    try:
        os.mkdir(spool, 0o700)
        context.emit(run_steps.Started(layout.dataset, "list"))
        gathered = gather(context, config, ordered(config, sources), spool / "listing.parquet")
        listed_now = {"files": gathered.files, "bytes": gathered.bytes}
        context.emit(run_steps.Ended(layout.dataset, "list", listed_now))
        if gathered.empty_folders:
            json_files.write_empty_folders(spool / EMPTY_FOLDERS, gathered.empty_folders)
        named = audits_and_adoptions.adoption_identity(tree, status, gathered.digest, context.config.plan)
        adoption = Adoption(
            named,
            layout.dataset,
            str(tree),
            status.st_dev,
            status.st_ino,
            f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            gathered.digest,
            gathered.files,
            gathered.bytes,
            gathered.scanned,
            dict(gathered.ignored),
            request.read_source,
            context.config.target.filesystem,
            context.config.audit.recall,
        )
        folder = adoption.layout(layout)
        if audits_and_adoptions.description(folder).exists():
            created = audits_and_adoptions.described_adoption(folder).created
            adoption = adoption._replace(created=created)
            context.emit(
                run_steps.Noted(layout.dataset, STEP, f"going on with comparison {named}, begun {created}")
            )
        else:
            if folder.folder.exists():
                tree_removal.remove_tree(folder.folder, context.spend)
            if layout.state_root == context.config.target.state_root:
                theirs, mine = adoption.layout(staging_notice.own_layout(layout)), RunLayout(spool)
                if audits_and_adoptions.bring_adoption(theirs, mine):
                    plan = documents.load(run_documents.PLAN, mine.plan)
                    closing_walk.mark_differed(mine, plan, adoption, _places(layout))
            small_files.rename(spool, folder.folder)
        audits_and_adoptions.describe_adoption(folder, adoption)
    except OSError as error:
        raise storage_error(error, "the comparison's state cannot be kept", str(layout.adoptions)) from error
    finally:
        if spool.exists():
            tree_removal.remove_tree(spool, context.spend)
    return folder, adoption


class _Comparison:
    def __init__(
        self,
        context: Context,
        config: DatasetConfig,
        layout: DatasetLayout,
        folder: RunLayout,
        adoption: Adoption,
        sources: Sequence[Source],
    ) -> None:
        self._context, self._config = context, config
        self._folder, self._adoption = folder, adoption
        self._tree = Path(adoption.tree)
        self._urls = [source.url for source in sources]
        self._run = array_job.describe(
            layout,
            folder,
            adoption.id,
            "",
            created=adoption.created,
            listing=adoption.listing,
            counts=(adoption.files, adoption.bytes, adoption.scanned),
            config=serialization.freeze(context.config, config),
            ignored=adoption.ignored,
            sources=self._urls,
        )
        closing_walk.make(context, folder, adoption, self._urls, _places(layout))
        self._checksums = GiantChecksums(context, self._run)
        # {(path of a giant, proofs of its parts): the giant's proof}; the parts' proofs change if a touched
        # file is read again
        self._judged: dict[tuple[str, tuple[str, ...]], Proven] = {}

    def run(self, began: float) -> AdoptionResult:
        if self._folder.result.exists():
            # An earlier comparison was finished, so only files that may have changed since then are read.
            again = self._walk(again=True, last=False, since=began)
            for _ in again.differences(adopted_tree.read(self._folder, self._run.plan)):
                self._context.stop.check()
            self._folder.result.unlink()
            self._reread(again.stale)
        run, plan = self._run, self._run.plan
        rows = sum(shard.rows for shard in plan.shards)
        self._context.emit(started_event(self._context, run, STEP, rows))
        held, expected = receipts.held(run, STEP), element_time(run.layout, run.shards, copies=False)
        for attempt in range(ROUNDS + 1):
            run_array(self._context, run.dataset, run.folder, STEP, run.indices, held, expected=expected)
            folders = audits_and_adoptions.FolderList(self._folder)
            try:
                walk = self._walk(again=False, last=attempt == ROUNDS, since=began, folder=folders.add)
                counted = _Counted()
                deviations = walk.differences(adopted_tree.read(self._folder, self._run.plan))
                audits_and_adoptions.keep_differences(
                    self._folder, counted.pass_on(deviations, self._context)
                )
                folders.close()
            except BaseException:
                folders.abandon()
                raise
            if not walk.stale:
                break
            rows = sum(map(len, walk.stale.values()))
            text = f"{rows:,} files were touched since they were read, and are read again"
            self._context.emit(run_steps.Warned(self._adoption.dataset, STEP, text))
            self._reread(walk.stale)
        return self._close(walk, counted, began)

    def _reread(self, stale: dict[int, list[Surveyed]]) -> None:
        adopted_tree.mark_stale(self._folder, stale)
        for shard in stale:
            receipts.drop(self._folder.receipt(STEP, shard))

    def _walk(
        self, *, again: bool, last: bool, since: float, folder: Callable[[WalkedPath], None] = lambda _: None
    ) -> ClosingWalk:
        config, urls = self._config, self._urls
        folders = self._run.folder.empty_folders
        rules = ClosingRules(
            wants=_wants(config),
            links_left_out=bool(self._adoption.ignored.get("links")),
            times=all(url.startswith("file://") for url in urls),
            read_source=self._adoption.read_source,
            last=last,
        )
        kept = json_files.read_empty_folders(folders) if folders.exists() else ()
        return ClosingWalk(self._tree, rules, self._judge, kept, again=again, since=since, folder=folder)

    def _judge(self, file: File) -> Proven:
        """Return the proof that a giant's parts give together. Raises IntegrityError on a contradiction."""
        entry, how = file.entry, proven_by([row.how for row in file.rows])
        if how != CHECKSUM:
            return Proven(how, SIZE_ONLY)
        proofs = tuple(row.source_proof for row in file.rows)
        judged = self._judged.get((entry.path, proofs))
        if judged is None:
            lengths = [entry.length] * (len(file.rows) - 1)
            lengths.append(entry.size - sum(lengths))
            offsets = [entry.length * number for number in range(len(proofs))]
            together = combine(zip(proofs, lengths, strict=True)) or compose(
                zip(proofs, offsets, lengths, strict=True)
            )
            grade = SIZE_ONLY
            if together is not None:
                whole = entry._replace(part=-1, offset=0, length=entry.size)
                checksums = (*self._checksums(whole), *listed(whole))
                grade, _ = judge_giant(entry.key, [together], checksums, entry.token)
            judged = Proven(CHECKSUM if grade != SIZE_ONLY else SIZE, grade)
            self._judged[entry.path, proofs] = judged
        return judged

    def _close(self, walk: ClosingWalk, counted: _Counted, began: float) -> AdoptionResult:
        adoption = self._adoption
        differs = any(kind not in TOLD for kind in counted.files)
        by_size = any(proven.how == SIZE and walk.same_bytes[proven] for proven in walk.same)
        partly = by_size or "away" in counted.files
        result: AdoptionResult = {
            "dataset": adoption.dataset,
            "tree": adoption.tree,
            "adoption": adoption.id,
            "status": "DIFFERS" if differs else "PARTLY" if partly else "SAME",
            "same": [
                {"how": proven.how, "grade": proven.grade, "files": files, "bytes": walk.same_bytes[proven]}
                for proven, files in sorted(walk.same.items())
            ],
            "counts": counted.amounts(),
            "differences": counted.shown,
            "all_differences": str(audits_and_adoptions.differences(self._folder)),
            "files": adoption.files,
            "bytes": adoption.bytes,
            "scanned": adoption.scanned,
            "ignored": dict(adoption.ignored),
            "sources": self._urls,
            "read_source": adoption.read_source,
            "methods": dict(walk.methods),
            "earlier": walk.earlier,
            "elements": len(self._run.plan.shards),
            "began": adoption.created,
            "moved_bytes": receipts.moved(receipts.of_elements(self._run, STEP), began),
            "seconds": round(time.time() - began, 3),
        }
        small_files.write_json(self._folder.result, typed_json.plain(result))
        return result


class _Counted:
    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.shown: list[Difference] = []

    def pass_on(self, differences: Iterator[Difference], context: Context) -> Iterator[Difference]:
        for difference in differences:
            context.stop.check()
            self.files[difference.kind] += 1
            self.bytes[difference.kind] += difference.size
            if len(self.shown) < SHOWN:
                self.shown.append(difference)
            yield difference

    def amounts(self) -> dict[str, AmountJson]:
        return {
            kind: {"files": self.files[kind], "bytes": self.bytes[kind]}
            for kind in KINDS
            if kind in self.files
        }


def _wants(config: DatasetConfig) -> Callable[[str], bool]:
    filtered = Filter(config.include, config.exclude)
    if filtered.everything:
        return lambda _: True
    prefixes = [f"{source.into}/" if source.into else "" for source in config.sources]

    def wants(path: str) -> bool:
        return any(path.startswith(prefix) and filtered.accepts(path[len(prefix) :]) for prefix in prefixes)

    return wants


def differences(result: AdoptionResult) -> Iterator[Difference]:
    """Yield all differences of a finished comparison. Raises FailedError if their file is damaged."""
    return audits_and_adoptions.kept_differences(audits_and_adoptions.adoption_of_result(result))


def judge(result: AdoptionResult) -> None:
    """Raise FindingsError (exit 4) if the tree differs. Kinds in TOLD do not count."""
    if result["status"] != "DIFFERS":
        return
    counts = ", ".join(
        f"{amount['files']:,} {kind}" for kind, amount in result["counts"].items() if kind not in TOLD
    )
    raise FindingsError(
        "the tree is not what the source holds",
        where=result["tree"],
        why=counts,
        hint=f"all differences are listed in {result['all_differences']}",
    )
