"""The report: one self-contained HTML page without scripts, whose policy forbids any request; and its plots,
as shapes. Functions return None if they have nothing to plot.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from penstock.core import human, run_steps, typed_json
from penstock.core.element_documents import Usage
from penstock.core.grades import EVIDENCE_GRADES, SOURCE_GRADES
from penstock.fs import small_files
from penstock.look.views import run_summary

if TYPE_CHECKING:
    from pathlib import Path

    from jinja2 import Environment, Template

    from penstock.look.views.keys import ElementResult, Result, StepResult


# The report's plots, as shapes. Functions return None if they have nothing to plot.
#
# `templates/plots.svg.j2` draws them as inline SVG and escapes their texts.

WIDTH, HEIGHT = 480, 230
LEFT, RIGHT, TOP, BOTTOM = 74, 10, 12, 30
BUCKETS = 120
MAX_LANES = 64
MAX_BARS = 4000


@dataclass(frozen=True, slots=True)
class PlotLine:
    """A horizontal line of the grid."""

    shape: ClassVar[str] = "line"
    x1: float
    x2: float
    y: float


@dataclass(frozen=True, slots=True)
class Label:
    """Text at a point. `anchor` says which part of the text is at the point: `start`, `middle` or `end`."""

    shape: ClassVar[str] = "label"
    x: float
    y: float
    text: str
    anchor: str = "start"


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle from its upper left corner. `style`: a CSS class. `title`: text shown under the mouse."""

    shape: ClassVar[str] = "bar"
    style: str
    x: float
    y: float
    width: float
    height: float
    radius: int
    title: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through points from left to right, with the area down to `base`."""

    shape: ClassVar[str] = "curve"
    points: list[tuple[float, float]]
    base: float


Mark = PlotLine | Label | Bar | Curve


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing of `width` by `height` units, x to the right and y down. Later marks cover earlier ones."""

    title: str
    width: int
    height: int
    marks: list[Mark]

    @property
    def bars(self) -> list[Bar]:
        return [mark for mark in self.marks if isinstance(mark, Bar)]


def throughput(samples: Sequence[Sequence[float]]) -> Plot | None:
    """Plot the rate over time from cumulative [seconds, bytes, ...] samples."""
    points = rates(samples)
    if len(points) < 2:
        return None
    end, most = points[-1][0], max(rate for _, rate in points)
    top, step = scale(most)
    if not top or end <= 0:
        return None
    plot_width, plot_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(at: float, rate: float) -> tuple[float, float]:
        return LEFT + at / end * plot_width, TOP + (1 - rate / top) * plot_height

    marks: list[Mark] = []
    for index in range(round(top / step) + 1):
        y = place(0, index * step)[1]
        marks.append(PlotLine(LEFT, WIDTH - RIGHT, y))
        marks.append(Label(LEFT - 8, y + 4, human.rate(index * step) if index else "0", "end"))
    marks.append(Curve([place(*point) for point in points], base=TOP + plot_height))
    for fraction, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        label = human.duration(fraction * end) if fraction else "0"
        marks.append(Label(LEFT + fraction * plot_width, HEIGHT - 8, label, anchor))
    return Plot("Throughput over time", WIDTH, HEIGHT, marks)


def rates(samples: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Return at most BUCKETS + 1 points [(seconds, bytes per second)]. Backward steps are dropped."""
    clean: list[tuple[float, float]] = []
    for sample in samples:
        at, count = float(sample[0]), float(sample[1])
        if not (math.isfinite(at) and math.isfinite(count)):
            continue
        if not clean or (at > clean[-1][0] and count >= clean[-1][1]):
            clean.append((at, count))
    if len(clean) < 2:
        return []
    begin, end = clean[0][0], clean[-1][0]
    width = (end - begin) / min(BUCKETS, len(clean) - 1)
    points: list[tuple[float, float]] = []
    last = clean[0]
    for at, count in clean[1:]:
        if at - last[0] >= width * 0.999 or at == end:
            rate = (count - last[1]) / (at - last[0])
            if not points:
                points.append((0.0, rate))
            points.append((at - begin, rate))
            last = (at, count)
    return points


def scale(most: float) -> tuple[float, float]:
    """Return (top, step) of an axis of three to five round steps in binary units."""
    if most <= 0 or not math.isfinite(most):
        return 0.0, 0.0
    unit = 1024.0 ** max(0, math.floor(math.log(most, 1024)))
    for step in (0.25, 0.5, 1, 2, 2.5, 5, 10, 20, 25, 50, 100, 200, 250):
        if most <= step * unit * 5:
            return math.ceil(most / (step * unit)) * step * unit, step * unit
    return math.ceil(most / unit / 256) * 256 * unit, 256 * unit


def streams(legs: Sequence[tuple[int, float]], knee: int) -> Plot | None:
    """Plot the rate (bytes per second) as a bar for each number of streams. The `knee` is marked."""
    top, step = scale(max((rate for _, rate in legs), default=0.0))
    if not top:
        return None
    height, slot = HEIGHT - TOP - BOTTOM, (WIDTH - LEFT - RIGHT) / len(legs)
    marks: list[Mark] = []
    for index in range(round(top / step) + 1):
        y = TOP + (1 - index * step / top) * height
        marks.append(PlotLine(LEFT, WIDTH - RIGHT, y))
        marks.append(Label(LEFT - 8, y + 4, human.rate(index * step) if index else "0", "end"))
    marks.append(Label(LEFT - 8, HEIGHT - 8, "streams", "end"))
    for index, (number, rate) in enumerate(legs):
        x, tall = LEFT + (index + 0.2) * slot, rate / top * height
        title = f"{human.counted(number, 'stream')}: {human.rate(rate)}"
        style = "a" if number == knee else "b"
        marks.append(Bar(style, x, TOP + height - tall, slot * 0.6, tall, 2, title))
        marks.append(Label(x + slot * 0.3, HEIGHT - 8, str(number), "middle"))
    return Plot("Rate by streams", WIDTH, HEIGHT, marks)


def histogram(rows: Sequence[Sequence[int]]) -> Plot | None:
    """Plot files and bytes by file size, as fractions of all files and of all bytes."""
    used = [index for index, (_, number, _) in enumerate(rows) if number]
    if not used:
        return None
    rows = rows[used[0] : used[-1] + 1]
    files, total = sum(number for _, number, _ in rows), max(sum(size for *_, size in rows), 1)
    most = max(max(number / files, size / total) for _, number, size in rows)
    plot_height = HEIGHT - TOP - BOTTOM - 8
    left = 10
    slot = (WIDTH - left - RIGHT) / len(rows)
    bar = min(slot * 0.36, 34)
    base = TOP + 8 + plot_height
    marks: list[Mark] = [PlotLine(left, WIDTH - RIGHT, base)]
    for index, (upper, number, size) in enumerate(rows):
        middle = left + (index + 0.5) * slot
        bound = human.size(upper).replace(".00 ", " ").replace(".0 ", " ")
        for fraction, x, style, text in (
            (number / files, middle - bar - 1, "a", human.counted(number, "file")),
            (size / total, middle + 1, "b", human.size(size)),
        ):
            height = max(fraction / most * plot_height, 1.5 if fraction else 0)
            title = f"up to {bound}: {text} ({fraction:.1%})"
            marks.append(Bar(style, x, base - height, bar, height, 2, title))
        marks.append(Label(middle, HEIGHT - 10, bound.replace(" ", "").replace("iB", ""), "middle"))
    return Plot("Sizes of the files", WIDTH, HEIGHT, marks)


def queue(timed: Sequence[tuple[float, float, float]]) -> Plot | None:
    """Plot how many elements worked and, above that, how many queued: the mean in each of BUCKETS time spans.
    `timed`: as `element_documents.Usage.spans`. None if no element waited for a second."""
    if len(timed) < 2 or max(start - submitted for submitted, start, _ in timed) < 1:
        return None
    begin, end = min(span[0] for span in timed), max(span[2] for span in timed)
    width = (end - begin) / BUCKETS
    running, waiting = [0.0] * BUCKETS, [0.0] * BUCKETS
    for submitted, start, stop in timed:
        _spread(waiting, (submitted - begin) / width, (start - begin) / width)
        _spread(running, (start - begin) / width, (stop - begin) / width)
    top = math.ceil(max(map(sum, zip(running, waiting, strict=True))) - 1e-6)
    full, left, height = 1000, 40, 170
    base, scale_y, slot = height - BOTTOM, (height - TOP - BOTTOM) / top, (full - left - RIGHT) / BUCKETS
    marks: list[Mark] = [PlotLine(left, full - RIGHT, TOP), PlotLine(left, full - RIGHT, base)]
    marks += [Label(left - 8, TOP + 4, human.count(top), "end"), Label(left - 8, base + 4, "0", "end")]
    for index, (work, wait) in enumerate(zip(running, waiting, strict=True)):
        title = f"{work:.1f} at work, {wait:.1f} in the queue"
        y = float(base)
        for style, number in (("a", work), ("d", wait)):
            if number >= 0.005:
                y -= number * scale_y
                x = left + index * slot
                marks.append(Bar(style, x, y, slot, number * scale_y, 0, title))
    marks.append(Label(left, height - 8, "0"))
    marks.append(Label(full - RIGHT, height - 8, human.duration(end - begin), "end"))
    return Plot("Elements in the queue and at work", full, height, marks)


def _spread(buckets: list[float], first: float, last: float) -> None:
    """Add to each bucket the fraction of the bucket that is between `first` and `last`."""
    for index in range(max(0, int(first)), min(len(buckets), math.ceil(last))):
        buckets[index] += max(0.0, min(last, index + 1) - max(first, index))


def element_lanes(elements: Sequence[ElementResult]) -> Plot | None:
    """Plot a lane for each node (several if its elements overlapped), with a bar for each attempt."""
    timed = [
        element
        for element in elements
        if element.get("started") and float(element.get("ended") or 0) >= float(element["started"])
    ][:MAX_BARS]
    if not timed:
        return None
    begin = min(float(element["started"]) for element in timed)
    end = max(float(element["ended"]) for element in timed)
    rows = _rows(timed)
    more = len(rows) - MAX_LANES
    rows = rows[:MAX_LANES]
    width, left, lane = 1000, 150, 22
    height = TOP + len(rows) * lane + BOTTOM
    span = max(end - begin, 1e-3)
    marks: list[Mark] = []
    previous = ""
    for index, (node, work) in enumerate(rows):
        y = TOP + index * lane
        if node != previous:
            marks.append(Label(0, y + 15, node[:22]))
        previous = node
        for element in work:
            x = left + (float(element["started"]) - begin) / span * (width - left - RIGHT)
            long = (float(element["ended"]) - float(element["started"])) / span * (width - left - RIGHT)
            style = run_steps.colour(str(element.get("step")))
            marks.append(Bar(style, x, y + 2, max(long, 2), lane - 5, 3, _about(element)))
    y = height - 8
    marks.append(Label(left, y, "0"))
    marks.append(Label(width - RIGHT, y, human.duration(span), "end"))
    if more > 0:
        marks.append(Label(0, y, f"and {human.counted(more, 'more lane')}"))
    return Plot("Elements by node", width, height, marks)


def _rows(elements: Sequence[ElementResult]) -> list[tuple[str, list[ElementResult]]]:
    """Put elements into lanes, sorted by node. Each element goes into its node's first free lane."""
    by_node: dict[str, list[list[ElementResult]]] = {}
    for element in sorted(elements, key=lambda element: float(element["started"])):
        free = by_node.setdefault(str(element.get("node") or "this host"), [])
        for row in free:
            if float(row[-1]["ended"]) <= float(element["started"]):
                row.append(element)
                break
        else:
            free.append([element])
    return [(node, row) for node in sorted(by_node) for row in by_node[node]]


def _about(element: ElementResult) -> str:
    seconds = float(element["ended"]) - float(element["started"])
    text = f"{element.get('step', '')} {element.get('index', '')}"
    if element.get("attempt"):
        text += f", attempt {element['attempt']}"
    text += f": {human.duration(seconds)}"
    if element.get("bytes"):
        text += f", {human.size(element['bytes'])}"
        moved = element.get("moved_bytes", element["bytes"])
        if moved < element["bytes"]:
            text += f", of them {human.size(moved)} by this attempt"
        text += f", {human.speed(moved, seconds)}" if moved else ""
    return text


# The report: one self-contained HTML page without scripts, whose policy forbids any request.
#
# Every text from a source or cluster is escaped, even characters that would only deceive the eye. The page
# contains the result as JSON. `templates/report.html.j2` is the page; this module chooses its content and
# words, and imports Jinja2 late.

MEANINGS = {
    "full": "a checksum of the whole object, stated by the source, held",
    "composite": "the source's checksum over its parts' checksums held",
    "etag-md5": "the etag was the MD5 of the bytes",
    "size": "the source states nothing: size and version alone",
    "cold-other-node": "read back past the node's caches, on a node that did not write it",
    "cold": "read back past the caches of the node that wrote it",
    "reread": "read back; caches could not be ruled out",
    "carried": "linked and not read for this release; read earlier, unchanged by all that a stat shows",
    "written": "written durably, not read back",
    "disk": "by direct I/O, from the disks of the file system's servers",
    "direct": "by direct I/O, past the page cache; where there are servers, their memory may have answered",
    "dropped": "after the page cache was seen to be empty of it; servers as above",
    "cached": "through the page cache",
    "unread": "not at all",
}
_PLAIN = (
    "text{font:12px sans-serif;fill:#5b6876}.grid{stroke:#dde3e9}"
    ".a{fill:#1668b8}.b{fill:#9db8d2}svg{background:#fff}"
)
SHOWN_FAILURES = 500
SHOWN_REASONS = 4


class StepRow(NamedTuple):
    """A line of the table of steps, as texts; "" means unknown."""

    name: str
    status: str
    time: str
    files: str
    size: str
    rate: str
    elements: str
    why: str


def write(path: Path, data: Result) -> None:
    """Render `data` (`look.views.keys.Result`) to `path`, durably. A link to an existing page is replaced,
    not followed; to a device it writes. Raises OSError, and ConfigError for a file that is no page of
    penstock. Such a file is kept."""
    page = render(data).encode()
    with small_files.output(path, small_files.PAGE) as file:
        file.stream.write(page)
        file.close()


def has_neighbours(path: Path) -> bool:
    """Whether the page is a file, beside which a table may be written, and not a device or stream."""
    return small_files.is_file(path)


def render(data: Result) -> str:
    """Render the page. Equal `data` give equal pages."""
    elements = data.get("elements") or ()
    lanes = element_lanes(elements)
    usage = data.get("usage", Usage())
    table = run_summary.rows(usage)
    failures, more = _failures(data)
    return _template().render(
        result=typed_json.plain(data),
        dataset=data.get("dataset", ""),
        status=data.get("status", "FAILED"),
        release=data.get("release"),
        why=data.get("why"),
        path=data.get("path"),
        figures=_figures(data),
        throughput=throughput(data.get("throughput") or ()),
        histogram=histogram(data.get("histogram") or ()),
        evidence=_evidence(data.get("evidence")),
        readings=[text for text in (data.get("carried"), data.get("read_after")) if text],
        steps=[_step(step) for step in data.get("steps") or ()],
        usage=table,
        usage_nodes=any(line.node_hours for line in table),
        usage_worst=run_summary.worst(usage),
        usage_sources=run_summary.sources(usage),
        queue=queue(usage.spans),
        lanes=lanes,
        lanes_legend=_legend(elements),
        slowest=[
            (key, human.size(size), human.duration(seconds), human.speed(size, seconds))
            for seconds, size, key in data.get("slowest") or ()
        ],
        failures=failures,
        failures_more=more,
        warnings=data.get("warnings"),
        details=_details(data),
        version=data.get("version", ""),
    )


def drawn(plot: Plot) -> str:
    """Return a plot as a standalone SVG file."""
    drawing = _environment().get_template("plots.svg.j2").module.drawing(plot)  # type: ignore[attr-defined]
    svg = str(drawing).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ')
    return svg.replace("</svg>", f"<style>{_PLAIN}</style>\n</svg>\n")


def _template() -> Template:
    return _environment().get_template("report.html.j2")


@functools.cache
def _environment() -> Environment:
    """Load the templates. An undefined name in a template is an error."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("penstock.look.views"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["px"] = _px
    # `tojson` escapes <, >, & and ', so no name can end the script element with the JSON.
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "default": str}
    return environment


def _printable(value: object) -> object:
    """Replace characters that deceive the eye in a template's value, before it is escaped for HTML. HTML that
    a macro or filter already escaped is unchanged."""
    return value if hasattr(value, "__html__") else human.printable(str(value))


def _px(value: float) -> str:
    """Format a coordinate to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


def _figures(data: Result) -> list[tuple[str, str]]:
    """Return [(value, its title), ...], the large numbers at the top of the page."""
    copied = data.get("copied") or {}
    figures: list[tuple[str, str]] = []
    if data.get("files") is not None:
        figures.append((human.count(data["files"]), "files in the release"))
    if data.get("bytes") is not None:
        figures.append((human.size(data["bytes"]), "in the release"))
    if data.get("seconds") is not None:
        figures.append((human.duration(data["seconds"]), "time of the steps"))
    if speed := run_summary.rate(copied):
        figures.append((speed, "copied"))
    if nearest := run_summary.ceiling(data.get("ceiling")):
        share, whole = nearest
        figures.append((share, f"of {whole}"))
    if figure := data.get("pib_miles_an_hour"):
        figures.append((human.digits(figure), "PiB-miles an hour"))
    labels = {
        "unchanged": "unchanged, not fetched",
        "renamed": "of them renamed, known by their checksums",
        "taken": "taken over from a run that did not end",
        "copied": "copied",
        "verified": "verified",
    }
    for key, label in labels.items():
        value = data.get(key)
        always = key in ("copied", "verified")
        if isinstance(value, Mapping) and (value.get("files") or (always and "files" in value)):
            figures.append((human.count(value["files"]), f"files {label}"))
    if data.get("giants"):
        figures.append((human.count(data["giants"]), "giants, split in parts"))
    if data.get("failed") is not None:
        figures.append((human.count(data["failed"]), "files failed"))
    return figures


def _evidence(evidence: object) -> list[tuple[str, str, str, str, str]]:
    """Return [(kind of evidence, grade, meaning, files, bytes), ...], strongest grade first in each kind."""
    if not isinstance(evidence, Mapping):
        return []
    return [
        (title, grade, MEANINGS.get(grade, ""), human.count(files), human.size(size))
        for title, key, order in (
            ("Source's checksum", "source", SOURCE_GRADES),
            ("Stored bytes", "storage", EVIDENCE_GRADES),
            ("Read back", "methods", ()),
        )
        for grade, files, size in run_summary.graded(evidence.get(key), order)
    ]


def _step(step: StepResult) -> StepRow:
    seconds, size, beside = step.get("seconds"), step.get("bytes"), step.get("beside_copy_bytes")
    moves = step.get("step") in run_steps.MOVES_BYTES
    return StepRow(
        name=str(step.get("step", "")),
        status=str(step.get("status", "")),
        time=human.duration(seconds) if seconds is not None else "",
        files=human.count(step["files"]) if step.get("files") is not None else "",
        size=human.size(size) if size is not None else "",
        rate=run_summary.rate(step) if moves else "",
        elements=human.count(step["elements"]) if step.get("elements") else "",
        why=f"{human.size(beside)} of them beside the copy" if beside else str(step.get("why", "")),
    )


def _legend(elements: Sequence[ElementResult]) -> list[tuple[str, str]]:
    """Return [(CSS class, step), ...] for the bars of `element_lanes`."""
    steps = dict.fromkeys(str(element.get("step")) for element in elements)
    return [(run_steps.colour(step), step) for step in steps]


def _failures(data: Result) -> tuple[list[tuple[str, str]], str]:
    """Return [(path, why), ...] of failed files, and a text with their number if more failed."""
    failures = list(data.get("failures") or ())
    shown = [(item.get("path", ""), item.get("why", "")) for item in failures[:SHOWN_FAILURES]]
    total = max(int(data.get("failed") or 0), len(failures))
    return shown, f"first {len(shown)} of {human.count(total)}" if total > len(shown) else ""


def _details(data: Result) -> list[tuple[str, str]]:
    """Return [(label, value), ...] of the known details."""
    rows: list[tuple[str, str]] = [("Source", url) for url in data.get("sources") or ()]
    for label, key in (
        ("Target", "target"),
        ("File system", "file_system"),
        ("Durability", "durability"),
        ("Pointer", "current"),
        ("Run", "run"),
        ("Seal", "seal"),
        ("Listing", "listing_digest"),
        ("Started", "started"),
        ("Ended", "ended"),
    ):
        if value := data.get(key):
            rows.append((label, str(value)))
    for label, key, noun in (("Scanned", "scanned", "object"), ("Resumed", "resumed", "file")):
        text = run_summary.amount(data.get(key), noun)
        if text:
            rows.append((label, text))
    rows += [("Left out", kind) for kind in human.of_kinds(data.get("ignored") or {})]
    if links := run_summary.hard_links(data.get("hard_links")):
        rows.append(("Hard links", links))
    if moving := run_summary.moving(data.get("amended")):
        rows.append(("Moving source", moving))
    for label, moved in (("Read from source", data.get("bytes_in")), ("Written", data.get("bytes_out"))):
        if moved is not None:
            rows.append((label, human.size(moved)))
    if retries := run_summary.retries(data):
        rows.append(("Retries", retries))
    if table := data.get("usage", Usage()).file:
        rows.append(("Elements", table))
    reasons = dict.fromkeys(element.get("why") for element in data.get("elements") or ())
    rows += [("Engine", str(why)) for why in list(reasons)[:SHOWN_REASONS] if why]
    return rows
