"""Rows in columns that fit a terminal, as plain lines. Pure.

Guarantee: every cell is escaped and is one line before it is wrapped. A table has at most `columns` columns
where that can be done: the widest of the columns that may shrink are wrapped, each down to its least width.
"""

from __future__ import annotations

import textwrap
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS = 80
"""Characters of a line where the caller names no width."""
GAP = 2
"""Blanks between two columns."""


class TextColumn(NamedTuple):
    """One column: its title, and whether its cells stand at the right."""

    title: str
    right: bool = False
    least: int = 0
    """The width down to which it may be wrapped; 0: it is never wrapped."""


def lines(
    titles: Sequence[TextColumn], rows: Sequence[Sequence[str]], *, columns: int = COLUMNS, indent: int = 0
) -> list[list[str]]:
    """The title's lines, then those of each row. A column without a cell that says anything is left out."""
    shown = [[printable(cell) for cell in row] for row in rows]
    kept = [index for index in range(len(titles)) if any(row[index] for row in shown)]
    head = [titles[index] for index in kept]
    cells = [[one.title for one in head], *([row[index] for index in kept] for row in shown)]
    widths = _widths(head, cells, columns - indent)
    return [[" " * indent + line for line in _wrapped(head, row, widths)] for row in cells]


def _widths(head: Sequence[TextColumn], cells: Sequence[Sequence[str]], room: int) -> list[int]:
    widths = [max(len(row[index]) for row in cells) for index in range(len(head))]
    least = [
        max(one.least, len(one.title)) if one.least else width
        for one, width in zip(head, widths, strict=True)
    ]
    while sum(widths) + GAP * (len(widths) - 1) > room:
        spare = [width - low for width, low in zip(widths, least, strict=True)]
        if not any(one > 0 for one in spare):
            break
        widest = max((index for index, one in enumerate(spare) if one > 0), key=widths.__getitem__)
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
            f"{text:>{width}}" if one.right else f"{text:<{width}}"
            for one, text, width in zip(head, line, widths, strict=True)
        ]
        lines.append((" " * GAP).join(cells).rstrip())
    return lines
