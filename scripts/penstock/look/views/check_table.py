"""The results of checks as a table: verdict, what was checked, what was found; then what is wanted and what
to do.

Every text is escaped. Plain text has at most COLUMNS columns, but for long paths or commands. Colours appear
only on a terminal, and not under NO_COLOR.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.events import VERDICTS
from penstock.core.human import printable
from penstock.look.views.text_block import wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TextIO

    from penstock.core.events import CheckResult

COLUMNS = 80
MOST_ABOUT = 34  # columns for what was checked; longer texts wrap
VERDICT = max(map(len, VERDICTS)) + 2
STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "stop": "bold red"}


def plain(title: str, results: Sequence[CheckResult], columns: int = COLUMNS) -> str:
    """Return the table as lines; ends in a line feed."""
    return "".join(f"{start}{rest}".rstrip() + "\n" for start, rest, _ in _lines(title, results, columns))


def show(stream: TextIO, title: str, results: Sequence[CheckResult]) -> None:
    """Write the table, on a terminal in its width and with colours, else plain. Raises OSError."""
    if not stream.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        stream.write(plain(title, results))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True)
    for start, rest, style in _lines(title, results, max(COLUMNS, console.width)):
        console.print(Text.assemble((start, style), rest))


def _lines(title: str, results: Sequence[CheckResult], columns: int) -> Iterator[tuple[str, str, str]]:
    """Yield (start, rest, style of the start) of each line."""
    about = min(MOST_ABOUT, max([len("LOOKED AT"), *(len(printable(result.about)) for result in results)]))
    room = columns - 4 - VERDICT - about
    yield printable(title), "", "bold"
    yield f"  {'VERDICT':<{VERDICT}}", f"{'LOOKED AT':<{about}}  FOUND", "dim"
    for result in results:
        texts = wrapped(result.found, room)
        if result.verdict != "ok":
            texts += wrapped(f"wanted: {result.wanted}", room) if result.wanted else []
            texts += wrapped(f"to do: {result.mend}", room) if result.mend else []
        verdict: str = result.verdict
        for left, right in zip_longest(wrapped(result.about, about), texts, fillvalue=""):
            yield f"  {verdict:<{VERDICT}}", f"{left:<{about}}  {right}", STYLES[result.verdict]
            verdict = ""
    counts = Counter(result.verdict for result in results)
    phrases = [_counted(counts[verdict], verdict) for verdict in VERDICTS if counts[verdict]]
    yield f"  {', '.join(phrases) or 'nothing was looked at'}", "", ""


def _counted(count: int, verdict: str) -> str:
    return f"{count} ok" if verdict == "ok" else human.counted(count, verdict)
