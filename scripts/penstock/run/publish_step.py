"""publish: a verified tree becomes a release: sealed, revealed by one rename, then pointed at. Manifests and
seal are written into staging in the same pass as the closing walk.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, TypedDict, cast

import pyarrow.compute as pc

import penstock
from penstock.core import run_steps, typed_json
from penstock.core.dataset_documents import Publication
from penstock.core.errors import IMPOSSIBLE, FailedError, FindingsError
from penstock.core.grades import SOON, Now, is_overdue
from penstock.core.human import in_quotes
from penstock.core.layout import DATA, EMPTY_FOLDERS, MANIFEST, MANIFEST_SHA256, MANIFEST_XXH, SEAL
from penstock.core.model import XXH3
from penstock.core.seal import (
    CARRYING_FIELDS,
    RELEASE_SEAL,
    SEALED_FIELDS,
    Seal,
    SealedManifest,
    SealedModes,
    SealedPermissions,
    SealedReadDelay,
    SealedRecords,
    SealedSource,
    Tree,
    leaves,
)
from penstock.dataset import pins, receipts, release_records, reserve, run_store, seals
from penstock.engine import journal
from penstock.extras import croissant as description
from penstock.fs import capabilities, owners, small_files
from penstock.fs.capabilities import facts
from penstock.fs.safe_open import storage_error
from penstock.host.kernel_facts import host_name
from penstock.jobs import dataset_state, run_cleanup
from penstock.jobs.dataset_state import holding
from penstock.keep import removals
from penstock.listing.evidence import GiantChecksums, required
from penstock.run import amended_listing
from penstock.run.reconciliation import Deviations, close
from penstock.run.step_chain import ensure_verified, set_permissions_again
from penstock.tables import json_files
from penstock.tables.manifest import ChecksumFile, ManifestWriter, checksums, read_records
from penstock.tables.run_tables import read_listing_columns, read_shard
from penstock.target import dataset_folders, modes, reveal, tree_removal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.config.settings import VerifyConfig
    from penstock.core.layout import DatasetLayout
    from penstock.core.step_results import CopyReceipt, PublishReceipt, StepReceipt
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run
    from penstock.tables.manifest import Files, SeenRow


# Manifests and seal, written into staging in the same pass as the closing walk. The seal has statistics of
# the times between the files' writing and their reading back.

BOUND_RATIO = 1.2  # ratio between neighbouring bounds of the histogram


class ReadDelays:
    """`core.grades.read_delay` of all files, computed by columns, since a release may have 10^9 files.

    The histogram's bounds are powers of BOUND_RATIO. So the median is at most one step too short, and memory
    is bounded.
    """

    def __init__(self) -> None:
        self._least: int | None = None
        self._soon = 0
        self._powers = Counter[int]()

    def add(self, files: Files) -> None:
        size, ctime_ns, read_at, shared = map(files.stored, ("size", "ctime_ns", "read_at", "shared"))
        counted = pc.and_(pc.greater(read_at, 0), pc.greater(size, 0))
        counted = pc.and_(counted, pc.equal(shared, 0))
        changed = pc.add(pc.divide(pc.subtract(ctime_ns, 1), 10**9), 1)
        seconds = pc.max_element_wise(pc.subtract(read_at, changed), 0).filter(counted)
        if not len(seconds):
            return
        least = pc.min(seconds).as_py()
        self._least = least if self._least is None else min(self._least, least)
        self._soon += pc.sum(pc.less(seconds, SOON)).as_py()
        powers = pc.floor(pc.logb(pc.add(seconds, 1), BOUND_RATIO))
        self._powers.update({int(row["values"]): row["counts"] for row in powers.value_counts().to_pylist()})

    def sealed(self) -> SealedReadDelay | None:
        if self._least is None:
            return None
        left = (self._powers.total() + 1) // 2
        for power in sorted(self._powers):
            left -= self._powers[power]
            if left <= 0:
                break
        return SealedReadDelay(self._least, max(self._least, math.ceil(BOUND_RATIO**power) - 1), self._soon)


class RecordsError(FailedError):
    """A shard's records are not those that verify wrote. Its receipt was dropped; verify it again."""


SHOWN_EVERY = 8192
MOST_LINES = 1_000_000  # number of files from which on a release gets no text manifest for `xxhsum -c`


def seal_staging(context: Context, run: Run, *, in_memory: bool = False, overdue: bool = True) -> Deviations:
    """Write the manifests and the seal into staging, durably, unless it returns deviations.

    `in_memory` lets a linked file have less than the grade that `auto` requires, since readers of another
    release keep its pages in memory. The seal then has `reread`. `overdue` means that a carried-over file
    whose last reading is older than `verify.linked` is a deviation. An earlier attempt may be about to reveal
    the files that it sealed. So manifests and seal are replaced only under the lock, file by file, and are
    never missing meanwhile. Raises FailedError, RecordsError.
    """
    dataset_folders.close_staging(run.layout, run.release)
    try:
        return _write_seal(context, run, in_memory, overdue)
    except OSError as error:
        raise storage_error(error, "the release cannot be sealed", str(run.staging)) from error


def _write_seal(context: Context, run: Run, in_memory: bool, overdue: bool) -> Deviations:
    info, folder, plan, staging = run.info, run.folder, run.plan, run.staging
    verify, config = run.config.verify, run.config.dataset
    gid = modes.group_id(config.permissions)
    evidence = required(verify, direct=facts(run.data).direct)
    evidence.fsync_ends = receipts.fsync_ends(receipts.of_elements(run, "copy"))
    delays, deviations, tree = ReadDelays(), Deviations(), Tree()
    verified = receipts.of_elements(run, "verify")
    fields = CARRYING_FIELDS if any(receipt.carried[0] for receipt in verified) else SEALED_FIELDS
    late = _late(context, run) if overdue else None
    giants = shown = kept = 0
    with contextlib.ExitStack() as stack:
        parquet = stack.enter_context(ManifestWriter(staging / MANIFEST))
        amended = amended_listing.write(run)
        if amended:
            plan = replace(plan, files=amended.files, bytes=amended.bytes)
        sums = [(MANIFEST_XXH, XXH3)] if plan.files < MOST_LINES else []
        if "sha256" in verify.digests:
            sums.append((MANIFEST_SHA256, "sha256"))
        texts = {
            name: stack.enter_context(ChecksumFile(staging / name, algorithm=algorithm))
            for name, algorithm in sums
        }
        rows = _rows(run)
        ask = GiantChecksums(context, run)
        listing = read_listing_columns(amended.path if amended else folder.listing)
        folders = json_files.read_empty_folders(folder.empty_folders)
        final = modes.FinalAccess(config.permissions, gid)
        permissions = stack.enter_context(modes.FilePermissions(run.data, final, context.spend))
        joined = close(plan, listing, rows, run.data, ask, deviations, ask.as_assumed, folders, permissions)
        for files, shards in joined:
            context.stop.check()
            for path, why, held in evidence.add(files):
                if path in deviations.wrong:
                    continue
                if in_memory and held and os.lstat(run.data / path).st_nlink > 1:
                    kept += 1
                else:
                    deviations.add("weak", f"{in_quotes(path)}: {why}", shards)
            for path in late(files) if late else ():
                why = "it was last read longer ago than `verify.linked`"
                deviations.add("overdue", f"{in_quotes(path)}: {why}", shards)
            delays.add(files)
            tree.extend(leaves(files, fields))
            giants += len(files) - files["parts"].count(b"")
            for text in texts.values():
                text.add(checksums(files, text.algorithm))
            parquet.add(files)
            if tree.count - shown >= SHOWN_EVERY:
                shown = tree.count
                context.emit(run_steps.Progressed(run.dataset, "publish", files=tree.count))
        if deviations:
            return deviations
        context.assert_held()
        if folders:
            json_files.write_empty_folders(staging / EMPTY_FOLDERS, folders)
        else:
            (staging / EMPTY_FOLDERS).unlink(missing_ok=True)
        manifests = {
            MANIFEST: SealedManifest(
                parquet.finish(), records=tree.count, bytes=(staging / MANIFEST).stat().st_size
            )
        }
        if folders:
            digest = receipts.file_digest(staging / EMPTY_FOLDERS)
            manifests[EMPTY_FOLDERS] = SealedManifest(digest, folders=len(folders))
        for name, text in texts.items():
            text.close()
            manifests[name] = SealedManifest(
                receipts.file_digest(staging / name),
                lines=text.lines,
                escaped=text.escaped,
                left_out=tree.count - text.lines,
            )
    for name in (MANIFEST_XXH, MANIFEST_SHA256):
        if name not in texts:
            (staging / name).unlink(missing_ok=True)
    seal = Seal(
        dataset=info.dataset,
        release=info.release,
        run=info.run,
        sealed=datetime.fromtimestamp(context.clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        penstock=penstock.__version__,
        files=plan.files,
        bytes=plan.bytes,
        giants=giants,
        part_bytes=plan.part_bytes if giants else None,
        sources=[
            SealedSource(url, source.into) for url, source in zip(info.sources, config.sources, strict=True)
        ],
        listing=info.listing_digest,
        include=config.include,
        exclude=config.exclude,
        scanned=info.scanned,
        ignored=info.ignored,
        hard_links=info.hard_links,
        base=plan.base,
        unchanged=plan.unchanged,
        renamed=plan.renamed,
        permissions=SealedPermissions(
            file_mode=config.permissions.file_mode,
            dir_mode=config.permissions.dir_mode,
            gid=gid,
            uid=os.geteuid(),
            user=owners.user_name(os.geteuid()),
            group="" if gid is None else owners.group_name(gid),
            modes=[SealedModes(rule.match, rule.file, rule.dir) for rule in config.permissions.modes],
            acl=final.rules.entries,
        ),
        records=SealedRecords(tree.root(), tree.count, fields),
        manifests=manifests,
        evidence=evidence.sealed()._replace(read_after=delays.sealed()),
        carried=evidence.carried(),
        amended=amended.sealed(info.created, _ended(receipts.step(folder, "copy"))) if amended else None,
    )
    small_files.write_json(staging / SEAL, RELEASE_SEAL.to_json(seal))
    if kept:
        warning = (
            f"{kept} linked files were in memory at each reading, as another release's readers keep them: "
            "they are right, and proven as `reread`, not `cold`"
        )
        context.emit(run_steps.Warned(run.dataset, "publish", warning))
    return deviations


def _late(context: Context, run: Run) -> Callable[[Files], list[str]] | None:
    """Return a test for carried-over files that are now overdue; None if no file can be overdue."""
    longest = run.config.verify.carries_for
    if longest is None:
        return None
    file_time, here = capabilities.both(run.folder.folder), context.clock()
    now = Now(min(file_time.earliest, here), max(file_time.latest, here))

    @cache
    def overdue(read_at: int) -> bool:
        return is_overdue(read_at, now, longest)

    def late(files: Files) -> list[str]:
        if not any(files["carried"]):
            return []
        rows = zip(files["path"], files["carried"], files["read_at"], strict=True)
        return [path for path, carried, read_at in rows if carried and overdue(read_at)]

    return late


def _ended(receipt: StepReceipt | None) -> str:
    ended = receipt.get("ended") if receipt else None
    return datetime.fromtimestamp(ended, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if ended else ""


def _rows(run: Run) -> Iterator[tuple[int, Files | list[SeenRow]]]:
    """Yield, in order, all rows of all shards, complete and as verify wrote them, with their shard."""
    folder = run.folder
    for shard in run.plan.shards:
        path = folder.records(shard.index)
        verified = receipts.element(folder, "verify", shard.index)
        if verified is None or receipts.file_digest(path) != verified.records:
            receipts.drop(folder.receipt("verify", shard.index))
            raise RecordsError(
                "a shard's records are not those that verify wrote",
                where=str(path),
                hint="the same command verifies this shard again",
            )
        count = 0
        for some in read_records(path):
            count += len(some)
            yield shard.index, some
        expected = shard.rows - verified.left_out
        if count != expected:
            raise FailedError(
                "a shard's records are not complete",
                where=str(path),
                why=f"{count} of {expected} rows",
                hint=IMPOSSIBLE,
            )


# publish: turns a verified tree into a release. It is sealed, revealed by one rename, and then `current` is
# pointed at it.
#
# It first does verify for shards without a valid receipt. A shard that changed since verify loses its receipt
# and is verified again. If a file has other permissions than configured, the permissions step first visits
# each file.
#
# Nothing is revealed unless listing, records and tree agree in every file, unchanged since verify. Each file
# must have the configured mode, group and ACL. Each step is durable before the next: after a crash at any
# moment the same command gives the same result. If `penstock rollback`, or a person, moved `current`, it
# stays while the source is unchanged (`run_store`). If another run took over the dataset, nothing moves:
# right before each of the two renames the run checks that it holds the lock and the dataset's claim.

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
