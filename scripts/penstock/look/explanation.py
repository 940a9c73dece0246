"""`penstock plan`: explains how long the next run of a dataset takes, and which resource limits it. Also its
screen, and that of `penstock rehearse`, with a table and a plot of the rates with different numbers of
streams.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.config.source_kinds import kind
from penstock.core import human
from penstock.core.catalogue_rows import Explanation, SizeClass
from penstock.core.errors import ConfigError, PenstockError
from penstock.core.estimates import Known, Rate, Work, forecast, in_unit
from penstock.core.human import printable
from penstock.core.run_documents import FILE_COST, Leg, Load
from penstock.core.run_steps import sentence
from penstock.fs.capabilities import facts
from penstock.fs.owners import group_number
from penstock.jobs import forecast as known_ceilings
from penstock.jobs.forecast import (
    FILE_SYSTEM_BLOCK,
    OnTarget,
    TargetStores,
    Totals,
    other_steps,
    require_room,
)
from penstock.look import release_comparison
from penstock.look.difference import ADDED, CHANGED, KINDS, UNCHANGED, UNPROVEN
from penstock.look.views import html_report, text_layout
from penstock.look.views.text_layout import COLUMNS, Line, TextColumn, lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.config.quantities import Assumption
    from penstock.config.settings import Config
    from penstock.core.catalogue_rows import DiffCount
    from penstock.core.estimates import Ceiling, Scope, Unit
    from penstock.core.run_documents import Rehearsal
    from penstock.dataset.context import Context
    from penstock.look.release_comparison import Listing


# `penstock plan`: explains how long the next run of a dataset takes, and which resource limits it.
#
# The sources are listed into TMPDIR and compared with the current release. Without a dataset, a person's
# assumptions replace the listing. Each rate states its origin: the configuration, an earlier release's copy,
# or an assumption. Unknown rates are reported as unknown, and treated as no limit.

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


# The screens of `penstock plan` (the work of a run, its ceilings, and which ceiling limits it) and of
# `penstock rehearse`. The latter has a table and a plot of the rates with different numbers of streams.

_CEILINGS = (
    TextColumn("CEILING", least=16),
    TextColumn("RATE", right=True),
    TextColumn("A NODE", right=True),
    TextColumn("ALONE", right=True),
    TextColumn(""),
)
_SIZES = (TextColumn("SIZE"), TextColumn("FILES", right=True), TextColumn("BYTES", right=True))
NOTHING = Work(0, 0)
BINDS = "<-- binds"


def render_plan(plan: Explanation, columns: int = COLUMNS) -> Iterator[Line]:
    """Render in at most `columns` columns if possible."""
    yield Line(printable(_head(plan)), "bold")
    if plan.classes:
        rows = [
            [
                "giants" if row.most is None else f"to {human.size(row.most)}",
                human.count(row.files),
                human.size(row.bytes),
            ]
            for row in plan.classes
            if row.files
        ]
        yield from (Line(text) for texts in lines(_SIZES, rows, columns=columns, indent=2) for text in texts)
    rated = [ceiling for ceiling in plan.forecast.ceilings if ceiling.rate is not None]
    if rated and plan.copied != NOTHING:
        rows = [_ceiling(ceiling, binds=ceiling is plan.forecast.binding) for ceiling in rated]
        for texts in lines(_CEILINGS, rows, columns=columns, indent=2):
            yield from (Line(text, "bold" if BINDS in text else "") for text in texts)
    for title, text in _rows(plan):
        yield from map(Line, text_layout.field(title, printable(text), columns))


def _head(plan: Explanation) -> str:
    size = "an unknown size" if plan.bytes is None else human.size(plan.bytes)
    nodes = human.counted(plan.nodes, "element" if plan.dataset else "node")
    if not plan.dataset:
        return f"{human.counted(plan.files, 'file')}, {size}, as given; {nodes}"
    text = f"{plan.dataset}: {human.counted(plan.files, 'file')}, {size}"
    text += f"; after release {plan.current}" if plan.current else "; first release"
    return f"{text}; {human.counted(plan.shards or 0, 'shard')}, {nodes} at once"


def _ceiling(ceiling: Ceiling, *, binds: bool) -> list[str]:
    rate, each = in_unit(ceiling.rate, ceiling.unit), in_unit(ceiling.each, ceiling.unit)
    alone = "" if ceiling.seconds is None else human.time_span(ceiling.seconds, ceiling.seconds)
    return [ceiling.name, rate, each, alone, BINDS if binds else ""]


def _rows(plan: Explanation) -> Iterator[tuple[str, str]]:
    nothing, ceilings = plan.copied == NOTHING, plan.forecast.ceilings
    if not nothing:
        by = {
            ceiling.origin: [other.name for other in ceilings if other.origin == ceiling.origin]
            for ceiling in ceilings
        }
        if unknown := by.pop("", []):
            yield "Not known", f"{', '.join(unknown)}; --assume gives them"
        if by:
            yield "Known by", "; ".join(f"{origin}: {', '.join(names)}" for origin, names in by.items())
    changes = {kind: plan.changes[kind] for kind in KINDS if kind in plan.changes and kind != UNCHANGED}
    if plan.current:
        counts = [f"{count.files:,} {kind}" for kind, count in changes.items() if count.files]
        yield "Changed", ", ".join(counts) or "nothing"
    if plan.current and not nothing:
        yield "Copied", f"{human.counted(plan.copied.files, 'file')}, {human.size(plan.copied.bytes or 0)}"
    if not nothing:
        yield from zip(("Queue", *[""] * len(plan.queue)), plan.queue, strict=False)
        yield from _times(plan)
    if plan.requests:
        counts = [f"{count:,} {name.upper()}" for name, count in plan.requests.items()]
        egress = human.size(plan.copied.bytes or 0)
        price = f"; costs {plan.price:,.2f}" if plan.price is not None else "; no price given"
        yield "Requests", f"{', '.join(counts)} or more; egress {egress}{price}"
    elif plan.price is not None:
        yield "Price", f"{plan.price:,.2f}"
    yield from zip(("Space", *[""] * len(plan.space)), plan.space, strict=False)


def _times(plan: Explanation) -> Iterator[tuple[str, str]]:
    outlook, others = plan.forecast, plan.other_steps
    if outlook.seconds is None or outlook.most is None:
        yield "Copy", "nobody knows how long: no ceiling is known"
        return
    yield "Copy", human.time_span(max(1.0, outlook.seconds), max(1.0, outlook.most))
    if others is None:
        yield "Then", "verify reads it once more; no run has shown how long that takes"
    else:
        after = human.duration(others.seconds)
        yield "Then", f"permissions, verify, publish: {after}, as of release {others.release}"
        both = human.time_span(others.seconds + outlook.seconds, others.seconds + outlook.most)
        yield "Current", f"{both} after the copy begins"
    yield "Cost", f"{outlook.seconds * plan.nodes / 3600:,.1f} node-hours of the copy"


_TITLES = ("STREAMS", "FILES", "BYTES", "FILES/S", "COPIED", "READ BACK", "KS")
_LEGS = (*(TextColumn(title, right=True) for title in _TITLES), TextColumn(""))


def render_rehearsal(rehearsal: Rehearsal, columns: int = COLUMNS) -> Iterator[Line]:
    """Render in at most `columns` columns if possible."""
    leg, name = rehearsal.leg, rehearsal.dataset
    copied = f"{human.counted(leg.files, 'file')}, {human.size(leg.bytes)}"
    seconds = sum(sweep_leg.seconds + sweep_leg.read_seconds for sweep_leg in rehearsal.legs)
    yield Line(f"{name}: rehearsed on {rehearsal.host} in {human.duration(seconds)}", "bold")
    rows = [
        _leg(sweep_leg, "<- knee" if sweep_leg.streams == rehearsal.knee else "")
        for sweep_leg in rehearsal.legs
    ]
    for texts in lines(_LEGS, rows, columns=columns, indent=2):
        yield from (Line(text, "bold" if "<" in text else "") for text in texts)
    of = f"of {human.counted(rehearsal.files, 'file')} below plan.giant_bytes"
    yield Line(f"sizes     {copied} {of}; KS distance {leg.distance:.3f}")
    yield Line(
        f"model     until now plans gave it {rehearsal.model_error + 1:.2g} times the time that it took"
    )
    if rehearsal.knee:
        yield Line(f"knee      {human.counted(rehearsal.knee, 'stream')}: `engine.streams: {rehearsal.knee}`")
    yield Line(f"kept      `penstock plan {name}` goes by these figures; nothing of the sample is left")


def _leg(leg: Leg, mark: str) -> list[str]:
    files, copied, read = leg.rates
    numbers = [human.count(leg.streams), human.count(leg.files), human.size(leg.bytes)]
    rates = [human.count(round(files)), human.rate(copied), human.rate(read)]
    return [*numbers, *rates, f"{leg.distance:.3f}", mark]


def csv(rehearsal: Rehearsal) -> str:
    """Return a line for each number of streams, with sizes in bytes and rates per second."""
    titles = (*Leg._fields, "files_per_second", "bytes_per_second", "read_per_second", "knee")
    rows = [
        (*leg, *(round(rate, 1) for rate in leg.rates), int(leg.streams == rehearsal.knee))
        for leg in rehearsal.legs
    ]
    return "".join(",".join(map(str, row)) + "\n" for row in (titles, *rows))


def svg(rehearsal: Rehearsal) -> str:
    """Return a plot of the rate over the number of streams, as SVG; "" if no byte was copied."""
    plot = html_report.streams([(leg.streams, leg.rates[1]) for leg in rehearsal.legs], rehearsal.knee)
    return html_report.drawn(plot) if plot else ""
