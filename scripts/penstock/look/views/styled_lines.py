"""Lines with a style each, on a terminal or in a pipe. Colours only on a terminal, and not under NO_COLOR."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO


class Line(NamedTuple):
    """One escaped line, and its style in rich's words."""

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
