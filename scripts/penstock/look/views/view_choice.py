"""The views of a running command: a live display, plain lines, JSON lines, or nothing.

A view is a Sink: it never raises, and any thread may call it. If its stream breaks, it writes nothing more.
After `close()` the terminal is in its former state. Names from a source are escaped. Colours appear only on a
terminal, and not under NO_COLOR.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol, TextIO

from penstock.look.views.line_view import JsonLines, Lines, Silent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.run_steps import Event

KINDS = ("auto", "rich", "lines", "json", "off")


class View(Protocol):
    """A sink that can be closed, and prints lines beside the events."""

    def __call__(self, event: Event) -> None: ...

    def say(self, text: str) -> None: ...

    def failed(self, dataset: str, text: str, how: str = ...) -> None: ...

    def close(self) -> None: ...


def open_view(kind: str, stream: TextIO, datasets: Sequence[str] = ()) -> View:
    """Open the view of this kind (one of KINDS). `auto` means `rich` on a capable terminal, else `lines`. For
    several datasets, `rich` is a table with a line for each dataset."""
    if kind == "auto":
        kind = "rich" if _is_terminal(stream) and os.environ.get("TERM", "dumb") != "dumb" else "lines"
    if kind == "rich":
        # Importing rich takes 50 ms.
        if len(datasets) > 1:
            from penstock.look.views.live_view import LiveTable

            return LiveTable(stream, datasets)
        from penstock.look.views.live_view import LiveView

        return LiveView(stream)
    if kind == "lines":
        return Lines(stream)
    if kind == "json":
        return JsonLines(stream)
    if kind == "off":
        return Silent(stream)
    raise ValueError(f"no such view: {kind}")


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (OSError, ValueError):
        return False
