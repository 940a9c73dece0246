"""The report: one self-contained HTML page without scripts, whose policy forbids any request.

Every text from a source or cluster is escaped, even characters that would only deceive the eye. The page
contains the result as JSON. `templates/report.html.j2` is the page; this module chooses its content and
words, and imports Jinja2 late.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import human, run_steps, typed_json
from penstock.core.element_documents import Usage
from penstock.core.grades import EVIDENCE_GRADES, SOURCE_GRADES
from penstock.fs import small_files
from penstock.look.views import plots, summary

if TYPE_CHECKING:
    from pathlib import Path

    from jinja2 import Environment, Template

    from penstock.look.views.keys import ElementResult, Result, StepResult

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
    lanes = plots.lanes(elements)
    usage = data.get("usage", Usage())
    table = summary.rows(usage)
    failures, more = _failures(data)
    return _template().render(
        result=typed_json.plain(data),
        dataset=data.get("dataset", ""),
        status=data.get("status", "FAILED"),
        release=data.get("release"),
        why=data.get("why"),
        path=data.get("path"),
        figures=_figures(data),
        throughput=plots.throughput(data.get("throughput") or ()),
        histogram=plots.histogram(data.get("histogram") or ()),
        evidence=_evidence(data.get("evidence")),
        readings=[text for text in (data.get("carried"), data.get("read_after")) if text],
        steps=[_step(step) for step in data.get("steps") or ()],
        usage=table,
        usage_nodes=any(line.node_hours for line in table),
        usage_worst=summary.worst(usage),
        usage_sources=summary.sources(usage),
        queue=plots.queue(usage.spans),
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


def drawn(plot: plots.Plot) -> str:
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
    if speed := summary.rate(copied):
        figures.append((speed, "copied"))
    if nearest := summary.ceiling(data.get("ceiling")):
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
        for grade, files, size in summary.graded(evidence.get(key), order)
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
        rate=summary.rate(step) if moves else "",
        elements=human.count(step["elements"]) if step.get("elements") else "",
        why=f"{human.size(beside)} of them beside the copy" if beside else str(step.get("why", "")),
    )


def _legend(elements: Sequence[ElementResult]) -> list[tuple[str, str]]:
    """Return [(CSS class, step), ...] for the bars of `plots.lanes`."""
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
        text = summary.amount(data.get(key), noun)
        if text:
            rows.append((label, text))
    rows += [("Left out", kind) for kind in human.of_kinds(data.get("ignored") or {})]
    if links := summary.hard_links(data.get("hard_links")):
        rows.append(("Hard links", links))
    if moving := summary.moving(data.get("amended")):
        rows.append(("Moving source", moving))
    for label, moved in (("Read from source", data.get("bytes_in")), ("Written", data.get("bytes_out"))):
        if moved is not None:
            rows.append((label, human.size(moved)))
    if retries := summary.retries(data):
        rows.append(("Retries", retries))
    if table := data.get("usage", Usage()).file:
        rows.append(("Elements", table))
    reasons = dict.fromkeys(element.get("why") for element in data.get("elements") or ())
    rows += [("Engine", str(why)) for why in list(reasons)[:SHOWN_REASONS] if why]
    return rows
