"""The end of a run of several datasets: a row for each, and one sentence.

Lines have at most `columns` columns, except for commands and paths. Every name is escaped. `!` marks rows
that need a person. An unknown figure is `-`, and a column without figures is left out.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import human
from penstock.core.grades import CARRIED, EVIDENCE_GRADES, in_words
from penstock.core.human import brief
from penstock.look.views import text_layout
from penstock.look.views.text_layout import Line, TextColumn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.seal import Seal

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
    closing = text_layout.wrapped(sentence(rows, code), columns)
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
