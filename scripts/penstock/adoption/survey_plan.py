"""From a listing to the shards of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.adoption import adoption_store, surveyed_files
from penstock.core import run_documents
from penstock.core.balance import FILE_COST, Cut, Load, decide, parts
from penstock.core.run_documents import RunInfo
from penstock.engine.checksums import COMBINABLE, listed
from penstock.formats.listing_file import read_listing
from penstock.formats.shards import ShardWriter
from penstock.sources.registry import may_be_split
from penstock.state import documents
from penstock.storage import durable, tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.config.settings import PlanConfig
    from penstock.core.documents.adoption_description import Adoption
    from penstock.core.layout import DatasetLayout, RunLayout
    from penstock.core.model import Entry
    from penstock.core.run_documents import PlanInfo, ShardInfo
    from penstock.state.context import Context

GROUP = 8192
"""Rows that are written to a shard at once."""


def make(
    context: Context,
    folder: RunLayout,
    adoption: Adoption,
    sources: Sequence[str],
    places: Iterable[Path],
) -> PlanInfo:
    """Write the shards, then `plan.json`; one that is there is used as it is. `sources`: their URLs;
    `places`: as of `mark_differed`."""
    if folder.plan.exists():
        return documents.load(run_documents.PLAN, folder.plan)
    limits = context.config.plan
    load = Load(adoption.files * FILE_COST + adoption.bytes, adoption.bytes, adoption.files)
    decision = decide(
        load,
        shard_bytes=limits.shard_bytes,
        shard_files=limits.shard_files,
        slots=context.cluster.slots("adopt"),
        max_array=context.cluster.max_array(),
    )
    for old in (folder.shard(0).parent, folder.survey(0).parent):
        if old.exists():
            tree_removal.remove_tree(old)
    durable.make_dirs(folder.shard(0).parent)
    shards = _shards(context, folder, limits, sources, Cut(load.cost, decision.shards))
    made = run_documents.array_plan(
        adoption.id,
        "",
        shards,
        files=adoption.files,
        size=adoption.bytes,
        giants=0,
        part_bytes=limits.part_bytes,
        why=(decision.why,),
    )
    mark_differed(folder, made, adoption, places)
    documents.write(run_documents.PLAN, folder.plan, made)
    return made


def mark_differed(folder: RunLayout, plan: PlanInfo, adoption: Adoption, places: Iterable[Path]) -> None:
    """Have the bytes compared of each file that differed in another comparison of the tree, with whatever
    listing of the source. `places`: where comparisons lie. Durable on return."""
    paths: set[str] = set()
    for earlier in adoption_store.of_tree(adoption, places):
        theirs = documents.load(run_documents.PLAN, earlier.plan)
        paths |= surveyed_files.differed(earlier, theirs)
        if adoption_store.differences(earlier).exists():
            paths.update(one.path for one in adoption_store.kept(earlier) if one.kind == "content")
    surveyed_files.mark_differed(folder, plan, paths)


def _shards(
    context: Context, folder: RunLayout, limits: PlanConfig, sources: Sequence[str], cut: Cut
) -> list[ShardInfo]:
    made: list[ShardInfo] = []
    waiting: list[Entry] = []
    writer, index = ShardWriter(folder.shard(0), 0), 0
    try:
        for entries in read_listing(folder.listing):
            context.stop.check()
            for row in _rows(entries, limits, sources):
                place = cut.place(FILE_COST + row.length)
                if place != index:
                    writer.add(waiting)
                    waiting.clear()
                    made.append(writer.close())
                    writer, index = ShardWriter(folder.shard(place), place), place
                waiting.append(row)
            writer.add(waiting)
            waiting.clear()
        made.append(writer.close())
    finally:
        writer.abandon()
    return made


def _rows(entries: Sequence[Entry], limits: PlanConfig, sources: Sequence[str]) -> Iterator[Entry]:
    """A row a file; of a giant a row a part. A giant of which the listing states a checksum that its parts
    cannot prove together is one row."""
    least = max(limits.giant_bytes, limits.part_bytes + 1)
    for entry in entries:
        whole = any(one.kind == "full" and one.algorithm not in COMBINABLE for one in listed(entry))
        if entry.size < least or whole or not may_be_split(sources[entry.source], entry.token):
            yield entry
        else:
            yield from parts(entry, limits.giant_bytes, limits.part_bytes)


def describe_run(
    layout: DatasetLayout,
    folder: RunLayout,
    adoption: Adoption,
    *,
    config: Mapping[str, object],
    sources: Sequence[str],
) -> RunInfo:
    """Write `run.json`, which the elements read; anew each time, since settings may have changed. `config`:
    as `run_config.freeze` makes it."""
    info = RunInfo(
        run=adoption.id,
        dataset=adoption.dataset,
        release="",
        created=adoption.created,
        listing_digest=adoption.listing,
        files=adoption.files,
        bytes=adoption.bytes,
        scanned=adoption.scanned,
        root=str(layout.root),
        state_root=str(layout.state_root) if layout.state_root else None,
        config=config,
        ignored=adoption.ignored,
        sources=tuple(sources),
    )
    documents.write(run_documents.RUN, folder.run_file, info)
    return info
