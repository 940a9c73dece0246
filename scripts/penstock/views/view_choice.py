"""The views of a running command: a live display, plain lines, JSON lines, or nothing.

Guarantee: a view is a Sink. It never raises (a closed or broken stream silences it), may be
called from any thread, and after `close()` the terminal is as it was. Names out of a source are
shown escaped. Colours only on a terminal, and not under NO_COLOR.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol, TextIO

from penstock.views.line_view import JsonLines, Lines

if TYPE_CHECKING:
    from penstock.core.events import Event

KINDS = ("auto", "rich", "lines", "json", "off")


class View(Protocol):
    """A sink that has an end."""

    def __call__(self, event: Event) -> None: ...

    def close(self) -> None: ...


class Silent:
    """Shows nothing."""

    def __call__(self, event: Event) -> None: ...

    def close(self) -> None: ...


def open_view(kind: str, stream: TextIO) -> View:
    """The view of that kind (one of KINDS); `auto` is `rich` on a terminal that can, else `lines`."""
    if kind == "auto":
        kind = "rich" if _is_terminal(stream) and os.environ.get("TERM", "dumb") != "dumb" else "lines"
    if kind == "rich":
        from penstock.views.live_view import LiveView  # rich takes 50 ms: only who shows it pays

        return LiveView(stream)
    if kind == "lines":
        return Lines(stream)
    if kind == "json":
        return JsonLines(stream)
    if kind == "off":
        return Silent()
    raise ValueError(f"no such view: {kind}")


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (OSError, ValueError):
        return False
