"""The live display on a terminal: running steps at the bottom, results above.

A step has two lines: bar, share, rate, time left; then files, bytes and elements by state. When it ends, its
line of result scrolls upwards.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, Group
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.core import events, human
from penstock.core.events import ElementChanged, Ended, Noted, Warned
from penstock.core.human import printable_lines
from penstock.look.views import line_view, text_block
from penstock.look.views.event_totals import Tally, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import RenderableType

    from penstock.core.events import Event

REFRESH_PER_SECOND = 4
SHOWN = 8  # steps shown at once: a terminal has few lines
FAILED, WARNING, RESTS = "bold red", "red", "yellow"  # styles


class _Console(Console):
    """rich ends the process if the pipe breaks; this ends only the display."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class LiveView:
    """Draws the running steps, and prints what ended above them."""

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
        """Print lines that are no event above the display."""
        with self._lock:
            self._on_terminal(lambda: self._print("", text, ""))

    def failed(self, dataset: str, text: str, how: str = events.FAILED) -> None:
        """As `line_view.Silent.failed`."""
        with self._lock:
            tasks = self._tally.broken_off(dataset, time.monotonic())
            self._on_terminal(lambda: self._left_off(tasks))
            if text:
                self._on_terminal(lambda: self._print("", text, FAILED if how == events.FAILED else RESTS))

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
        """Run `work`, unless the terminal has gone."""
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
        # Without trailing blanks, short lines stay whole in a terminal that is made narrower.
        lines = [line.rstrip() for line in captured.get().split("\n")][: max(1, self._console.height - 1)]
        self._erase()
        self._console.file.write("\n".join(lines))
        self._console.file.flush()
        self._drawn = lines

    def _erase(self) -> None:
        """Erase the drawn lines. If the terminal was made narrower since, they count as wrapped."""
        if self._drawn:
            width = max(1, self._console.width)
            rows = sum(max(1, math.ceil(Text.from_ansi(line).cell_len / width)) for line in self._drawn)
            self._console.file.write("\r\x1b[2K" + "\x1b[1A\x1b[2K" * (rows - 1))
            self._drawn = []

    def _show(self, event: Event, task: Task) -> None:
        for text, style in self._above(event, task):
            self._print(_name(event.dataset, event.step), text, style)

    def _above(self, event: Event, task: Task) -> Iterator[tuple[str, str]]:
        """Yield the lines that an event leaves, each with its style."""
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
        """Print above the display; long lines continue indented."""
        self._erase()
        head = f"{name}  " if name else ""
        for line in printable_lines(head + text).split("\n"):
            indent = " " * max(3, len(line) - len(line.lstrip()))
            rows = text_block.wrapped(line, self._console.width, below=indent)
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
        grid.add_row(name, bar(task, now), percent(task), Text(speed(task, now), "cyan"), clock(task, now))
        second = Text()
        if task.failed:
            second.append(f"{human.count(task.failed)} FAILED; ", style=FAILED)
        amounts = ", ".join(filter(None, (task.amount() or "under way", task.read_back_text())))
        second.append("; ".join(filter(None, (amounts, task.states_text()))), style="dim")
        return Group(grid, Padding(second, (0, 0, 0, 2)))


def bar(task: Task, now: float) -> ProgressBar:
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


def speed(task: Task, now: float) -> str:
    """Format the rate: `153 MiB/s`; `1200 files/s` for a step that moves no bytes; "" if nothing moves."""
    by_bytes, by_files = task.rates(now)
    return human.rate(by_bytes) if by_bytes else f"{by_files:.0f} files/s" if by_files else ""


def clock(task: Task, now: float) -> str:
    """Format the time left, or the time so far if nobody can say."""
    left = task.seconds_left(now)
    return f"{human.duration(left)} left" if left is not None else human.duration(now - task.begun)


def _name(dataset: str, step: str) -> str:
    return " ".join(filter(None, (dataset, step)))
