"""Text blocks: fields with a title and the text beside it, and wrapped texts.

Every text is escaped; no line exceeds the given columns, but for long paths or URLs.
"""

from __future__ import annotations

import textwrap
from itertools import chain, repeat

from penstock.core.human import printable

TITLE = 14  # columns of a title with the blanks behind it


def field(title: str, text: str, columns: int = 0, *, width: int = TITLE) -> list[str]:
    """Return the lines of a field, wrapped to `columns` (0: one line). `width`: columns of the title."""
    lines = wrapped(text, columns - width - 2) if columns else [printable(text)]
    titles = chain([title], repeat(""))
    return [f"  {name:<{width}}{line}".rstrip() for name, line in zip(titles, lines or [""], strict=False)]


def wrapped(text: str, columns: int, *, below: str = "") -> list[str]:
    """Return the lines of a text; all but the first begin with `below`."""
    return textwrap.wrap(
        printable(text), columns, subsequent_indent=below, break_long_words=False, break_on_hyphens=False
    )
