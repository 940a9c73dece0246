"""Jobs that make no release: audits, repairs, comparisons of a tree with a source.

A job's folder has the layout of a run, so that its elements (processes) run the code of copy and verify:

    run.json, plan.json, shards/, receipts/, outcomes/, progress/, arrays.jsonl, logs/: as in a run

A new kind of job needs:

- a row of `core.run_steps`, a call of `cut` with the job's rows, and a call of `describe`
- a row of `jobs.element`: an element's work on a shard
- its folders in `core.layout` (`dataset.staging_notice` for accounts that do not stage) and
  `dataset.submitted_arrays`
- special receipts, if any, in `dataset.receipts`
- the release's lock of audits, if it reads a release, and `keep.removals`, which drops its state
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import typed_json
from penstock.core.errors import NewerFormatError
from penstock.core.run_documents import PROBE_REPORT, RUN, Cut, PlanInfo, RunInfo
from penstock.dataset import documents
from penstock.dataset.documents import Run
from penstock.jobs import forecast
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.core.layout import DatasetLayout, RunLayout
    from penstock.core.run_documents import Load
    from penstock.dataset.context import Context
    from penstock.tables.run_tables import ShardsWriter
    from penstock.tables.tables import Form

STALE = 7 * 86400  # seconds (a week) after which a job's readings and fetched files are no longer used


def cut(
    context: Context,
    layout: DatasetLayout,
    folder: RunLayout,
    step: str,
    load: Load,
    write: Callable[[ShardsWriter], None],
    *,
    job: str,
    release: str = "",
    giants: int = 0,
    part_bytes: int,
    why: Sequence[str] = (),
    form: Form,
) -> PlanInfo:
    """Divide a job's rows into shards, balanced by the costs in `load`; return the plan, still to be written.

    `write` writes the rows, in order; the shards are durable on return. Shards of an attempt without a plan
    are removed first. `why` has the plan's reasons, except the reason for the number of shards. Raises
    NoSpaceError.
    """
    from penstock.tables.run_tables import ShardsWriter

    decision = forecast.shards(context, layout, context.config, load, step)
    if (shards := folder.shard(0).parent).exists():
        tree_removal.remove_tree(shards, context.spend)
    with ShardsWriter(folder.shard, Cut(load.cost, decision.shards), form) as writer:
        write(writer)
        made = writer.close()
    return PlanInfo(
        run=job,
        release=release,
        base=None,
        files=sum(shard.files for shard in made),
        bytes=sum(shard.bytes for shard in made),
        giants=giants,
        unchanged=0,
        unchanged_bytes=0,
        shards=tuple(made),
        part_bytes=part_bytes,
        folders=0,
        why=(decision.why, *why),
    )


def describe(
    layout: DatasetLayout,
    folder: RunLayout,
    job: str,
    release: str,
    *,
    created: str,
    listing: str,
    counts: tuple[int, int, int],
    config: Mapping[str, object],
    ignored: Mapping[str, int] = typed_json.NOTHING,
    sources: Sequence[str] = (),
    probed: RunLayout | None = None,
) -> Run:
    """Write `run.json`, which the job's elements read. Each call replaces it, since settings may change.

    `created` is UTC, ISO 8601; `counts` are the numbers of files, bytes and objects; `config` is frozen by
    `serialization.freeze`. `probed` is the run whose `probe.json`, if any, the job also uses. Raises
    NoSpaceError, FailedError.
    """
    files, size, scanned = counts
    info = RunInfo(
        run=job,
        dataset=layout.dataset,
        release=release,
        created=created,
        listing_digest=listing,
        files=files,
        bytes=size,
        scanned=scanned,
        root=str(layout.root),
        state_root=str(layout.state_root) if layout.state_root else None,
        config=config,
        ignored=ignored,
        sources=tuple(sources),
    )
    if probed is not None:
        _hand_on_probe(probed, folder)
    documents.write(RUN, folder.run_file, info)
    return Run(layout, info, folder)


def _hand_on_probe(published: RunLayout, folder: RunLayout) -> None:
    """Copy plan's probe. If the probe is unreadable, only penstock's table of file systems counts."""
    try:
        report = documents.load(PROBE_REPORT, published.probe)
    except (OSError, ValueError, NewerFormatError):
        return
    documents.write(PROBE_REPORT, folder.probe, report)
