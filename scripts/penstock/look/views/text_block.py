"""Text blocks: fields with a title each, beside which the text stands, and texts that are wrapped.

Guarantee: every text is escaped; no line has more than the given columns, but for a long path or URL, which
is never broken.
"""

from __future__ import annotations

import textwrap
from itertools import chain, repeat

from penstock.core.text import printable

TITLE = 14
"""Columns of a title and the blanks behind it."""


def field(title: str, text: str, columns: int = 0, *, width: int = TITLE) -> list[str]:
    """The lines of a field: a text that does not fit into `columns` goes on below itself; 0: it is one line.
    A title without a text is a line, too. `width`: the columns of the title."""
    lines = wrapped(text, columns - width - 2) if columns else [printable(text)]
    titles = chain([title], repeat(""))
    return [f"  {name:<{width}}{line}".rstrip() for name, line in zip(titles, lines or [""], strict=False)]


def wrapped(text: str, columns: int, *, below: str = "") -> list[str]:
    """The lines of a text; all but the first one begin with `below`."""
    return textwrap.wrap(
        printable(text), columns, subsequent_indent=below, break_long_words=False, break_on_hyphens=False
    )
