"""The live display of a run of several datasets: a line for each, with step, share, rate and time left.

Warnings and failures stay above it. If the screen has too few lines, it shows datasets with a running step
and counts the others.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TextIO

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock.core import events, human
from penstock.core.events import Ended, Noted
from penstock.look.views import live_view
from penstock.look.views.line_view import PREFLIGHT
from penstock.look.views.live_view import FAILED, RESTS, WARNING, LiveView

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from penstock.core.events import Event
    from penstock.look.views.event_totals import Task

SPARE = 2  # free lines of the terminal: the cursor's, and one against scrolling
USUAL = 80  # columns of the table, on wider screens too, unless a name is long
MARGIN = 3  # free columns: a terminal shows `^C` behind the last line, which must not wrap
FIXED = 56  # columns for all but the name: step, bar of ten, share, rate, clock
WAITS, DONE, BAD, OFF = "waiting", "done", "failed", "stopped"
KINDS = ("at work", WAITS, DONE, BAD, OFF)  # in the order of the counting line


class _Line(NamedTuple):
    """A dataset's line. Its kind is WAITS, DONE, BAD, OFF, or "" while a step runs."""

    kind: str
    dataset: str
    state: str
    style: str
    task: Task | None = None


class LiveTable(LiveView):
    """Draws a line for each dataset."""

    def __init__(self, stream: TextIO, datasets: Sequence[str]) -> None:
        super().__init__(stream)
        self._datasets = tuple(datasets)
        self._latest: dict[str, Task] = {}  # each dataset's step that began last
        self._ends: dict[str, str] = {}  # the result of finished datasets
        self._failures: dict[str, str] = {}  # how broken-off steps ended, by dataset

    def failed(self, dataset: str, text: str, how: str = events.FAILED) -> None:
        with self._lock:
            self._failures[dataset] = how
            super().failed(dataset, text, how)

    def _show(self, event: Event, task: Task) -> None:
        if task.moves or isinstance(event, Ended):
            self._latest[event.dataset] = task
            self._ends.pop(event.dataset, None)
        if isinstance(event, Ended) and event.step == "report":
            self._ends[event.dataset] = "published" if event.result.get("status") == "PASSED" else "damaged"
        if isinstance(event, Ended) and event.step == "list" and event.result.get("published"):
            self._ends[event.dataset] = "unchanged"
        super()._show(event, task)

    def _above(self, event: Event, task: Task) -> Iterator[tuple[str, str]]:
        if isinstance(event, Noted) and event.step == PREFLIGHT:
            return  # it counts warnings shown above
        for text, style in super()._above(event, task):
            # How a step ended stands in its dataset's line.
            if not isinstance(event, Ended) or style == WARNING:
                yield text, style

    def _render(self) -> RenderableType:
        lines = [self._line(name) for name in self._datasets]
        room = max(2, self._console.height - SPARE)
        if len(lines) <= room:
            return self._table(lines)
        shown = [line for line in lines if not line.kind][: room - 1]
        kinds = Counter(line.kind or "at work" for line in lines)
        kinds["at work"] -= len(shown)
        count = ", ".join(f"{human.count(kinds[kind])} {kind}" for kind in KINDS if kinds[kind])
        more = Text(f"{'and ' if shown else ''}{count}", "dim", no_wrap=True, overflow="ellipsis")
        return Group(self._table(shown), Padding(more, (0, 2))) if shown else Padding(more, (0, 2))

    def _line(self, name: str) -> _Line:
        task = self._latest.get(name)
        if how := self._failures.get(name):
            return _Line(BAD, name, how, FAILED) if how == events.FAILED else _Line(OFF, name, how, RESTS)
        if name in self._ends:
            return _Line(DONE, name, self._ends[name], "green")
        if task is None or task.ended is not None:
            return _Line(WAITS, name, f"{task.step} done" if task else "waits", "dim")
        return _Line("", name, task.step, "", task)

    def _table(self, lines: Sequence[_Line]) -> Table:
        now = time.monotonic()
        longest = max(len(line.dataset) for line in lines) + 2
        width = max(20, min(self._console.width, max(USUAL, longest + FIXED)) - MARGIN)
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.width = width
        grid.add_column(no_wrap=True, width=min(longest, max(12, width - FIXED)), overflow="ellipsis")
        grid.add_column(no_wrap=True, min_width=11)
        grid.add_column(ratio=1, min_width=8)
        grid.add_column(justify="right", no_wrap=True, min_width=4)
        grid.add_column(justify="right", no_wrap=True, min_width=10)
        grid.add_column(justify="right", no_wrap=True, min_width=15)
        for line in lines:
            mark = "! " if line.kind == BAD else "  "
            name = Text(mark + line.dataset, FAILED if line.kind == BAD else "bold")
            state = Text(line.state, line.style)
            if (task := line.task) is None:
                grid.add_row(name, state)
                continue
            bar: RenderableType = live_view.bar(task, now)
            if task.states and "running" not in task.states:
                bar = Text(task.states_text(), RESTS, no_wrap=True, overflow="ellipsis")
            if task.read_back and task.total_bytes:
                state.append(f", verify {min(1.0, task.read_back / task.total_bytes):.0%}")
            if task.failed:
                state.append(f", {human.count(task.failed)} FAILED", FAILED)
            speed = Text(live_view.speed(task, now), "cyan")
            grid.add_row(name, state, bar, live_view.percent(task), speed, live_view.clock(task, now))
        return grid
