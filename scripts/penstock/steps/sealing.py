"""Manifests and seal, written into staging in the same pass as the closing walk."""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import penstock
from penstock.config.model import VerifyConfig, dataset_config, known, verify_config
from penstock.core.layout import DATA, MANIFEST, MANIFEST_SHA256, MANIFEST_XXH, SEAL
from penstock.core.seal import SEALED_FIELDS, Tree, canonical
from penstock.errors import FailedError, ObjectError, SourceChangedError, TransientError
from penstock.formats.listing import read_listing
from penstock.formats.manifest import ChecksumFile, ManifestWriter
from penstock.formats.records import read_records
from penstock.steps import receipts
from penstock.steps.closing import Deviations, close
from penstock.steps.evidence import required
from penstock.storage import durable, target
from penstock.storage.facts import facts
from penstock.storage.failures import storage_error
from penstock.storage.permissions import group_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from penstock.core.layout import RunLayout
    from penstock.core.model import Claim, Entry, Record
    from penstock.core.runs import PlanInfo, RunInfo
    from penstock.formats.records import SeenRow
    from penstock.steps.context import Context

FORMAT = 1


class RecordsError(FailedError):
    """A shard's records are not those that verify wrote. Its receipt was taken back: verify it again."""


TRIES = 5
SHOWN_EVERY = 8192


def seal_staging(
    context: Context, dataset: str, info: RunInfo, folder: RunLayout, plan: PlanInfo
) -> Deviations:
    """Write the manifests and the seal into staging, durably; nothing is sealed when the answer
    holds deviations. Raises FailedError, RecordsError."""
    staging = context.layout(dataset).staging(info.release)
    target.close_staging(context.layout(dataset), info.release)
    try:
        for name in (SEAL, MANIFEST, MANIFEST_XXH, MANIFEST_SHA256):
            (staging / name).unlink(missing_ok=True)
        return _seal(context, dataset, info, folder, plan, staging)
    except OSError as error:
        raise storage_error(error, "the release cannot be sealed", str(staging)) from error


def _seal(
    context: Context, dataset: str, info: RunInfo, folder: RunLayout, plan: PlanInfo, staging: Path
) -> Deviations:
    verify = verify_config(known(VerifyConfig, info.config["verify"]))
    evidence = required(verify, direct=facts(staging / DATA).direct)
    deviations, tree = Deviations(), Tree()
    giants = left_out = 0
    with contextlib.ExitStack() as stack:
        parquet = stack.enter_context(ManifestWriter(staging / MANIFEST))
        xxh = stack.enter_context(ChecksumFile(staging / MANIFEST_XXH, algorithm="xxh3_128"))
        sha = None
        if "sha256" in verify.digests:
            sha = stack.enter_context(ChecksumFile(staging / MANIFEST_SHA256, algorithm="sha256"))
        rows = _rows(folder, plan)
        ask = _asking(context, dataset)
        waiting: list[Record] = []
        for whole in close(plan, read_listing(folder.listing), rows, staging / DATA, ask, deviations):
            record = whole.record
            weak = evidence.add(record)
            if weak and record.path not in deviations.wrong:
                deviations.add("weak", weak, whole.shards)
            tree.add(canonical(record))
            giants += bool(record.parts)
            left_out += not _list(record, xxh, sha)
            waiting.append(record)
            if len(waiting) >= SHOWN_EVERY:
                context.stop.check()
                parquet.add(waiting)
                waiting = []
                context.emit("progress", dataset, "publish", files=tree.count)
        if deviations:
            return deviations
        parquet.add(waiting)
        manifests: dict[str, Any] = {MANIFEST: {"sha256": parquet.finish(), "records": tree.count}}
        for name, sums in ((MANIFEST_XXH, xxh), (MANIFEST_SHA256, sha)):
            if sums is not None:
                sums.close()
                manifests[name] = {
                    "sha256": receipts.file_digest(staging / name),
                    "lines": sums.lines,
                    "escaped": sums.escaped,
                    "left_out": tree.count - sums.lines,
                }
    config = dataset_config(info.config["dataset"])
    seal = {
        "format": FORMAT,
        "dataset": info.dataset,
        "release": info.release,
        "run": info.run,
        "sealed": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "penstock": penstock.__version__,
        "files": plan.files,
        "bytes": plan.bytes,
        "giants": giants,
        "part_bytes": plan.part_bytes if giants else None,
        "sources": [
            {"url": url, "into": source.into}
            for url, source in zip(info.sources, config.sources, strict=True)
        ],
        "listing": info.listing_digest,
        "include": list(config.include),
        "exclude": list(config.exclude),
        "scanned": info.scanned,
        "ignored": dict(info.ignored),
        "hard_links": dict(info.hard_links),
        "base": plan.base,
        "unchanged": plan.unchanged,
        "permissions": {
            "file_mode": config.permissions.file_mode,
            "dir_mode": config.permissions.dir_mode,
            "gid": group_id(config.permissions),
            "uid": os.geteuid(),
        },
        "records": {"root": tree.root(), "count": tree.count, "fields": list(SEALED_FIELDS)},
        "manifests": manifests,
        "evidence": evidence.to_json(),
    }
    durable.write_json(staging / SEAL, seal)
    return deviations


def _list(record: Record, xxh: ChecksumFile, sha: ChecksumFile | None) -> bool:
    """One line in each checksum file that can carry this record; False when one was left out."""
    algorithm, _, value = record.digest.partition(":")
    known_digests = {algorithm: value}
    for item in record.digests.split():
        algorithm, _, value = item.partition(":")
        known_digests.setdefault(algorithm, value)
    for sums, name in ((xxh, "xxh3_128"), (sha, "sha256")):
        if sums is not None and name in known_digests:
            sums.add(known_digests[name], record.path)
    return "xxh3_128" in known_digests


def _rows(folder: RunLayout, plan: PlanInfo) -> Iterator[tuple[int, SeenRow]]:
    """All rows of all shards in order, with their shard: whole, and as verify wrote them."""
    for shard in plan.shards:
        path = folder.records(shard.index)
        stated = (receipts.read(folder.receipt("verify", shard.index)) or {}).get("records")
        if receipts.file_digest(path) != stated:
            receipts.drop(folder.receipt("verify", shard.index))
            raise RecordsError(
                "a shard's records are not those that verify wrote",
                where=str(path),
                hint="the same command verifies this shard again",
            )
        count = 0
        for batch in read_records(path):
            for row in batch:
                if row.row != count:
                    raise FailedError("a shard's records are not in order", where=str(path))
                count += 1
                yield shard.index, row
        if count != shard.rows:
            raise FailedError(
                "a shard's records are not complete", where=str(path), why=f"{count} of {shard.rows} rows"
            )


def _asking(context: Context, dataset: str) -> Callable[[Entry], Sequence[Claim]]:
    """Asks the source for a giant's own checksums; the source is opened when the first one is. What it
    does not tell any more (the object was replaced since it was copied) proves nothing, and harms nothing."""
    sources: list[Any] = []

    def ask(entry: Entry) -> Sequence[Claim]:
        if not sources:
            from penstock.steps.gathering import open_sources

            sources.extend(open_sources(context.dataset(dataset), context.config.engine.timeout))
        for attempt in range(TRIES):
            try:
                return tuple(sources[entry.source].checksum(entry))
            except TransientError as error:
                if attempt == TRIES - 1:
                    text = f"{entry.path!r}: its source's checksum cannot be asked for: {error}"
                    context.emit("warning", dataset, "publish", text=text)
                context.stop.wait(error.after or 0.2 * 2**attempt)
            except (SourceChangedError, ObjectError) as error:
                text = f"{entry.path!r}: nothing can prove its parts together any more: {error}"
                context.emit("warning", dataset, "publish", text=text)
                break
        return ()

    return ask
