"""list: freezes the sources' listings in the paths' byte order, and finds or makes the run for them.

It writes the run's folder (listing and `run.json`) and the dataset's claim (the file with the run for which
the dataset is staged). For a published run it removes abandoned stagings.

If keys cannot be paths, a single error reports all of them before a byte moves, and nothing is created on the
target. The same sources and configuration make the same run, whose name and listing never change. Memory is
bounded, whatever the number of objects.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.config import serialization
from penstock.config.serialization import deciding
from penstock.core import human, run_documents, run_steps
from penstock.core.errors import FindingsError, PreflightError
from penstock.core.human import in_quotes
from penstock.core.layout import EMPTY_FOLDERS
from penstock.dataset import (
    documents,
    release_records,
    reserve,
    run_store,
    seals,
    submitted_arrays,
)
from penstock.dataset.documents import Run, read_run
from penstock.fs import small_files
from penstock.fs.safe_open import storage_error
from penstock.jobs import controller_memory, dataset_state, run_cleanup
from penstock.jobs.dataset_state import claim, holding
from penstock.jobs.run_cleanup import drop_stale
from penstock.keep import removals
from penstock.listing.collection import Gathered, apart, gather, open_sources, ordered
from penstock.listing.evidence import short
from penstock.listing.listers import reach
from penstock.sources.web_client import BY_LINKS, PAGE_HREFS
from penstock.tables import json_files
from penstock.target import dataset_folders, tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from penstock.config.settings import Config, DatasetConfig
    from penstock.core.layout import DatasetLayout, RunLayout
    from penstock.core.step_results import ListResult
    from penstock.dataset.context import Context
    from penstock.dataset.dataset_lock import HeldDataset
    from penstock.sources.port import Source

STEP = "list"
_NEW = ".new-"


def run(context: Context, dataset: str) -> ListResult:
    """List the sources, and find or make their run. Returns the receipt: {dataset, run, release, files,
    bytes, scanned, listing_digest, ignored, hard_links, published, current}.

    `published` means that the run's sealed release exists, so nothing is left to do. An unchanged source does
    not move `current` forward again after a rollback. Raises PreflightError if something cannot be staged,
    LockedError, NoSpaceError.
    """
    config, layout = context.dataset(dataset), context.layout(dataset)
    dataset_folders.check_owner(layout)
    dataset_folders.check_root(layout.root)
    sources = open_sources(config)
    apart(layout, sources)
    for source_config, source in zip(config.sources, sources, strict=True):
        reach(source_config, source, context.waiting(dataset, STEP, source.url))
    made = [folder for folder in _folders(layout) if not os.path.lexists(folder)]
    context.emit(run_steps.Started(dataset, STEP))
    try:
        dataset_folders.prepare(layout)
        with holding(context, dataset, "", STEP) as hold:
            submitted_arrays.clear_cancel(layout)
            removals.settle_interrupted(context, layout)
            receipt = _list(context, config, layout, sources, hold)
            reserve.fill(layout)
    except BaseException:
        _undo(layout, made)
        raise
    context.emit(run_steps.Ended(dataset, STEP, receipt))
    return receipt


def _list(
    context: Context, config: DatasetConfig, layout: DatasetLayout, sources: list[Source], hold: HeldDataset
) -> ListResult:
    small_files.make_dirs(layout.runs)
    for name in os.listdir(layout.runs):
        if name.startswith(_NEW):
            tree_removal.remove_tree(layout.runs / name, context.spend)
    spool = layout.runs / f"{_NEW}{secrets.token_hex(8)}"
    try:
        os.mkdir(spool, 0o700)
        gathered = _gathered(context, config, layout, sources, spool)
        urls = [source.url for source in sources]
        _tell(context, config.name, gathered.ignored)
        kept = json_files.empty_folders_digest(gathered.empty_folders)
        if kept:
            json_files.write_empty_folders(spool / EMPTY_FOLDERS, gathered.empty_folders)
        run_id = run_of(context.config, config, layout, urls, gathered.digest, kept)
        stands, old = _stands(layout, run_id) if context.new_release else "", run_id
        if stands:
            run_id = run_of(context.config, config, layout, urls, gathered.digest, kept, without=old)
        claim(context, hold, run_id)
        if stands:
            hold.assert_held()
            run_store.replace(layout, old)
            text = f"release {stands} stays as it is; the same content is staged as a new one"
            context.emit(run_steps.Noted(layout.dataset, STEP, text))
        origins = [source.origin for source in sources]
        run = _meet(context, config, layout, run_id, urls, origins, gathered, spool)
    except OSError as error:
        raise storage_error(error, "the listing cannot be kept", str(layout.runs)) from error
    finally:
        if spool.exists():
            tree_removal.remove_tree(spool, context.spend)
    info = run.info
    if run_store.sealed_run(layout, info.release) not in (None, info.run):
        raise FindingsError(
            f"release {info.release} stands without a seal of its run",
            where=str(layout.release(info.release)),
            why="its release.json is missing, damaged or another's",
            hint="bring that file back, or stage the same content as a new release, which leaves this one "
            f"as it is: `{context.program} run --new-release {info.dataset}`",
        )
    published = run_store.published(run)
    _refuse_short(context, run)
    if not published:
        controller_memory.refuse_outgrown(context, run)
    if not published and (why := drop_stale(context, run)):
        context.emit(run_steps.Noted(info.dataset, STEP, text=f"{why}: it is made anew"))
    if published:
        # Remove the stagings that publish did not remove, except the stagings of later runs, which may
        # continue.
        run_cleanup.clean(context, run, before=release_records.claim_of(layout, info.run))
        run_cleanup.prune(context, layout)
        dataset_state.note_success(context, layout)
    if published and (kept := run_store.kept(run)):
        context.emit(run_steps.Noted(info.dataset, STEP, text=kept))
    # A release that followed its source (`changed: follow`) has other files than its run listed.
    held = seals.of_run(run) if published else None
    return {
        "dataset": info.dataset,
        "run": info.run,
        "release": info.release,
        "files": held.seal.files if held else info.files,
        "bytes": held.seal.bytes if held else info.bytes,
        "scanned": info.scanned,
        "listing_digest": info.listing_digest,
        "ignored": dict(info.ignored),
        "hard_links": dict(info.hard_links),
        "published": published,
        "current": dataset_folders.current(layout),
    }


def _gathered(
    context: Context, config: DatasetConfig, layout: DatasetLayout, sources: list[Source], spool: Path
) -> Gathered:
    """List the sources into `spool`, and remove the state of a listing that was broken off before."""
    try:
        placed = ordered(config, sources)
        gathered = gather(context, config, placed, spool / "listing.parquet", resume=True)
    except PreflightError:
        _forget(context, layout)
        raise
    _forget(context, layout)
    return gathered


def _forget(context: Context, layout: DatasetLayout) -> None:
    if layout.unfinished_listing.exists():
        tree_removal.remove_tree(layout.unfinished_listing, context.spend)


def run_of(
    config: Config,
    dataset: DatasetConfig,
    layout: DatasetLayout,
    urls: list[str],
    listing_digest: str,
    folders: str = "",
    without: str = "",
) -> str:
    """Return the id of the run whose release contains, or will contain, the files just listed.

    `without` is a run that `--new-release` is about to replace. A release that followed its source has
    another listing than its run froze; its seal has both. The table calls it a following release.

    | the new listing is                            | run                                      |
    |-----------------------------------------------|------------------------------------------|
    | the listing of a following release            | that release's run                       |
    | frozen by the run of a following release      | a new run: the release has other bytes   |
    | frozen by a replaced run                      | a new run: its release is not trusted    |
    | any other                                     | the run that `identity` returns          |
    """
    held, replaced = run_store.amended(layout), run_store.replaced(layout) | {without}

    def chain(digest: str) -> Iterator[str]:
        """Yield the runs that froze this listing, in sequence. The last run has no following release yet."""
        run = identity(config, dataset, urls, digest, folders=folders)
        while run in held or run in replaced:
            yield run
            run = identity(config, dataset, urls, digest, after=run, folders=folders)
        yield run

    for run, (frozen, amended) in held.items():
        if amended == listing_digest and run not in replaced and run in chain(frozen):
            return run
    *_, last = chain(listing_digest)
    return last


def _tell(context: Context, dataset: str, ignored: Mapping[str, int]) -> None:
    """Warn of objects of the sources that no release will contain."""
    for what, objects in ignored.items():
        if what.startswith("archived"):
            context.emit(
                run_steps.Warned(dataset, STEP, f"left out: {human.counted(objects, 'object')}, {what}")
            )
    hrefs = {what: count for what, count in ignored.items() if what.startswith((PAGE_HREFS, BY_LINKS))}
    for left_out in human.of_kinds(hrefs):
        context.emit(run_steps.Warned(dataset, STEP, f"left out: {left_out}"))
    if count := ignored.get("empty folders"):
        folders = human.counted(count, "empty folder")
        text = f"{folders} of the source left out: a release is its files"
        context.emit(run_steps.Noted(dataset, STEP, text))


def identity(
    config: Config,
    dataset: DatasetConfig,
    urls: list[str],
    listing_digest: str,
    *,
    after: str = "",
    folders: str = "",
) -> str:
    """Return the run's id: 16 hexadecimal digits over everything that decides the release's content.

    Workers, the directory of the command, and the source's endpoint do not count. `after` is the run that
    froze the same listing and published another. `folders` is the digest of the kept empty folders.
    """
    decides = deciding(config, dataset)
    decides |= {
        "format": 1,
        "dataset": decides.pop("name"),
        "listing": listing_digest,
        "sources": [[url, source.into] for url, source in zip(urls, dataset.sources, strict=True)],
    }
    if after:
        decides["after"] = after
    if folders:
        decides["empty_folders"] = folders
    text = json.dumps(decides, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _stands(layout: DatasetLayout, run: str) -> str:
    """Return the name of this run's release if it is published, damaged or not; "" if it is not."""
    folder = layout.run(run)
    if folder.run_file.exists():
        release = read_run(folder).release
        return release if os.path.lexists(layout.release(release)) else ""
    # The run's state was removed.
    return next(
        (name for name in dataset_folders.releases(layout) if run_store.sealed_run(layout, name) == run), ""
    )


def _refuse_short(context: Context, run: Run) -> None:
    """Raise FindingsError for a published release with less evidence than the configuration now requires."""
    stored = seals.of_run(run)
    lacking = short(stored.seal.evidence, context.config.verify) if stored else ""
    if lacking:
        raise FindingsError(
            "the release that stands is proven too weakly for what is asked now",
            where=f"{run.dataset}/{run.release}",
            why=f"it has {lacking}",
            hint=f"give `datasets.{run.dataset}.release` a new name: what is proven is linked, the rest is "
            "read again; or lower `verify.source_checksum` or `verify.minimum_grade`",
        )


def _meet(
    context: Context,
    dataset: DatasetConfig,
    layout: DatasetLayout,
    run_id: str,
    urls: list[str],
    origins: list[str],
    gathered: Gathered,
    spool: Path,
) -> Run:
    folder = layout.run(run_id)
    frozen, root = serialization.freeze(context.config, dataset), str(layout.root)
    state_root = None if layout.state_root is None else str(layout.state_root)
    if _goes_on(layout, folder) and not run_cleanup.retire(layout, folder):
        if folder.listing.exists():
            run_store.replace_listing(spool, folder)
        info = read_run(folder)
        # Settings that decide the content are part of the id, and so unchanged. The way of staging may
        # change. The root may change, too: it may be moved, mounted elsewhere, or copied with its content.
        met = replace(info, config=frozen, origins=tuple(origins), root=root, state_root=state_root)
        if met != info:
            info = met
            documents.write(run_documents.RUN, folder.run_file, info)
        return Run(layout, info, folder)
    now = datetime.now(UTC)
    release = f"{now:%Y%m%d}-{run_id[:8]}" if dataset.release == "auto" else dataset.release
    if run_id != identity(context.config, dataset, urls, gathered.digest) and dataset.release != "auto":
        # another release already has the name without the run's id
        release = f"{dataset.release}-{run_id[:8]}"
    sealed = run_store.sealed_run(layout, release)
    if sealed is not None and sealed != run_id:
        raise PreflightError(
            f"release {in_quotes(release)} exists already, with other content",
            where=str(layout.release(release)),
            hint="a release never changes: choose another name, or `release: auto`",
        )
    info = run_documents.RunInfo(
        run=run_id,
        dataset=dataset.name,
        release=release,
        created=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        listing_digest=gathered.digest,
        files=gathered.files,
        bytes=gathered.bytes,
        scanned=gathered.scanned,
        root=root,
        state_root=state_root,
        config=frozen,
        histogram=gathered.histogram,
        ignored=gathered.ignored,
        hard_links=gathered.hard_links,
        sources=urls,
        origins=origins,
    )
    documents.write(run_documents.RUN, spool / "run.json", info)
    if folder.folder.exists():
        tree_removal.remove_tree(folder.folder, context.spend)
    small_files.rename(spool, folder.folder)
    return Run(layout, info, folder)


def _goes_on(layout: DatasetLayout, folder: RunLayout) -> bool:
    """Return whether the run of this folder can be continued. A published run keeps no listing, so if its
    release was removed since, the run is made again."""
    if not folder.run_file.exists():
        return False
    published = folder.receipt("publish").exists()
    return folder.listing.exists() or (
        published and os.path.lexists(layout.release(read_run(folder).release))
    )


def _folders(layout: DatasetLayout) -> list[Path]:
    folders = [layout.runs, layout.state, layout.releases, layout.folder, layout.root]
    if layout.state_root is not None:
        folders[2:2] = [layout.state.parent, layout.state_root]
    return folders


def _undo(layout: DatasetLayout, made: list[Path]) -> None:
    for folder in made:
        with contextlib.suppress(OSError):
            if folder == layout.state:
                dataset_folders.drop_state(layout)
            else:
                folder.rmdir()
