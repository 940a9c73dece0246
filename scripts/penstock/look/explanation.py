"""`penstock plan`: explains how long the next run of a dataset takes, and which resource limits it.

The sources are listed into TMPDIR and compared with the current release. Without a dataset, a person's
assumptions replace the listing. Each rate states its origin: the configuration, an earlier release's copy, or
an assumption. Unknown rates are reported as unknown, and treated as no limit.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.config.source_kinds import kind
from penstock.core import human
from penstock.core.catalogue_rows import Explanation, SizeClass
from penstock.core.errors import ConfigError, PenstockError
from penstock.core.estimates import (
    Known,
    Rate,
    Work,
    forecast,
)
from penstock.core.run_documents import FILE_COST, Load
from penstock.core.run_steps import sentence
from penstock.fs.capabilities import facts
from penstock.fs.owners import group_number
from penstock.jobs import forecast as known_ceilings
from penstock.jobs.forecast import FILE_SYSTEM_BLOCK, OnTarget, Totals, other_steps, require_room
from penstock.jobs.target_room import TargetStores
from penstock.look import release_comparison
from penstock.look.difference import ADDED, CHANGED, UNPROVEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.config.quantities import Assumption
    from penstock.config.settings import Config
    from penstock.core.catalogue_rows import DiffCount
    from penstock.core.estimates import Scope, Unit
    from penstock.dataset.context import Context
    from penstock.look.release_comparison import Listing

# upper bounds, in bytes, of the size classes below `plan.giant_bytes` (files of that size or more are giants)
BOUNDS = (128 << 10, 16 << 20, 1 << 30)
GIVEN = "given"  # name for the origin of an assumed rate
KEYS_A_PAGE = 1000  # number of keys that an object store returns for one listing request
# {name in an assumption: (the ceiling's readable name, whether the rate is that of one node)}
_GIVEN: Mapping[str, tuple[str, Scope]] = {
    "link": ("network link", "all"),
    "source": ("source", "all"),
    "writes": ("target's writes", "all"),
    "metadata": ("target's metadata", "all"),
    "nic": ("nodes' networks", "node"),
    "cpu": ("nodes' CPUs", "node"),
}


def assumed(assumption: Assumption) -> Explanation:
    """Explain a run from assumptions alone. Raises ConfigError if neither bytes nor files are given."""
    if assumption.bytes is None and assumption.files is None:
        raise ConfigError(
            "nothing is said of the dataset's size",
            where="--assume",
            hint="add `20PB`, `200M files`, or both",
        )
    work = Work(assumption.files or 0, assumption.bytes)
    nodes = assumption.nodes or 1
    outlook = forecast(work, nodes, _ceilings({}, assumption))
    return Explanation("", work.files, work.bytes, work, nodes, outlook, _price(assumption, work, {}))


def of_dataset(context: Context, dataset: str, assumption: Assumption) -> Explanation:
    """Explain the next run of a dataset. `assumption` overrides known figures. Raises the errors of listing,
    and FindingsError or PreflightError if the current release cannot be compared."""
    config, layout = context.config, context.layout(dataset)
    queue = list(_queue(context))
    with release_comparison.listing(context, dataset) as now:
        classes = list(_classes(now, config))
        current = ""
        changes: Mapping[str, DiffCount] = {}
        if os.path.lexists(layout.current):
            current, changes = release_comparison.counts(layout, now)
        files, size, scanned = now.gathered.files, now.gathered.bytes, now.gathered.scanned
    copied = _copied(changes) if current else Work(files, size)
    slots = context.cluster.slots("copy")
    load = Load((copied.bytes or 0) + FILE_COST * copied.files, copied.bytes or 0, copied.files)
    shards = known_ceilings.shards(context, layout, config, load, "copy", "verify").shards
    nodes = assumption.nodes or max(1, min(slots, shards))
    requests = _requests(config, dataset, copied, scanned)
    return Explanation(
        dataset,
        files,
        size,
        copied,
        nodes,
        forecast(copied, nodes, _ceilings(known_ceilings.known(config, layout), assumption)),
        _price(assumption, copied, requests),
        current,
        changes,
        classes,
        shards,
        other_steps(layout, files),
        requests,
        queue,
        list(_space(context, dataset, files, size, copied)),
    )


def _queue(context: Context) -> Iterator[str]:
    """Yield the cluster's statements about its queue, or the reason why it makes none."""
    try:
        context.cluster.check(("copy",))
        yield from map(sentence, context.cluster.start_results(("copy",)))
    except PenstockError as error:
        yield " ".join(str(error).split())


def _copied(changes: Mapping[str, DiffCount]) -> Work:
    """Sum up the changed files that must be read at the source. Renamed files need not be read."""
    fetched = [changes[kind] for kind in (CHANGED, UNPROVEN, ADDED)]
    return Work(sum(count.files for count in fetched), sum(count.bytes for count in fetched))


def _classes(now: Listing, config: Config) -> Iterator[SizeClass]:
    import pyarrow.compute as pc

    giant = config.plan.giant_bytes
    bounds = [*(bound for bound in BOUNDS if bound < giant - 1), giant - 1]
    files, sizes = [0] * (len(bounds) + 1), [0] * (len(bounds) + 1)
    for batch in now.rows(["size"]):
        column = batch["size"]
        for index, (low, high) in enumerate(pairwise([-1, *bounds, (1 << 63) - 1])):
            inside = pc.and_(pc.greater(column, low), pc.less_equal(column, high))
            chosen = column.filter(inside)
            files[index] += len(chosen)
            sizes[index] += pc.sum(chosen).as_py() or 0
    for most, count, size in zip([*bounds, None], files, sizes, strict=True):
        yield SizeClass(most, count, size)


def _space(context: Context, dataset: str, files: int, size: int, copied: Work) -> Iterator[str]:
    """Yield the space that the run needs, as plan computes it, or why it is lacking. Only plan checks the
    stripes of single files."""
    layout, target = context.layout(dataset), context.config.target
    totals = Totals()
    totals.add((), OnTarget(files - copied.files, size - (copied.bytes or 0)))
    totals.files, totals.bytes = files, size
    totals.blocks = (copied.bytes or 0) + copied.files * FILE_SYSTEM_BLOCK // 2
    try:
        room = facts(layout.root)
        text = require_room(layout, totals, target.kept(room.total_bytes))
        yield f"{text}, and leaves {human.size(max(0, room.free_bytes - totals.blocks))}"
        group = context.dataset(dataset).permissions.group
        gid = None if group is None else group_number(group)
        yield from map(sentence, TargetStores(layout, target, gid).check(totals))
    except (PenstockError, OSError) as error:
        yield " ".join(str(error).split())


def _ceilings(measured: Mapping[str, Known], assumption: Assumption) -> list[Known]:
    """Return the known ceilings, overridden by assumptions. Names without a rate are left out."""
    ceilings = dict(measured)
    for key, (name, scope) in _GIVEN.items():
        rate = assumption.rates.get(key)
        if rate is not None or key not in ceilings:
            unit: Unit = "operations" if key == "metadata" else "bytes"
            ceilings[key] = Known(name, scope, None if rate is None else Rate(rate, GIVEN), unit)
    return list(ceilings.values())


def _requests(config: Config, dataset: str, copied: Work, scanned: int) -> dict[str, int]:
    """Return the requests of a dataset whose sources are all object stores."""
    sources = config.datasets[dataset].sources
    if any(kind(source.url, source.storage_options).place != "bucket" for source in sources):
        return {}
    return {"get": copied.files, "list": -(-scanned // KEYS_A_PAGE)}


def _price(assumption: Assumption, copied: Work, requests: Mapping[str, int]) -> float | None:
    if not assumption.prices:
        return None
    amounts = {**requests, "egress": copied.bytes or 0}
    return sum(price * amounts.get(name, 0) for name, price in assumption.prices.items())
