"""The live displays on a terminal: for one dataset's steps, and for a run of several datasets."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TextIO

from rich.console import Console, Group
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.core import human, run_steps
from penstock.core.human import printable_lines
from penstock.core.run_steps import (
    ElementChanged,
    Ended,
    Noted,
    Warned,
)
from penstock.look.views import line_view, text_layout
from penstock.look.views.line_view import PREFLIGHT, Tally, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import RenderableType

    from penstock.core.run_steps import Event


# The live display on a terminal: running steps at the bottom, results above.
#
# A step has two lines: bar, share, rate and time left; then files, bytes and elements by state. When it ends,
# a line with its result scrolls upwards.

REFRESH_PER_SECOND = 4
SHOWN = 8  # number of steps shown at once, at most, since a terminal has few lines
FAILED, WARNING, RESTS = "bold red", "red", "yellow"  # styles of the display, in rich's words


class _Console(Console):
    """A console that ends only the display if the pipe breaks, while rich would end the process."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class LiveView:
    """Draws the running steps, and prints the results of ended steps above them."""

    def __init__(self, stream: TextIO) -> None:
        self._console = _Console(file=stream, highlight=False, soft_wrap=False)
        self._draws = self._console.is_terminal and not self._console.is_dumb_terminal
        self._lock = threading.RLock()
        self._tally, self._warnings = Tally(), line_view.Warnings()
        self._dead = False
        self._drawn: list[str] = []  # the lines at the bottom of the screen
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        with self._lock:
            task = self._tally.take(event, time.monotonic())
            self._on_terminal(lambda: self._show(event, task))

    def say(self, text: str) -> None:
        """Print lines that are not events above the display."""
        with self._lock:
            self._on_terminal(lambda: self._print("", text, ""))

    def failed(self, dataset: str, text: str, how: str = run_steps.FAILED) -> None:
        """Report a failed step, as `line_view.Silent.failed`."""
        with self._lock:
            tasks = self._tally.broken_off(dataset, time.monotonic())
            self._on_terminal(lambda: self._left_off(tasks))
            if text:
                self._on_terminal(lambda: self._print("", text, FAILED if how == run_steps.FAILED else RESTS))

    def close(self) -> None:
        """Remove the display, and print how far unended steps came."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            with self._lock:
                self._on_terminal(lambda: self._left_off(self._tally.unended()))
                self._on_terminal(self._erase)
                self._on_terminal(lambda: self._console.show_cursor(show=True))
            self._thread = None

    def _on_terminal(self, work: Callable[[], object]) -> None:
        """Run `work`, unless the terminal is gone."""
        if self._dead:
            return
        try:
            if self._thread is None and self._draws and not self._ending.is_set():
                self._console.show_cursor(show=False)
                self._thread = threading.Thread(target=self._refresh, name="display", daemon=True)
                self._thread.start()
            work()
        except (OSError, ValueError):
            self._dead = True

    def _refresh(self) -> None:
        while not self._ending.wait(1 / REFRESH_PER_SECOND):
            with self._lock:
                self._on_terminal(self._draw)

    def _draw(self) -> None:
        if not self._draws:
            return
        with self._console.capture() as captured:
            self._console.print(self._render(), end="")
        # Trailing blanks are removed, so that short lines do not wrap in a terminal that is made narrower.
        lines = [line.rstrip() for line in captured.get().split("\n")][: max(1, self._console.height - 1)]
        self._erase()
        self._console.file.write("\n".join(lines))
        self._console.file.flush()
        self._drawn = lines

    def _erase(self) -> None:
        """Erase the drawn lines. If the terminal was made narrower meanwhile, they are treated as wrapped."""
        if self._drawn:
            width = max(1, self._console.width)
            rows = sum(max(1, math.ceil(Text.from_ansi(line).cell_len / width)) for line in self._drawn)
            self._console.file.write("\r\x1b[2K" + "\x1b[1A\x1b[2K" * (rows - 1))
            self._drawn = []

    def _show(self, event: Event, task: Task) -> None:
        for text, style in self._above(event, task):
            self._print(_name(event.dataset, event.step), text, style)

    def _above(self, event: Event, task: Task) -> Iterator[tuple[str, str]]:
        """Yield the lines that an event leaves above the display, each with its style."""
        if isinstance(event, Ended):
            if more := self._warnings.more(event):
                yield f"{more} more warnings were not shown", WARNING
            yield line_view.finished(task), FAILED if task.failed else "green"
        elif isinstance(event, Warned) and self._warnings.show(event):
            yield f"warning: {human.printable(event.text)}", WARNING
        elif isinstance(event, Noted):
            yield human.printable(event.text), ""
        elif isinstance(event, ElementChanged) and (text := line_view.element(event)):
            yield text, "red"

    def _left_off(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if text := line_view.left_off(task):
                self._print(_name(task.dataset, task.step), text, "")

    def _print(self, name: str, text: str, style: str) -> None:
        """Print a text above the display. Long lines continue indented."""
        self._erase()
        head = f"{name}  " if name else ""
        for line in printable_lines(head + text).split("\n"):
            indent = " " * max(3, len(line) - len(line.lstrip()))
            rows = text_layout.wrap(line, self._console.width, below=indent)
            shown = Text("\n".join(rows))
            shown.stylize("bold", 0, len(name))
            shown.stylize(style, len(name))
            self._console.print(shown, soft_wrap=True)
        if not self._ending.is_set():
            self._draw()

    def _render(self) -> RenderableType:
        now = time.monotonic()
        active = self._tally.unended()
        shown = [self._task(task, now) for task in active[:SHOWN]]
        if len(active) > SHOWN:
            shown.append(Text(f"and {human.counted(len(active) - SHOWN, 'more step')}", style="dim"))
        return Group(*shown)

    def _task(self, task: Task, now: float) -> RenderableType:
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(no_wrap=True, max_width=28)
        grid.add_column(ratio=1, min_width=8)
        for _ in range(3):
            grid.add_column(justify="right", no_wrap=True)
        name = Text(human.printable(_name(task.dataset, task.step)), style="bold", overflow="ellipsis")
        grid.add_row(
            name,
            progress_bar(task, now),
            percent(task),
            Text(speed_text(task, now), "cyan"),
            clock(task, now),
        )
        second = Text()
        if task.failed:
            second.append(f"{human.count(task.failed)} FAILED; ", style=FAILED)
        amounts = ", ".join(filter(None, (task.amount() or "under way", task.read_back_text())))
        second.append("; ".join(filter(None, (amounts, task.states_text()))), style="dim")
        return Group(grid, Padding(second, (0, 0, 0, 2)))


def progress_bar(task: Task, now: float) -> ProgressBar:
    fraction = task.fraction()
    return ProgressBar(
        total=1.0,
        completed=fraction or 0.0,
        pulse=fraction is None,
        animation_time=now,
        complete_style="cyan",
    )


def percent(task: Task) -> str:
    fraction = task.fraction()
    return f"{fraction:.0%}" if fraction is not None else ""


def speed_text(task: Task, now: float) -> str:
    """Format the rate: `153 MiB/s`, or `1200 files/s` if the step moves no bytes; "" without progress."""
    by_bytes, by_files = task.rates(now)
    return human.rate(by_bytes) if by_bytes else f"{by_files:.0f} files/s" if by_files else ""


def clock(task: Task, now: float) -> str:
    """Format the time left, or the time so far if the time left is unknown."""
    left = task.seconds_left(now)
    return f"{human.duration(left)} left" if left is not None else human.duration(now - task.begun)


def _name(dataset: str, step: str) -> str:
    return " ".join(filter(None, (dataset, step)))


# The live display of a run of several datasets: a line for each, with step, share, rate and time left.
#
# Warnings and failures stay above the display. If the screen has too few lines, the display shows datasets
# with a running step and counts the others.

SPARE = 2  # lines of the terminal kept free: the cursor's line, and a line that prevents scrolling
USUAL = 80  # columns of the table, even on wider screens, unless a name is long
# columns kept free at the right, since a terminal shows `^C` behind the last line, which must not wrap
MARGIN = 3
FIXED = 56  # columns that a line takes without the name: step, bar of ten, share, rate, clock
WAITS, DONE, BAD, OFF = "waiting", "done", "failed", "stopped"
KINDS = ("at work", WAITS, DONE, BAD, OFF)  # kinds of lines, in the order of the counting line


class _Line(NamedTuple):
    """A dataset's line. Its kind is WAITS, DONE, BAD or OFF; "" while a step runs."""

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
        self._latest: dict[str, Task] = {}  # {dataset: the step of it that began last}
        self._ends: dict[str, str] = {}  # {finished dataset: result}
        self._failures: dict[str, str] = {}  # {dataset: how its broken-off step ended}

    def failed(self, dataset: str, text: str, how: str = run_steps.FAILED) -> None:
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
            return  # the event only counts warnings, which are shown above
        for text, style in super()._above(event, task):
            # The dataset's line shows how its step ended.
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
            return _Line(BAD, name, how, FAILED) if how == run_steps.FAILED else _Line(OFF, name, how, RESTS)
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
            bar: RenderableType = progress_bar(task, now)
            if task.states and "running" not in task.states:
                bar = Text(task.states_text(), RESTS, no_wrap=True, overflow="ellipsis")
            if task.read_back and task.total_bytes:
                state.append(f", verify {min(1.0, task.read_back / task.total_bytes):.0%}")
            if task.failed:
                state.append(f", {human.count(task.failed)} FAILED", FAILED)
            speed = Text(speed_text(task, now), "cyan")
            grid.add_row(name, state, bar, percent(task), speed, clock(task, now))
        return grid
