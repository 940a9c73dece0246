"""Manifests and seal, written into staging in the same pass as the closing walk. The seal has statistics of
the times between the files' writing and their reading back.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

import pyarrow.compute as pc

import penstock
from penstock.core import run_steps
from penstock.core.errors import IMPOSSIBLE, FailedError
from penstock.core.grades import SOON, Now, is_overdue
from penstock.core.human import in_quotes
from penstock.core.layout import EMPTY_FOLDERS, MANIFEST, MANIFEST_SHA256, MANIFEST_XXH, SEAL
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
from penstock.dataset import receipts
from penstock.fs import capabilities, owners, small_files
from penstock.fs.capabilities import facts
from penstock.fs.safe_open import storage_error
from penstock.listing.evidence import GiantChecksums, required
from penstock.run import amended_listing
from penstock.run.reconciliation import Deviations, close
from penstock.tables import json_files
from penstock.tables.manifest import ChecksumFile, ManifestWriter, checksums, read_records
from penstock.tables.run_tables import read_listing_columns
from penstock.target import dataset_folders, modes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.core.step_results import StepReceipt
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run
    from penstock.tables.manifest import Files, SeenRow


STEP = 1.2  # ratio between neighbouring bounds of the histogram


class ReadDelays:
    """`core.grades.read_delay` of all files, computed by columns, since a release may have 10^9 files.

    The histogram's bounds are powers of STEP. So the median is at most one step too short, and memory is
    bounded.
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
        powers = pc.floor(pc.logb(pc.add(seconds, 1), STEP))
        self._powers.update({int(row["values"]): row["counts"] for row in powers.value_counts().to_pylist()})

    def sealed(self) -> SealedReadDelay | None:
        if self._least is None:
            return None
        left = (self._powers.total() + 1) // 2
        for power in sorted(self._powers):
            left -= self._powers[power]
            if left <= 0:
                break
        return SealedReadDelay(self._least, max(self._least, math.ceil(STEP**power) - 1), self._soon)


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
        return _seal(context, run, in_memory, overdue)
    except OSError as error:
        raise storage_error(error, "the release cannot be sealed", str(run.staging)) from error


def _seal(context: Context, run: Run, in_memory: bool, overdue: bool) -> Deviations:
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
