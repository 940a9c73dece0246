"""Plain text laid out for a terminal: fields with titles, lines with a style, rows in columns, the table of
checks, and the results of commands. Every name of a result is escaped, so that no file name can control a
terminal.
"""

from __future__ import annotations

import os
import textwrap
from collections import Counter
from collections.abc import Mapping
from itertools import chain, repeat, zip_longest
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import human
from penstock.core.grades import SOON
from penstock.core.human import TEXT, brief, printable
from penstock.core.run_steps import VERDICTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TextIO

    from penstock.core.catalogue_rows import OwnerJson, PinnedBy, ReleaseRow
    from penstock.core.findings import AuditShown
    from penstock.core.run_steps import CheckResult
    from penstock.core.step_results import Collected, DryRunResult, Preview


# Text blocks: fields that have a title with a text beside it, and wrapped texts.
#
# Every text is escaped. No line exceeds the given columns, except for long paths or URLs.

TITLE = 14  # columns of a title, including the blanks behind it


def field(title: str, text: str, columns: int = 0, *, width: int = TITLE) -> list[str]:
    """Return a field's lines, wrapped to `columns` (0: not wrapped). `width`: columns of the title."""
    lines = wrap(text, columns - width - 2) if columns else [printable(text)]
    titles = chain([title], repeat(""))
    return [f"  {name:<{width}}{line}".rstrip() for name, line in zip(titles, lines or [""], strict=False)]


def wrap(text: str, columns: int, *, below: str = "") -> list[str]:
    """Return the lines of a text. All lines except the first begin with `below`."""
    return textwrap.wrap(
        printable(text), columns, subsequent_indent=below, break_long_words=False, break_on_hyphens=False
    )


# Styled lines, for a terminal or a pipe. Colours appear only on a terminal, and not under NO_COLOR.


class Line(NamedTuple):
    """An escaped line, and its style in rich's words."""

    text: str
    style: str = ""


def show(stream: TextIO, lines: Iterable[Line]) -> None:
    """Write the lines, in colours on a terminal. Raises OSError."""
    if not stream.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        stream.writelines(f"{line.text}\n" for line in lines)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text(line.text, line.style))


# Rows in columns that fit a terminal, as plain lines.
#
# Every cell is escaped, and is a single line before it is wrapped. To fit into `columns`, the widest columns
# that may shrink are wrapped, each down to its least width.

COLUMNS = 80  # characters of a line by default
GAP = 2  # blanks between two columns


class TextColumn(NamedTuple):
    """One column: its title, and whether its cells are right-aligned."""

    title: str
    right: bool = False
    least: int = 0  # least width of the column when it is wrapped; 0 if it is never wrapped


def lines(
    titles: Sequence[TextColumn], rows: Sequence[Sequence[str]], *, columns: int = COLUMNS, indent: int = 0
) -> list[list[str]]:
    """Return the title's lines, then the lines of each row. Empty columns are left out."""
    shown = [[printable(cell) for cell in row] for row in rows]
    kept = [index for index in range(len(titles)) if any(row[index] for row in shown)]
    head = [titles[index] for index in kept]
    cells = [[column.title for column in head], *([row[index] for index in kept] for row in shown)]
    widths = _widths(head, cells, columns - indent)
    return [[" " * indent + line for line in _wrapped(head, row, widths)] for row in cells]


def _widths(head: Sequence[TextColumn], cells: Sequence[Sequence[str]], room: int) -> list[int]:
    widths = [max(len(row[index]) for row in cells) for index in range(len(head))]
    least = [
        max(column.least, len(column.title)) if column.least else width
        for column, width in zip(head, widths, strict=True)
    ]
    while sum(widths) + GAP * (len(widths) - 1) > room:
        spare = [width - low for width, low in zip(widths, least, strict=True)]
        if not any(blanks > 0 for blanks in spare):
            break
        widest = max((index for index, blanks in enumerate(spare) if blanks > 0), key=widths.__getitem__)
        widths[widest] -= 1
    return widths


def _wrapped(head: Sequence[TextColumn], row: Sequence[str], widths: Sequence[int]) -> list[str]:
    cell_lines = [
        textwrap.wrap(cell, width) if len(cell) > width else [cell]
        for cell, width in zip(row, widths, strict=True)
    ]
    lines = []
    for line in zip_longest(*cell_lines, fillvalue=""):
        cells = [
            f"{text:>{width}}" if column.right else f"{text:<{width}}"
            for column, text, width in zip(head, line, widths, strict=True)
        ]
        lines.append((" " * GAP).join(cells).rstrip())
    return lines


# The results of checks as a table: verdict, subject and finding, then the wanted value and a remedy.
#
# Every text is escaped. Plain text has at most COLUMNS columns, except for long paths or commands. Colours
# appear only on a terminal, and not under NO_COLOR.

MOST_ABOUT = 34  # columns for the subject of a check, at most; longer texts wrap
VERDICT = max(map(len, VERDICTS)) + 2
STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "stop": "bold red"}


def plain_checks(title: str, results: Sequence[CheckResult], columns: int = COLUMNS) -> str:
    """Return the table as plain text, which ends in a line feed."""
    return "".join(f"{start}{rest}".rstrip() + "\n" for start, rest, _ in _lines(title, results, columns))


def show_checks(stream: TextIO, title: str, results: Sequence[CheckResult]) -> None:
    """Write the table, on a terminal in the terminal's width and with colours, else as plain text. Raises
    OSError."""
    if not stream.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        stream.write(plain_checks(title, results))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True)
    for start, rest, style in _lines(title, results, max(COLUMNS, console.width)):
        console.print(Text.assemble((start, style), rest))


def _lines(title: str, results: Sequence[CheckResult], columns: int) -> Iterator[tuple[str, str, str]]:
    """Yield (start of the line, its rest, style of the start) for each line."""
    about = min(MOST_ABOUT, max([len("LOOKED AT"), *(len(printable(result.about)) for result in results)]))
    room = columns - 4 - VERDICT - about
    yield printable(title), "", "bold"
    yield f"  {'VERDICT':<{VERDICT}}", f"{'LOOKED AT':<{about}}  FOUND", "dim"
    for result in results:
        texts = wrap(result.found, room)
        if result.verdict != "ok":
            texts += wrap(f"wanted: {result.wanted}", room) if result.wanted else []
            for line in f"to do: {result.mend}".split("\n") if result.mend else ():
                texts += wrap(line.strip(), room)
        verdict: str = result.verdict
        for left, right in zip_longest(wrap(result.about, about), texts, fillvalue=""):
            yield f"  {verdict:<{VERDICT}}", f"{left:<{about}}  {right}", STYLES[result.verdict]
            verdict = ""
    counts = Counter(result.verdict for result in results)
    phrases = [_counted(counts[verdict], verdict) for verdict in VERDICTS if counts[verdict]]
    yield f"  {', '.join(phrases) or 'nothing was looked at'}", "", ""


def _counted(count: int, verdict: str) -> str:
    return f"{count} ok" if verdict == "ok" else human.counted(count, verdict)


# Results of commands as plain text: findings, removals of gc, releases, readings of files, and previews of
# dry runs. Every name is escaped, so that no file name can control a terminal.

# The common text of audits, repairs and adoptions: a line for each finding, which begins with a mark.

SHOWN = 50
WIDTH = 12
METHODS = {
    "disk": "read from the servers' disks by direct I/O",
    "direct": "read past the page cache by direct I/O",
    "dropped": "read after the page cache was emptied of it",
    "cached": "read, perhaps from memory",
}


def last(shown: AuditShown) -> str:
    """Describe a release's last audit in one line: time, extent, result, and what closed its findings."""
    audit = shown.audit
    counts = ", ".join(f"{human.count(n)} {kind}" for kind, n in sorted(audit.counts.items()))
    much = f"{human.count(audit.files)} of {human.counted(audit.of_files, 'file')}, {human.size(audit.bytes)}"
    left = ", ".join(f"{human.count(n)} {kind}" for kind, n in sorted(audit.skipped.items()))
    details = ", ".join(filter(None, (counts, left and f"not read: {left}")))
    text = f"{audit.ended}, {audit.choice}, {much}: {audit.status}" + (f" ({details})" * bool(details))
    return f"{text}, {shown.closed}" if shown.closed else text


def table(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return a line for each (mark, path, why)."""
    return [f"  {mark} {human.printable(path)}  ({human.printable(why)})" for mark, path, why in rows]


def line(title: str, value: object) -> str:
    """Return a line of a table, with its title."""
    return field(title, str(value), width=WIDTH)[0]


PINS = 20  # number of ended pins that are named, at most


def collected(removal: Collected, columns: int = 0) -> str:
    """Return a block for one dataset. Lines beyond `columns` (0: no limit) continue indented."""
    gone = [release for release in removal["releases"] if release["removed"]]
    would = removal["dry_run"]
    verb = "would remove" if would else "removed"
    lines = [
        f"{removal['dataset']}: {verb} {len(gone)} of {human.counted(len(removal['releases']), 'release')}"
    ]
    for release in removal["releases"]:
        amount = f"{human.size(release['bytes'])} in {human.counted(release['files'], 'file')}"
        mark, why = ("-", "nothing holds it") if release["removed"] else ("=", "; ".join(release["held_by"]))
        lines.append(f"  {mark} {human.printable(release['release'])}  {amount}: {human.printable(why)}")
    for staging in removal["stagings"]:
        why = f": stays, {staging['why']}" if staging["why"] else ""
        lines.append(f"  {'=' if why else '-'} {human.printable(staging['staging'])}{human.printable(why)}")
    if removal["interrupted"]:
        what = human.counted(len(removal["interrupted"]), "folder")
        lines.append(f"  {what} of an interrupted removal {'would be' if would else 'were'} removed, too")
    lines += [f"  pin {human.printable(pin)}" for pin in removal["ended_pins"][:PINS]]
    if len(removal["ended_pins"]) > PINS:
        lines.append(f"  and {len(removal['ended_pins']) - PINS:,} more pins that stand no more")
    done = "would be" if would else "was"
    lines += [f"  pin {human.printable(name)} {done} taken back" for name in removal["unpinned"]]
    if gone or removal["interrupted"] or any(staging["removed"] for staging in removal["stagings"]):
        lines += removal["frees"].in_words("would free" if would else "freed, as counted before")
    if folder := removal.get("gone"):
        lines.append(f"  the dataset {'would go' if would else 'is gone'}, {human.printable(folder)}")
    if removal["waits"]:
        lines.append(f"  {human.printable(removal['waits'])}")
    return "".join(f"{text}\n" for line in lines for text in _wrapped_line(line, columns))


def _wrapped_line(line: str, columns: int) -> list[str]:
    if not columns or len(line) <= columns:
        return [line]
    below = " " * (len(line) - len(line.lstrip()) + 2)
    return wrap(line, columns, below=below)


# Texts common to releases, show and history. Only paths, digests and URLs exceed the given columns.


def problem(row: ReleaseRow) -> str:
    state = "HELD" if row["state"] == "held" else row["state"]
    return row["problem"] if state == "published" else f"{state}: {row['problem']}"


def said(text: str, indent: int, columns: int, style: str) -> list[Line]:
    wrapped = wrap(brief(text, TEXT), columns - indent - 2)
    return [Line(" " * (indent + 2 * (number > 0)) + line, style) for number, line in enumerate(wrapped)]


def moment(text: object) -> str:
    """Format `2026-03-14 12:03:11Z`."""
    return str(text or human.UNKNOWN).replace("T", " ", 1)


def last_pinned(pin: PinnedBy) -> str:
    return f"last pinned by {pin['by']}, {human.age(pin['age'])} ago"


def account(owner: OwnerJson | None) -> str:
    if owner is None:
        return human.UNKNOWN
    return owner["user"] or f"uid {owner['uid']}"


def carried(amount: object) -> str:
    """Describe the seal's `carried`; "" if every file was read.

    >>> carried({"files": 989010, "bytes": 1, "oldest_read": "2026-11-02T03:04:05Z"})
    'carried 989,010 files, the oldest reading of 2026-11-02'
    """
    if not isinstance(amount, Mapping) or not isinstance(files := amount.get("files"), int) or not files:
        return ""
    day = str(amount.get("oldest_read", ""))[:10]
    return f"carried {human.counted(files, 'file')}, the oldest reading of {day}"


def delay(read_after: object, *, servers: bool = False) -> str:
    """Describe the seal's `evidence.read_after`; "" if unknown. `servers`: whether servers may answer reads
    from their memory.

    >>> delay({"least": 190, "median": 2500, "soon": 7}, servers=True)
    'read back 3 min after writing at least, 41 min in the median'
    >>> delay({"least": 4, "median": 70, "soon": 7}, servers=True).partition("; ")[2]
    "a server's memory may have answered: `penstock audit --fraction` reads such files first"
    """
    if not isinstance(read_after, Mapping):
        return ""
    least, median = (human.age(read_after[name]) for name in ("least", "median"))
    text = f"read back {least} after writing at least, {median} in the median"
    if servers and read_after["median"] < SOON:
        text += "; a server's memory may have answered: `penstock audit --fraction` reads such files first"
    return text


# The preview of a dry run, as text, and the block of titled rows that list and plan print, too.


def preview(result: DryRunResult, step: str = "run") -> str:
    """Return a block for each dataset of `run.rehearsal`, and a list of the work that a dry run omits."""
    datasets = result["datasets"]
    verb = "read back" if step == "audit" else "staged"
    head = f"Dry run: {human.counted(len(datasets), 'dataset')} would be {verb}. Nothing was changed.\n"
    return head + "".join(_would(preview_of_dataset) for preview_of_dataset in datasets.values())


def _would(preview: Preview) -> str:
    amount = ""
    if preview.get("current") and "files" in preview:
        amount = f": {human.counted(preview['files'], 'file')}, {human.size(preview.get('bytes', 0))}"
    rows = [
        *(("Source", url) for url in preview["sources"]),
        ("Target", f"{preview['target']} ({preview['backend']} elements)"),
        ("Current", f"{preview['current']}{amount}" if preview.get("current") else "none"),
        ("State", preview.get("state", "")),
        ("Locked", preview.get("lock", "")),
        ("Would", preview.get("would", "")),
        ("Takes", " ".join(preview.get("takes", "").split())),
        ("Problem", " ".join(preview.get("problem", "").replace("\n", "; ").split())),
    ]
    return block(preview["dataset"], rows)


def block(dataset: str, rows: Sequence[tuple[str, str]]) -> str:
    """Return the dataset's name, and its rows of title and text, wrapped. Rows without text are omitted."""
    lines = [dataset]
    for title, text in rows:
        lines += field(title, text, COLUMNS) if text else []
    return "\n".join(lines) + "\n"
