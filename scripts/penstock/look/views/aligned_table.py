"""Rows in columns that fit a terminal, as plain lines.

Every cell is escaped, and one line before it is wrapped. To fit into `columns`, the widest shrinkable columns
wrap, each down to its least width.
"""

from __future__ import annotations

import textwrap
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.human import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS = 80  # characters of a line by default
GAP = 2  # blanks between two columns


class TextColumn(NamedTuple):
    """One column: its title, and whether its cells are right-aligned."""

    title: str
    right: bool = False
    least: int = 0  # the least width when wrapped; 0: never wrapped


def lines(
    titles: Sequence[TextColumn], rows: Sequence[Sequence[str]], *, columns: int = COLUMNS, indent: int = 0
) -> list[list[str]]:
    """Return the title's lines, then those of each row. Empty columns are left out."""
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
