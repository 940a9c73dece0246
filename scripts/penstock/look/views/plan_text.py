"""The screens of `penstock plan` (the work of a run, its ceilings, and which ceiling limits it) and of
`penstock rehearse`. The latter has a table and a plot of the rates with different numbers of streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.estimates import Work, in_unit
from penstock.core.human import printable
from penstock.core.run_documents import Leg
from penstock.look.difference import KINDS, UNCHANGED
from penstock.look.views import html_report, plots, text_layout
from penstock.look.views.text_layout import COLUMNS, Line, TextColumn, lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.catalogue_rows import Explanation
    from penstock.core.estimates import Ceiling
    from penstock.core.run_documents import Rehearsal


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
    plot = plots.streams([(leg.streams, leg.rates[1]) for leg in rehearsal.legs], rehearsal.knee)
    return html_report.drawn(plot) if plot else ""
