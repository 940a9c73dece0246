"""`penstock plan`: how long the next run of a dataset will take, and what binds it.

Reads alone. The dataset's sources are listed into TMPDIR, and compared with the release that `current` names;
without a dataset, what a person assumes takes the listing's place. Each rate says where it comes from: the
configuration, the copy of an earlier release, or what a person gave; what is not known is named as such, and
bounds nothing.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.config.source_kinds import kind
from penstock.core import human
from penstock.core.balance import FILE_COST, Load
from penstock.core.ceilings import Known, Rate, Work, forecast
from penstock.core.checks import sentence
from penstock.core.documents.explanation import Explanation, SizeClass
from penstock.core.errors import ConfigError, PenstockError
from penstock.fs.capabilities import facts
from penstock.fs.owners import group_number
from penstock.jobs import known_ceilings
from penstock.jobs.forecast import FILE_SYSTEM_BLOCK, OnTarget, Totals, other_steps, require_room
from penstock.jobs.target_stores import TargetStores
from penstock.look import release_comparison
from penstock.look.difference import ADDED, CHANGED, UNPROVEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.config.assumption import Assumption
    from penstock.config.settings import Config
    from penstock.core.ceilings import Scope, Unit
    from penstock.core.documents.catalogue_rows import DiffCount
    from penstock.dataset.context import Context
    from penstock.look.release_comparison import Listing

BOUNDS = (128 << 10, 16 << 20, 1 << 30)
"""The sizes up to which files are counted together; larger ones up to `plan.giant_bytes`, then giants."""
GIVEN = "given"
"""The origin of a rate that a person assumed."""
KEYS_A_PAGE = 1000
"""How many keys a store of objects gives for one request of its listing."""
_GIVEN: Mapping[str, tuple[str, Scope]] = {
    "link": ("network link", "all"),
    "source": ("source", "all"),
    "writes": ("target's writes", "all"),
    "metadata": ("target's metadata", "all"),
    "nic": ("nodes' networks", "node"),
    "cpu": ("nodes' CPUs", "node"),
}
"""Names of ceilings for people, and whether a rate of it is of one node, by the names of an assumption."""


def assumed(given: Assumption) -> Explanation:
    """Of what a person assumes alone: no configuration, source or target is looked at. Raises ConfigError
    where neither bytes nor files are given."""
    if given.bytes is None and given.files is None:
        raise ConfigError(
            "nothing is said of the dataset's size",
            where="--assume",
            hint="add `20PB`, `200M files`, or both",
        )
    work = Work(given.files or 0, given.bytes)
    nodes = given.nodes or 1
    outlook = forecast(work, nodes, _ceilings({}, given))
    return Explanation("", work.files, work.bytes, work, nodes, outlook, _price(given, work, {}))


def of_dataset(context: Context, dataset: str, given: Assumption) -> Explanation:
    """Of the next run of a dataset; what is `given` goes before what is known otherwise. Raises what listing
    raises; FindingsError and PreflightError where the current release cannot be compared."""
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
    nodes = given.nodes or max(1, min(slots, shards))
    requests = _requests(config, dataset, copied, scanned)
    return Explanation(
        dataset,
        files,
        size,
        copied,
        nodes,
        forecast(copied, nodes, _ceilings(known_ceilings.known(config, layout), given)),
        _price(given, copied, requests),
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
    """What the cluster says, or why it says nothing."""
    try:
        context.cluster.check(("copy",))
        yield from map(sentence, context.cluster.start_results(("copy",)))
    except PenstockError as error:
        yield " ".join(str(error).split())


def _copied(changes: Mapping[str, DiffCount]) -> Work:
    """What differs has to be read at the source; files that are there under another name have not."""
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
    """As plan says it when it asks for room, or why there is none. Stripes of single files are not looked at:
    plan does that."""
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


def _ceilings(known: Mapping[str, Known], given: Assumption) -> list[Known]:
    """Those that are known, and those that were given in their place; the names that nobody gave a rate for
    stand without one."""
    ceilings = dict(known)
    for key, (name, scope) in _GIVEN.items():
        rate = given.rates.get(key)
        if rate is not None or key not in ceilings:
            unit: Unit = "operations" if key == "metadata" else "bytes"
            ceilings[key] = Known(name, scope, None if rate is None else Rate(rate, GIVEN), unit)
    return list(ceilings.values())


def _requests(config: Config, dataset: str, copied: Work, scanned: int) -> dict[str, int]:
    """Those of a dataset whose sources are all stores of objects."""
    sources = config.datasets[dataset].sources
    if any(kind(source.url, source.storage_options).place != "bucket" for source in sources):
        return {}
    return {"get": copied.files, "list": -(-scanned // KEYS_A_PAGE)}


def _price(given: Assumption, copied: Work, requests: Mapping[str, int]) -> float | None:
    if not given.prices:
        return None
    amounts = {**requests, "egress": copied.bytes or 0}
    return sum(price * amounts.get(name, 0) for name, price in given.prices.items())
