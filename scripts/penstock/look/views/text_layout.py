"""Plain text laid out for a terminal: fields with titles, lines with a style, rows in columns, and the table
of checks.
"""

from __future__ import annotations

import os
import textwrap
from collections import Counter
from itertools import chain, repeat, zip_longest
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import human
from penstock.core.human import printable
from penstock.core.run_steps import VERDICTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TextIO

    from penstock.core.run_steps import CheckResult


# Text blocks: fields that have a title with a text beside it, and wrapped texts.
#
# Every text is escaped. No line exceeds the given columns, except for long paths or URLs.

TITLE = 14  # columns of a title, including the blanks behind it


def field(title: str, text: str, columns: int = 0, *, width: int = TITLE) -> list[str]:
    """Return a field's lines, wrapped to `columns` (0: not wrapped). `width`: columns of the title."""
    lines = wrapped(text, columns - width - 2) if columns else [printable(text)]
    titles = chain([title], repeat(""))
    return [f"  {name:<{width}}{line}".rstrip() for name, line in zip(titles, lines or [""], strict=False)]


def wrapped(text: str, columns: int, *, below: str = "") -> list[str]:
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
        texts = wrapped(result.found, room)
        if result.verdict != "ok":
            texts += wrapped(f"wanted: {result.wanted}", room) if result.wanted else []
            for line in f"to do: {result.mend}".split("\n") if result.mend else ():
                texts += wrapped(line.strip(), room)
        verdict: str = result.verdict
        for left, right in zip_longest(wrapped(result.about, about), texts, fillvalue=""):
            yield f"  {verdict:<{VERDICT}}", f"{left:<{about}}  {right}", STYLES[result.verdict]
            verdict = ""
    counts = Counter(result.verdict for result in results)
    phrases = [_counted(counts[verdict], verdict) for verdict in VERDICTS if counts[verdict]]
    yield f"  {', '.join(phrases) or 'nothing was looked at'}", "", ""


def _counted(count: int, verdict: str) -> str:
    return f"{count} ok" if verdict == "ok" else human.counted(count, verdict)
