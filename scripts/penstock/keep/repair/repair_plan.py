"""Plans the shards of a repair. `.penstock/repairs/<release>/` is laid out like a run, so elements run like
any other:

    run.json, plan.json, shards/, journal/, receipts/repair/, arrays.jsonl: as in a run
    fetched/NNNNN.json  what an element did for each file

A repair by the same audits continues a stopped one, unless it is older than a week: proofs that old count for
little. Folder and staging are removed when a repair ends.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING

from penstock.config.run_config import freeze
from penstock.config.settings import VerifyConfig
from penstock.core import run_documents
from penstock.core.balance import FILE_COST, Load
from penstock.core.layout import DATA
from penstock.core.model import Digest, Entry, Reuse, SourceChecksum, of_hex, part_of
from penstock.dataset import documents
from penstock.fs import clock, small_files
from penstock.fs.errno_map import storage_error
from penstock.jobs import array_job
from penstock.sources.registry import credentials, open_source
from penstock.tables.shards import FORM
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.core.audit_documents import Audit, Finding
    from penstock.core.layout import DatasetLayout
    from penstock.core.model import Record
    from penstock.core.run_documents import PlanInfo
    from penstock.core.seal import Seal
    from penstock.dataset.context import Context
    from penstock.dataset.run import Run
    from penstock.tables.shards import ShardsWriter

UNKNOWN = "its source is not in the configuration any more"


def sources(context: Context, dataset: str, seal: Seal) -> dict[int, int]:
    """Map the sources of a release's records to those configured now, without requesting anything; others are
    left out."""
    config = context.dataset(dataset)
    named = {
        open_source(source, config, credentials=credentials(source)).url: index
        for index, source in enumerate(config.sources)
    }
    return {index: named[source.url] for index, source in enumerate(seal.sources) if source.url in named}


def rows(record: Record, finding: Finding, source: int) -> list[Entry]:
    """Return the rows to fetch for one damaged file: the file, or each part of a giant. Parts that the audits
    did not name are to be taken from the standing file (`reuse`)."""
    entry = Entry(
        record.path, record.key, record.size, record.token, record.modified_ns, source, record.version,
        length=record.size,
    )  # fmt: skip
    digest = Digest.parse(record.digest)
    if not record.parts:
        return [entry._replace(checksum=str(SourceChecksum(digest.algorithm, "full", digest.value)))]
    size, entries = digest.part_bytes, []
    for number, offset in enumerate(range(0, record.size, size)):
        own = part_of(record.parts, number).hex()
        entries.append(
            entry._replace(
                checksum=str(SourceChecksum(digest.algorithm, "part", own)),
                part=number,
                offset=offset,
                length=min(size, record.size - offset),
                reuse=None if number in finding.parts else Reuse(of_hex(own)),
            )
        )
    return entries


def name(audits: Sequence[Audit], seal: str, files: Iterable[Sequence[Entry]]) -> str:
    """Return the id of a repair: equal for the same audits, release, files and sources."""
    text = json.dumps([[audit.id for audit in audits], seal, list(files)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def standing(layout: DatasetLayout, release: str, repair: str) -> PlanInfo | None:
    """Return the plan of this stopped repair if it can be continued."""
    folder = layout.repair(release)
    try:
        old = clock.now(folder.folder) - folder.plan.stat().st_mtime >= array_job.STALE
        made = documents.load(run_documents.PLAN, folder.plan)
    except (FileNotFoundError, ValueError):
        return None
    here = (layout.repair_staging(release) / DATA).is_dir()
    return made if made.run == repair and here and not old else None


def clear(context: Context, layout: DatasetLayout, release: str) -> None:
    """Remove a repair's folder and staging. No element of it may live."""
    for path in (layout.repair_staging(release), layout.repair(release).folder):
        if path.exists():
            tree_removal.remove_tree(path, context.spend)


def begin(
    context: Context, layout: DatasetLayout, release: str, repair: str, files: Sequence[Sequence[Entry]]
) -> PlanInfo:
    """Write the shards and `plan.json`, and make the staging, after `clear`."""
    folder = layout.repair(release)
    costs = [sum(FILE_COST + row.length for row in file) for file in files]
    size = sum(row.length for file in files for row in file)

    def write(shards: ShardsWriter) -> None:
        # A file is in one shard, so that one element proves all of it.
        for shard, start, end in shards.runs(costs):
            shard.add(chain.from_iterable(files[start:end]))

    try:
        small_files.make_dirs(layout.repair_staging(release) / DATA)
        made = array_job.cut(
            context,
            layout,
            folder,
            "repair",
            Load(sum(costs), size, len(files)),
            write,
            job=repair,
            release=release,
            giants=sum(file[0].part >= 0 for file in files),
            part_bytes=context.config.plan.part_bytes,
            form=FORM,
        )
    except OSError as error:
        raise storage_error(error, "a repair cannot be planned", str(folder.folder)) from error
    documents.write(run_documents.PLAN, folder.plan, made)
    return made


def describe(context: Context, layout: DatasetLayout, seal: Seal, plan: PlanInfo) -> Run:
    """Write what the elements need, with today's engine and sources. A repair fetches the published version
    or nothing: a changed object is never followed."""
    dataset = context.dataset(layout.dataset)
    if dataset.changed == "follow":
        dataset = replace(dataset, changed="refuse")
    policy = context.config.verify.source_checksum
    # The manifest proves every row: no checksum of the source is required.
    verify = VerifyConfig(
        source_checksum="auto" if policy == "require" else policy, direct=context.config.verify.direct
    )
    return array_job.describe(
        layout,
        layout.repair(plan.release),
        plan.run,
        plan.release,
        created=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        listing=seal.listing,
        counts=(plan.files, plan.bytes, plan.files),
        config=freeze(replace(context.config, verify=verify), dataset),
        probed=layout.run(seal.run),
    )
