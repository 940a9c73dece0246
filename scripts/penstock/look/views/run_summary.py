"""The end of a run in words: the closing summary of a dataset, with the waits and use of its elements and its
row in the report of `snakemake --report`; and of several datasets a row for each, and one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import human
from penstock.core.estimates import in_unit
from penstock.core.grades import CARRIED, EVIDENCE_GRADES, SOURCE_GRADES, in_words
from penstock.core.human import brief
from penstock.look.views import text_layout
from penstock.look.views.text_layout import Line, TextColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.core.element_documents import StepUse, Usage, Worst
    from penstock.core.estimates import Reached
    from penstock.core.seal import Seal
    from penstock.look.views.keys import AmendedFiles, Result, StepResult, TimedAmount


_WORST: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "queue_wait": ("Longest in the queue", human.duration),
    "seconds": ("Ran longest", human.duration),
    "memory_peak": ("Most memory", human.size),
    "cpu_efficiency": ("Used its CPUs least", lambda fraction: f"{fraction:.0%} of them"),
}
_BY = {
    "slurmdbd": "SLURM's accounting",
    "controller": "the start times that the controller saw",
    "element": "the elements themselves",
}


class UsageRow(NamedTuple):
    """A line of the report's table, as texts; "" means unknown."""

    step: str
    elements: str
    node_hours: str
    core_hours: str
    efficiency: str
    memory: str
    wait: str
    run: str


def rows(usage: Usage) -> list[UsageRow]:
    """Return a line for each step, and a line for all steps."""
    return [
        UsageRow(
            step=line.step or "all",
            elements=human.count(line.elements),
            node_hours=hours(line.node_hours),
            core_hours=hours(line.core_hours),
            efficiency=_percent(line.cpu_efficiency),
            memory=human.size(line.memory_peak) if line.memory_peak else "",
            wait=_span(line.wait_median, line.wait_longest),
            run=_span(line.run_median, line.run_longest),
        )
        for line in usage.steps
    ]


def worst(usage: Usage) -> list[tuple[str, str]]:
    """Return the extreme elements: [(the figure's title, the element and its amount), ...]."""
    lines = []
    for extreme in usage.worst:
        if extreme.column in _WORST:
            what, shown = _WORST[extreme.column]
            lines.append((what, f"{element(extreme)}: {shown(extreme.value)}"))
    return lines


def sources(usage: Usage) -> list[str]:
    """Say from which origins the figures are, and which figures are missing."""
    said = [
        f"{title}: by {_counted(usage.sources[key])}."
        for title, key in (("Queue wait", "queue_wait"), ("Run time and hours", "hours"))
        if usage.sources.get(key)
    ]
    if usage.steps:
        said.append(
            "CPU efficiency and memory: by the elements themselves. "
            "Peak memory is the largest of one element, the sum of its processes' own peaks."
        )
    return [*said, *(f"{note[:1].upper()}{note[1:]}." for note in usage.notes)]


def summary_lines(usage: Usage | None) -> list[tuple[str, str]]:
    """Return [(title, text), ...] of the closing summary."""
    if usage is None or not usage.steps:
        return []
    line = usage.steps[-1]
    longest = line.wait_longest
    waited = _line(line.wait_median, longest, usage, "queue_wait")
    return [
        ("Resources", _resources(line)),
        ("Queue wait", waited if longest and longest >= 1 else ""),
        ("Run time", _line(line.run_median, line.run_longest, usage, "seconds")),
    ]


def hours(value: float | None) -> str:
    """Format `0.004`, `0.52`, `1,234`."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def element(extreme: Worst) -> str:
    where = f" on {extreme.node}" if extreme.node else ""
    return f"{extreme.step} {extreme.element}{where}"


def _resources(line: StepUse) -> str:
    phrases = []
    if line.node_hours is not None:
        phrases.append(f"{hours(line.node_hours)} node-hours")
    if line.core_hours is not None:
        phrases.append(f"{hours(line.core_hours)} core-hours")
    if line.cpu_efficiency is not None:
        phrases.append(f"CPU {_percent(line.cpu_efficiency)}")
    if line.memory_peak:
        phrases.append(f"memory {human.size(line.memory_peak)}")
    return ", ".join(phrases)


def _line(middle: float | None, most: float | None, usage: Usage, column: str) -> str:
    if middle is None or most is None:
        return ""
    named = [extreme for extreme in usage.worst if extreme.column == column]
    which = f" ({named[0].step} {named[0].element})" if named else ""
    return f"median {human.duration(middle)}, longest {human.duration(most)}{which}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _span(middle: float | None, most: float | None) -> str:
    if middle is None or most is None:
        return ""
    return f"{human.duration(middle)}, {human.duration(most)}"


def _counted(by: Mapping[str, int]) -> str:
    sources_used = [(name, by[name]) for name in _BY if by.get(name)]
    if len(sources_used) == 1:
        return _BY[sources_used[0][0]]
    return ", ".join(f"{_BY[name]} ({human.count(number)})" for name, number in sources_used)


# The closing summary of a run: the amounts scanned, unchanged, copied and verified, and the STATUS.
#
# It is plain text without colour, with every name escaped, in at most 80 columns except for paths and URLs.
# Unknown figures are left out, never shown as 0. Figures that are 0 are left out, too.

SHOWN_FAILURES = 10


def render(result: Result) -> str:
    """Render one dataset's result (`look.views.keys`). The text ends in a line feed."""
    lines = [(human.printable(str(result.get("dataset", "penstock"))), "")]
    lines += _amounts(result)
    lines += _evidence(result.get("evidence"))
    readings = {"Carried over": result.get("carried"), "Read after": result.get("read_after")}
    lines += [(title, human.printable(str(value))) for title, value in readings.items() if value]
    places = {"Release": result.get("release"), "Current": _other_current(result)}
    places |= {"Path": result.get("path"), "Report": result.get("report")}
    lines += [(title, human.printable(str(value))) for title, value in places.items() if value]
    if result.get("last_audit"):
        lines.append(("Last audit", text_layout.last(result["last_audit"])))
    lines += [("Warning", human.printable(str(text))) for text in result.get("warnings") or ()]
    lines += _failures(result)
    status = str(result.get("status") or "FAILED")
    why = human.printable(str(result.get("why") or ""))
    lines.append(("STATUS", f"{status} ({why})" if why else status))
    text = [lines[0][0], *(line for title, value in lines[1:] for line in text_layout.field(title, value))]
    return "\n".join(text) + "\n"


def short(result: Result) -> str:
    """Render a run that passed in four lines: what is published, how it was checked, where it is, the report;
    warnings follow. Render any other run in full."""
    if result.get("status") != "PASSED" or "copied" not in result:
        return render(result)
    copied, why = result["copied"], result.get("why")
    texts = [f"PASSED ({why})" if why else "PASSED"]
    if files := result.get("files"):
        holds = f"{human.counted(files, 'file')}, {human.size(result.get('bytes', 0))}"
        texts = [f"{texts[0]}, {result['release']}: {holds}"]
    if copied.get("files"):
        texts.append(", ".join(filter(None, (f"copied {amount(copied)}", rate(copied)))))
    grades = [f"{title.split()[0].lower()} {text}" for title, text in _evidence(result.get("evidence"))]
    rows = [
        ("STATUS", "; ".join(texts)),
        ("Checked", "; ".join([*grades, *_retried(result)])),
        ("Current", _other_current(result)),
        ("Path", str(result.get("path", ""))),
        ("Report", str(result.get("report", ""))),
        *(("Warning", str(text)) for text in result.get("warnings") or ()),
    ]
    lines = [human.printable(result["dataset"])]
    for title, text in rows:
        lines += text_layout.field(title, human.printable(text)) if text else []
    return "\n".join(lines) + "\n"


def _other_current(result: Result) -> str:
    """Return the release that `current` names; "" if it is the run's own."""
    current = result.get("current_release")
    return "" if current == result.get("release") else current or ""


def _retried(result: Result) -> list[str]:
    return [f"tried again: {human.count(result['retries'])}"] if result.get("retries") else []


def amount(value: object, noun: str = "file") -> str:
    """Format an amount: `18,801 files, 3.30 GiB in 23 s`; "" if unknown. For verify: `31 files, 3.60 GiB, of
    them 2.40 GiB beside the copy, 1.20 GiB after it in 5.0 s`."""
    if isinstance(value, int):
        return human.counted(value, noun)
    if not isinstance(value, Mapping) or "files" not in value:
        return ""
    text = human.counted(int(value["files"]), noun)
    if value.get("bytes") is not None:
        text += f", {human.size(value['bytes'])}"
    moved, beside = value.get("moved_bytes"), value.get("beside_copy_bytes", 0)
    parts = [f"{human.size(beside)} beside the copy"] if beside else []
    if moved is not None and moved < value.get("bytes", 0):
        when = "after it" if beside else "by the last command"
        parts += [f"{human.size(moved)} {when} in {human.duration(value['moved_seconds'])}"] if moved else []
    elif value.get("seconds") and not beside:
        text += f" in {human.duration(value['seconds'])}"
    return f"{text}, of them {', '.join(parts)}" if parts else text


def hard_links(counts: object) -> str:
    """Describe `RunInfo.hard_links`; "" if there are no hard links."""
    if not isinstance(counts, Mapping) or not counts.get("files"):
        return ""
    others = human.counted(int(counts["of"]), "other")
    verb = "is a link" if counts["files"] == 1 else "are links"
    more = human.size(int(counts["bytes"]))
    return f"{human.counted(int(counts['files']), 'file')} {verb} of {others}, {more} more"


def _amounts(result: Result) -> list[tuple[str, str]]:
    left_out = human.printable(", ".join(human.of_kinds(result.get("ignored") or {})))
    giants = result.get("giants")
    parts = f" in {human.counted(result['parts'], 'part')}" if giants and result.get("parts") else ""
    rows = [
        ("Scanned", amount(result.get("scanned"), "object")),
        ("Left out", left_out),
        ("Hard links", hard_links(result.get("hard_links"))),
        ("Moving source", moving(result.get("amended"))),
        ("Unchanged", _some(result.get("unchanged"))),
        ("Renamed", _some(result.get("renamed"))),
        ("Taken over", _some(result.get("taken"))),
        ("Copied", _some(result.get("copied"))),
        ("Resumed", _resumed(result.get("resumed"))),
        ("Verified", _some(result.get("verified"))),
        ("Giants", human.count(giants) + parts if giants else ""),
        ("Failed", human.counted(result["failed"], "file") if result.get("failed") else ""),
        ("Retries", retries(result)),
        *_speeds(result),
        ("Ceiling", " of ".join(ceiling(result.get("ceiling")))),
        ("Distance", distance(result.get("pib_miles_an_hour"))),
        ("Steps took", _steps_took(result)),
        *summary_lines(result.get("usage")),
    ]
    return [(title, value) for title, value in rows if value]


def moving(amended: AmendedFiles | None) -> str:
    """Describe how a source changed during the copy, so that the release mixes several moments of the source;
    "" if it did not change. `amended`: from the seal."""
    if not amended:
        return ""
    changed = human.counted(amended["changed"], "file")
    span = f"{amended['from']} to {amended['until']}"
    return f"{changed} newer than listed, {human.count(amended['gone'])} gone; no one moment: {span}"


def _resumed(files: TimedAmount | None) -> str:
    """Format the amount that earlier commands did, which the rows above include."""
    return f"{_some(files)} of these, done by commands before" if _some(files) else ""


def _steps_took(result: Result) -> str:
    """Format the steps' time, without their startup. For a resumed step, only the last command counts."""
    if result.get("seconds") is None:
        return ""
    resumed = " since the run was resumed" if (result.get("resumed") or {}).get("files") else ""
    return human.duration(result["seconds"]) + resumed


def rate(moved: TimedAmount | StepResult) -> str:
    """Format the rate: the amount that one command moved itself over its time; "" if 0 or unknown."""
    size = moved.get("moved_bytes", moved.get("bytes"))
    seconds = moved.get("moved_seconds", moved.get("seconds"))
    return human.speed(size, seconds) if size and seconds else ""


def _some(value: TimedAmount | None) -> str:
    return amount(value) if (value or {}).get("files") else ""


def _speeds(result: Result) -> list[tuple[str, str]]:
    """Return the speeds of reading from the source and of writing to the target, in one row if equal."""
    speeds = [_speed(result.get(key), result.get("copied")) for key in ("bytes_in", "bytes_out")]
    if speeds[0] == speeds[1]:
        return [("Speed", speeds[0])]
    return list(zip(("Speed in", "Speed out"), speeds, strict=True))


def _speed(count: object, copied: object) -> str:
    """Format the speed of the last command that copied, over the time of its copy."""
    seconds = copied.get("moved_seconds", copied.get("seconds")) if isinstance(copied, Mapping) else None
    if not isinstance(count, int) or not seconds:
        return ""
    return f"{human.speed(count, seconds)} ({human.size(count)})"


def retries(result: Result) -> str:
    """Format retries: `1,234: 1,000 HTTP 503, 230 ECONNRESET`; "" if there were no retries."""
    if not result.get("retries"):
        return ""
    causes = [f"{human.count(number)} {why}" for why, number in (result.get("retried") or {}).items()]
    return human.printable(": ".join(filter(None, (human.count(result["retries"]), ", ".join(causes)))))


def ceiling(nearest: Reached | None) -> tuple[str, ...]:
    """Format `96 %` and `network link (2.33 GiB/s)`; () if no ceiling is known."""
    if nearest is None:
        return ()
    whole = in_unit(nearest.rate, nearest.unit)
    return f"{human.digits(100 * nearest.share)} %", f"{nearest.name} ({whole})"


def distance(figure: float | None) -> str:
    """Format `147 PiB-miles an hour`; "" if the distance is unknown."""
    return f"{human.digits(figure)} PiB-miles an hour" if figure else ""


def _evidence(evidence: object) -> list[tuple[str, str]]:
    if not isinstance(evidence, Mapping):
        return []
    rows = []
    for title, key, order in (("Source", "source", SOURCE_GRADES), ("Storage", "storage", EVIDENCE_GRADES)):
        grades = graded(evidence.get(key), order)
        text = ", ".join(f"{grade} {human.count(files)}" for grade, files, _ in grades)
        if text:
            rows.append((f"{title} proof", text))
    return rows


def graded(grades: object, order: tuple[str, ...] = ()) -> list[tuple[str, int, int]]:
    """Return [(grade, files, bytes), ...], strongest grade first, without empty grades."""
    if not isinstance(grades, Mapping):
        return []
    rows = []
    for grade, value in grades.items():
        files = value.get("files", 0) if isinstance(value, Mapping) else int(value)
        size = value.get("bytes", 0) if isinstance(value, Mapping) else 0
        if files:
            rows.append((str(grade), int(files), int(size)))
    return sorted(rows, key=lambda row: -order.index(row[0]) if row[0] in order else 1)


def _failures(result: Result) -> list[tuple[str, str]]:
    failures = list(result.get("failures") or ())
    rows = []
    for failure in failures[:SHOWN_FAILURES]:
        path, why = (human.printable(str(failure.get(key, ""))) for key in ("path", "why"))
        rows.append(("", f"{path}: {why}"))
    more = max(int(result.get("failed") or 0), len(failures)) - len(rows)
    if more > 0 and rows:
        rows.append(("", f"and {human.count(more)} more, in the report"))
    return rows


def labels(result: Result, file: str) -> dict[str, str]:
    """Return a row of the report's table, by column. `file`: the file of the run to which the row links."""
    return {
        "Dataset": human.printable(str(result.get("dataset", ""))),
        "Release": human.printable(str(result.get("release", ""))),
        "Status": str(result.get("status") or "FAILED"),
        "Unchanged": amount(result.get("unchanged")),
        "Copied": amount(result.get("copied")),
        "Verified": amount(result.get("verified")),
        "File": file,
    }


# The end of a run of several datasets: a row for each, and one sentence.
#
# Lines have at most `columns` columns, except for commands and paths. Every name is escaped. `!` marks rows
# that need a person. An unknown figure is `-`, and a column without figures is left out.

READY, FAILED, DAMAGED, STOPPED = "ready", "failed", "damaged", "stopped"
KINDS = (READY, FAILED, DAMAGED, STOPPED)
NAMED = 5  # number of datasets that the sentence names for one reason, at most; it counts all of them
REASONS = 3  # number of reasons that the sentence gives for one kind, at most
REASON = 50  # characters of a reason in the sentence, at most
_COLUMNS = (
    TextColumn("  DATASET", least=18),
    TextColumn("RESULT", least=12),
    TextColumn("COPIED", right=True),
    TextColumn("CARRIED", right=True),
    TextColumn("TIME", right=True),
    TextColumn("PROOF", least=12),
)


class Row(NamedTuple):
    """The result of this run for one dataset."""

    dataset: str
    kind: str  # one of KINDS; all kinds except READY need a person
    result: str  # the result in a word: `published`, `unchanged`, `FAILED`
    why: str = ""  # a short reason for the result; "" if the kind is READY
    copied: int | None = None  # bytes that were copied; None if none were, or if unknown
    carried: int | None = None  # bytes of the release that were on the target already
    seconds: float | None = None  # working time of this run's steps
    proof: str = ""


def proof(seal: Seal, now: float, *, fresh: bool, servers: bool) -> str:
    """Describe the weakest proof of a release: `cold`, `cold, another node; carried: oldest 19 d`, `of 14
    Nov`. For a release that is older than this run (not `fresh`), describe the day of publication. `servers`:
    whether the file system's servers may have answered from memory (`grades.audit_grade`)."""
    if not fresh:
        return f"of {_day(seal.sealed, now)}"
    proven = {grade for grade, amount in seal.evidence.storage.items() if amount.files}
    grades = [grade for grade in EVIDENCE_GRADES if grade in proven - {CARRIED}]
    methods = {method for method, amount in seal.evidence.methods.items() if amount.files} - {CARRIED}
    phrases = [in_words(grades[0], methods, servers=servers)] if grades else []
    if seal.carried is not None and seal.carried.files:
        age = human.age(now - _moment(seal.carried.oldest_read).timestamp())
        phrases.append(f"carried: oldest {age}")
    return "; ".join(phrases)


def table(rows: Sequence[Row], columns: int = text_layout.COLUMNS) -> list[Line]:
    """Return the table's lines. Rows that need a person come first."""
    order = sorted(rows, key=lambda row: row.kind == READY)
    cells = [_cells(row) for row in order]
    # A column that has only `-` counts as empty.
    empty = [all(row[index] == human.UNKNOWN for row in cells) for index in range(len(_COLUMNS))]
    shown = [["" if empty[index] else cell for index, cell in enumerate(row)] for row in cells]
    head, *blocks = text_layout.lines(_COLUMNS, shown, columns=columns)
    lines = [Line(text, "bold") for text in head]
    for row, block in zip(order, blocks, strict=True):
        style = "" if row.kind == READY else "bold red"
        lines += [Line(text, style) for text in block]
    return lines


def sentence(rows: Sequence[Row], code: int) -> str:
    """Return `3 of 4 are ready, 1 failed: c (there is no such bucket). Exit status 3.` Datasets that failed
    for one reason are grouped: `3 failed: b, e (no space is left), c (busy)`."""
    ready = sum(row.kind == READY for row in rows)
    phrases = [f"{human.count(ready)} of {human.count(len(rows))} {'is' if ready == 1 else 'are'} ready"]
    for kind in KINDS[1:]:
        if names := [row for row in rows if row.kind == kind]:
            verb = ("is " if len(names) == 1 else "are ") if kind == DAMAGED else ""
            kept = " (what was done is kept)" if kind == STOPPED else ""
            phrases.append(f"{human.count(len(names))} {verb}{kind}{kept}: {_named(names)}")
    return ", ".join(phrases) + "." + (f" Exit status {code}." if code else "")


def ending(
    rows: Sequence[Row], code: int, *, again: str, report: str, columns: int = text_layout.COLUMNS
) -> list[Line]:
    """Return the table, the sentence, the command that retries failed datasets, and the reports' place."""
    closing = text_layout.wrap(sentence(rows, code), columns)
    lines = [*table(rows, columns), Line(""), *(Line(text, "bold") for text in closing)]
    if again:
        lines.append(Line(f"again:  {human.printable(again)}"))
    if report:
        lines.append(Line(f"report: {human.printable(report)}"))
    return lines


def _cells(row: Row) -> list[str]:
    mark = "  " if row.kind == READY else "! "
    return [
        mark + row.dataset,
        row.result,
        human.size(row.copied) if row.copied is not None else human.UNKNOWN,
        human.size(row.carried) if row.carried is not None else human.UNKNOWN,
        _duration(row.seconds) if row.seconds is not None else human.UNKNOWN,
        row.proof or human.UNKNOWN,
    ]


def _duration(seconds: float) -> str:
    """Format `51 s`, `14 min`, `3 h 07 min`."""
    return f"{round(seconds / 60)} min" if 59.5 <= seconds < 3570 else human.duration(seconds)


def _named(rows: Sequence[Row]) -> str:
    """Format `b, e (no space is left), c (busy), and 12 for other reasons`."""
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        by_reason.setdefault(row.why, []).append(row.dataset)
    shown, left = [], len(rows)
    for why, names in list(by_reason.items())[:REASONS]:
        named = ", ".join(names[:NAMED])
        left -= len(names)
        more = f" and {human.count(len(names) - NAMED)} more" if len(names) > NAMED else ""
        shown.append(f"{named}{more} ({brief(why, REASON)})" if why else f"{named}{more}")
    return ", ".join([*shown, *([f"and {human.count(left)} for other reasons"] if left else [])])


def _moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def _day(text: str, now: float) -> str:
    """Format `14 Nov`; in another year `14 Nov 2025`."""
    moment = _moment(text)
    year = "" if moment.year == datetime.fromtimestamp(now, UTC).year else f" {moment.year}"
    return f"{moment.day} {moment:%b}{year}"
