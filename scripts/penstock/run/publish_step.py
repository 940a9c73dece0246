"""publish: turns a verified tree into a release. It is sealed, revealed by one rename, and then `current` is
pointed at it.

It first does verify for shards without a valid receipt. A shard that changed since verify loses its receipt
and is verified again. If a file has other permissions than configured, the permissions step first visits each
file.

Nothing is revealed unless listing, records and tree agree in every file, unchanged since verify. Each file
must have the configured mode, group and ACL. Each step is durable before the next: after a crash at any
moment the same command gives the same result. If `penstock rollback`, or a person, moved `current`, it stays
while the source is unchanged (`run_store`). If another run took over the dataset, nothing moves: right before
each of the two renames the run checks that it holds the lock and the dataset's claim.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict, cast

from penstock.core import run_steps, typed_json
from penstock.core.dataset_documents import Publication
from penstock.core.errors import FailedError, FindingsError
from penstock.core.layout import DATA
from penstock.dataset import (
    pins,
    receipts,
    release_records,
    reserve,
    run_store,
    seals,
)
from penstock.engine import journal
from penstock.extras import croissant as description
from penstock.fs import capabilities
from penstock.fs.safe_open import storage_error
from penstock.host.kernel_facts import host_name
from penstock.jobs import dataset_state, run_cleanup
from penstock.jobs.dataset_state import holding
from penstock.keep import removals
from penstock.run.sealing import RecordsError, seal_staging
from penstock.run.step_chain import ensure_verified, set_permissions_again
from penstock.tables.run_tables import read_shard
from penstock.target import dataset_folders, reveal, tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.config.settings import VerifyConfig
    from penstock.core.layout import DatasetLayout
    from penstock.core.step_results import CopyReceipt, PublishReceipt, StepReceipt
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run

STEP = "publish"
ROUNDS = 3  # number of verifications of files touched after verify, before publish fails


def run(context: Context, dataset: str) -> PublishReceipt:
    """Publish; return the receipt: {dataset, run, release, path, current, files, bytes, seal, ...}. Raises
    FailedError if there are deviations, FindingsError (exit 4) if evidence is lacking, LockedError."""
    run = run_store.open_run(context.layout(dataset), context.run)
    if run_store.published(run):
        return _receipt(run, receipts.step(run.folder, STEP))
    with holding(context, dataset, run.id, STEP):
        return _publish(context, run)


def _publish(context: Context, run: Run) -> PublishReceipt:
    started = time.time()
    layout, info, dataset = run.layout, run.info, run.dataset
    context.emit(run_steps.Started(dataset, STEP, files=info.files, bytes=info.bytes))
    fresh = seals.of_run(run) is None
    if fresh:
        _seal(context, run)
        _describe(context, run)
        _sign(run)
        release_records.forget_verdict(layout, info.release)
        # A removed release of this name left this receipt. If the receipt stayed, this publication would end
        # before it adds its line to the history.
        receipts.drop(run.folder.receipt(STEP))
    context.stop.check()
    # Reveal even if an earlier attempt revealed the release and died before reporting that, since the rename
    # may not be durable.
    reveal.reveal(layout, info.release, context.assert_held)
    pins.make_folder(context, layout, info.release)
    stored = seals.of_run(run)
    if stored is None:
        context.assert_held()
        raise FailedError(
            "the release is not the one that was sealed",
            where=str(layout.release(info.release)),
            hint="`penstock audit` says what is damaged; `penstock run --new-release` stages it anew",
        )
    seal = stored.seal
    removals.settle_interrupted(context, layout)
    context.assert_held()
    release_records.note_intervals(layout)
    before = dataset_folders.current(layout)
    settled = run_store.settled(run)
    if not settled:
        _demand_signature(layout, stored)
        reveal.point(layout, info.release, context.assert_held)
    if not settled or _seal_is_unnamed(run, stored):
        context.assert_held()
        line = Publication(
            at=capabilities.stamp(layout.releases),
            dataset=info.dataset,
            release=info.release,
            run=info.run,
            claim=context.hold.number if context.hold else 0,
            author=release_records.this_author(),
            seal=stored.digest,
            root=seal.records.root,
            files=seal.files,
            bytes=seal.bytes,
            previous=before if before != info.release else None,
            renamed=seal.renamed,
        )
        if run.folder.plan.exists():
            plan, copy = run.plan, cast("CopyReceipt", receipts.step(run.folder, "copy") or {})
            files, size = plan.files - plan.unchanged - plan.taken, plan.unchanged_bytes + plan.taken_bytes
            line = replace(line, copied_files=files, copied_bytes=plan.bytes - size)
            line = replace(line, retries=copy.get("retries", 0))
        release_records.append_history(layout, line)
        if not fresh and not settled:
            text = f"the source holds again what release {info.release} was published of: `current` names it"
            context.emit(run_steps.Noted(dataset, STEP, text=text))
    if settled and (kept := run_store.kept(run)):
        context.emit(run_steps.Noted(dataset, STEP, text=kept))
    receipt: PublishReceipt = {
        **receipts.head(run, STEP, started),
        **_facts(stored),
        "previous": before,
        "moved": before != info.release and not settled,
        **_now(run),
    }
    receipts.write_step(run.folder, receipt)
    run_cleanup.clean(context, run)
    run_cleanup.tidy(context, run)
    reserve.fill(layout)
    receipt["published"] = True
    dataset_state.note_success(context, layout)
    context.emit(run_steps.Ended(dataset, STEP, receipt))
    return receipt


def _seal(context: Context, run: Run) -> None:
    dataset = run.dataset
    for attempt in range(ROUNDS + 1):
        ensure_verified(context, run)
        try:
            # A further round accepts pages that a job keeps in memory, since the pages of a mapped file
            # always stay there.
            deviations = seal_staging(context, run, in_memory=attempt > 0, overdue=attempt == 0)
        except RecordsError as error:
            if attempt == ROUNDS:
                raise
            text = f"{error.what}, it is verified again: {error.where}"
            context.emit(run_steps.Warned(dataset, STEP, text))
            continue
        if not deviations:
            return
        lines = "\n  ".join(["", *deviations.lines()])
        if deviations.extra:
            raise FailedError(
                f"staging holds {deviations.counts['extra']} things that were not listed: not published",
                where=str(run.data),
                why=lines,
                hint="nobody but penstock writes there: find out who did, remove them, and publish again",
            )
        if deviations.leftover:
            tree_removal.sweep_temporaries(run.data)
        for index in deviations.shards:
            receipts.drop(run.folder.receipt("verify", index))
        for path, holding_it in deviations.wrong.items():
            take_back(run, path, holding_it)
        # Giants that were taken back are copied first; the next walk finds wrong permissions again.
        if deviations.permissions and not deviations.wrong:
            set_permissions_again(context, run)
        if attempt == ROUNDS or (set(deviations.counts) == {"weak"} and not _may_grow(run.config.verify)):
            break
        reasons = "; ".join(deviations.lines())
        text = f"staging is not as verify should see it, its shards are verified again: {reasons}"
        context.emit(run_steps.Warned(dataset, STEP, text))
    if set(deviations.counts) == {"weak"}:
        raise FindingsError(
            f"{deviations.counts['weak']} files are proven too weakly to be published",
            where=dataset,
            why=lines,
            hint="lower `verify.minimum_grade` or `verify.source_checksum`, or verify on another node",
        )
    if set(deviations.counts) == {"contradicted"}:
        raise FailedError(
            "the source contradicts its own checksums, however often it is read; nothing was published",
            where=dataset,
            why=lines,
            hint="the data or the checksum is wrong at the source: have it corrected there",
        )
    raise FailedError(
        "staging is not as verify saw it; nothing was published",
        where=dataset,
        why=lines,
        hint=f"run `penstock step verify {dataset}` again, and find out what writes there",
    )


def _describe(context: Context, run: Run) -> None:
    """Write the description before the reveal. It is not sealed, since it contains the seal's digest."""
    try:
        description.write(run.staging, context.dataset(run.dataset).describe)
    except OSError as error:
        raise storage_error(error, "the release cannot be described", str(run.staging)) from error


def _sign(run: Run) -> None:
    try:
        seals.write(run.staging, run.layout.signing)
    except OSError as error:
        raise storage_error(error, "the release cannot be signed", str(run.staging)) from error


def _demand_signature(layout: DatasetLayout, stored: seals.Stored) -> None:
    """Raise FindingsError if the release is unsigned although this account signs: readers who verify
    signatures would reject it as `current`. A release that was published earlier may be unsigned."""
    if layout.signing.key is None:
        return
    seals.demand(layout, stored.seal.release, stored)


def _seal_is_unnamed(run: Run, stored: seals.Stored) -> bool:
    """Return whether the history lacks this seal only because this publication has not been noted yet.

    The history then has only the seal of an earlier, removed release of this name. After a completed
    publication any other seal is forged.
    """
    noted_seal = release_records.published_seal(run.layout, run.release)
    return noted_seal not in (None, stored.digest) and not run.folder.receipt(STEP).exists()


def take_back(run: Run, path: str, shards: Iterable[int]) -> None:
    """Durably take back the journal's lines for the parts of this giant, whose bytes contradict the
    source."""
    folder = run.folder
    for shard in (run.shards[index] for index in shards):
        journals = folder.journals(shard.index)
        entries = (entry for batch in read_shard(folder.shard(shard.index)) for entry in batch)
        rows = {row for row, entry in enumerate(entries) if entry.path == path}
        journal.take_back(journals, shard.digest, rows, run=run.id, host=host_name())
        receipts.drop(folder.receipt("copy", shard.index))


def _may_grow(verify: VerifyConfig) -> bool:
    """Return whether another reading may prove more.

    It may if the required grade is the best of this file system, and only a page kept in memory prevented
    that grade.
    """
    return verify.minimum_grade in ("auto", "cold", "reread") and verify.source_checksum != "require"


class _Now(TypedDict):
    path: str
    current: str | None


class _Facts(TypedDict):
    files: int
    bytes: int
    giants: int
    seal: str
    root: str
    evidence: Mapping[str, object]
    manifests: Mapping[str, object]


def _facts(stored: seals.Stored) -> _Facts:
    seal, digest = stored
    return {
        "files": seal.files,
        "bytes": seal.bytes,
        "giants": seal.giants,
        "seal": digest,
        "root": seal.records.root,
        "evidence": typed_json.plain(seal.evidence),
        "manifests": typed_json.plain(seal.manifests),
    }


def _receipt(run: Run, kept: StepReceipt | None) -> PublishReceipt:
    stored = None if kept else seals.of_run(run)
    receipt = {
        **(kept or receipts.head(run, STEP, time.time())),
        **(_facts(stored) if stored else {}),
        **_now(run),
        "published": True,
    }
    return cast("PublishReceipt", receipt)


def _now(run: Run) -> _Now:
    path = str(run.layout.release(run.release) / DATA)
    return {"path": path, "current": dataset_folders.current(run.layout)}
