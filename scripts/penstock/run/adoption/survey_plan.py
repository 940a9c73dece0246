"""From a listing to the shards of a comparison."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.core import run_documents
from penstock.core.balance import FILE_COST, Load, parts
from penstock.dataset import documents
from penstock.engine.checksums import COMBINABLE, listed
from penstock.jobs import adoption_store, array_job
from penstock.run.adoption import surveyed_files
from penstock.sources.registry import may_be_split
from penstock.tables.listing_file import read_listing
from penstock.tables.shards import FORM
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from penstock.config.settings import PlanConfig
    from penstock.core.dataset_documents import Adoption
    from penstock.core.layout import RunLayout
    from penstock.core.model import Entry
    from penstock.core.run_documents import PlanInfo
    from penstock.dataset.context import Context
    from penstock.tables.shards import ShardsWriter


def make(
    context: Context,
    folder: RunLayout,
    adoption: Adoption,
    sources: Sequence[str],
    places: Iterable[Path],
) -> None:
    """Write the shards, then `plan.json`; an existing plan stays. `places` as in `mark_differed`."""
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
        form=FORM,
    )
    mark_differed(folder, made, adoption, places)
    documents.write(run_documents.PLAN, folder.plan, made)


def mark_differed(folder: RunLayout, plan: PlanInfo, adoption: Adoption, places: Iterable[Path]) -> None:
    """Have the bytes compared of each file that differed in another comparison of the tree. Any listing of
    the source counts. `places`: the folders of comparisons. Durable on return."""
    paths: set[str] = set()
    for earlier in adoption_store.of_tree(adoption, places):
        theirs = documents.load(run_documents.PLAN, earlier.plan)
        paths |= surveyed_files.differed(earlier, theirs)
        if adoption_store.differences(earlier).exists():
            paths.update(item.path for item in adoption_store.kept(earlier) if item.kind == "content")
    surveyed_files.mark_differed(folder, plan, paths)


def _write(context: Context, folder: RunLayout, sources: Sequence[str], shards: ShardsWriter) -> None:
    shards.at(0)  # also for an empty listing
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
