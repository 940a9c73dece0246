"""The screen of `penstock rehearse`, and the table and plot of a sweep over numbers of streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.run_documents import Leg
from penstock.look.views import html_report, plots
from penstock.look.views.aligned_table import COLUMNS, TextColumn, lines
from penstock.look.views.styled_lines import Line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.run_documents import Rehearsal

_TITLES = ("STREAMS", "FILES", "BYTES", "FILES/S", "COPIED", "READ BACK", "KS")
_LEGS = (*(TextColumn(title, right=True) for title in _TITLES), TextColumn(""))


def render(rehearsal: Rehearsal, columns: int = COLUMNS) -> Iterator[Line]:
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
    """Return a line for each number of streams; sizes in bytes, rates a second."""
    titles = (*Leg._fields, "files_per_second", "bytes_per_second", "read_per_second", "knee")
    rows = [
        (*leg, *(round(rate, 1) for rate in leg.rates), int(leg.streams == rehearsal.knee))
        for leg in rehearsal.legs
    ]
    return "".join(",".join(map(str, row)) + "\n" for row in (titles, *rows))


def svg(rehearsal: Rehearsal) -> str:
    """Return the rates by streams as SVG; "" if no byte was copied."""
    plot = plots.streams([(leg.streams, leg.rates[1]) for leg in rehearsal.legs], rehearsal.knee)
    return html_report.drawn(plot) if plot else ""
