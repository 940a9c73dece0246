"""The live display on a terminal: the steps under way at the bottom, what is over above them.

Two lines a step: bar, share, bytes, rate, time left; then files and elements by state. When a
step ends, its one line of result scrolls away upwards, so any number of datasets fits.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, Group
from rich.live import Live as RichLive
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.core.events import ElementChanged, Ended, Noted, Warned
from penstock.views import human, line_view
from penstock.views.event_totals import Tally, Task

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.core.events import Event

REFRESH_PER_SECOND = 4
SHOWN = 8
"""Steps shown at once: a terminal has few lines."""


class _Console(Console):
    """rich ends the process when the pipe breaks; here only the display ends."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class LiveView:
    """See the module."""

    def __init__(self, stream: TextIO) -> None:
        self._console = _Console(file=stream, highlight=False, soft_wrap=False)
        self._lock = threading.RLock()
        self._tally, self._warnings = Tally(), line_view.Warnings()
        self._dead = False
        self._live = RichLive(
            console=self._console,
            get_renderable=self._render,
            refresh_per_second=REFRESH_PER_SECOND,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        with self._lock:
            if self._dead:
                return
            now = time.monotonic()
            task = self._tally.take(event, now)
            try:
                if self._thread is None:
                    self._live.start()
                    self._thread = threading.Thread(target=self._refresh, name="display", daemon=True)
                    self._thread.start()
                if isinstance(event, Ended):
                    self._live.refresh()  # else its bar would be drawn once more below its result
                for line in self._above(event, task):
                    self._console.print(line)
            except (OSError, ValueError):
                self._dead = True

    def close(self) -> None:
        """Take the display away; the lines above it stay, and how far the steps came that did not end."""
        self._ending.set()
        if self._thread is None:
            return
        self._thread.join()
        with self._lock:
            try:
                self._live.stop()
                for task in self._tally.unended():
                    if (text := line_view.left_off(task)) and not self._dead:
                        self._console.print(_line(task.dataset, task.step, text, ""))
            except (OSError, ValueError):
                self._dead = True

    def _refresh(self) -> None:
        # Our own thread: rich's would die with a traceback on a broken terminal.
        while not self._ending.wait(1 / REFRESH_PER_SECOND):
            with self._lock:
                if self._dead:
                    return
                try:
                    self._live.refresh()
                except (OSError, ValueError):
                    self._dead = True

    def _above(self, event: Event, task: Task) -> list[Text]:
        if isinstance(event, Ended):
            more = self._warnings.more(event)
            style = "bold red" if task.failed else "green"
            texts = [(line_view.finished(task), style)]
            if more:
                texts.insert(0, (f"{more} more warnings were not shown", "yellow"))
        elif isinstance(event, Warned) and self._warnings.show(event):
            texts = [(f"warning: {human.printable(event.text)}", "yellow")]
        elif isinstance(event, Noted):
            texts = [(human.printable(event.text), "")]
        elif isinstance(event, ElementChanged) and (text := line_view.element(event)):
            texts = [(text, "red")]
        else:
            texts = []
        return [_line(event.dataset, event.step, *text) for text in texts]

    def _render(self) -> RenderableType:
        with self._lock:
            now = time.monotonic()
            active = self._tally.unended()
            shown = [self._task(task, now) for task in active[:SHOWN]]
            if len(active) > SHOWN:
                shown.append(Text(f"and {human.counted(len(active) - SHOWN, 'more step')}", style="dim"))
            return Group(*shown)

    def _task(self, task: Task, now: float) -> RenderableType:
        share, left = task.share(), task.seconds_left(now)
        by_bytes, by_files = task.rates(now)
        speed = human.rate(by_bytes) if by_bytes else f"{by_files:.0f} files/s" if by_files else ""
        name = human.printable(" ".join(filter(None, (task.dataset, task.step))))
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(no_wrap=True, max_width=28)
        grid.add_column(ratio=1, min_width=8)
        for _ in range(3):
            grid.add_column(justify="right", no_wrap=True)
        bar = ProgressBar(
            total=1.0, completed=share or 0.0, pulse=share is None, animation_time=now, complete_style="cyan"
        )
        clock = f"{human.duration(left)} left" if left is not None else human.duration(now - task.begun)
        percent = f"{share:.0%}" if share is not None else ""
        grid.add_row(Text(name, style="bold", overflow="ellipsis"), bar, percent, Text(speed, "cyan"), clock)
        second = Text("  ", no_wrap=True, overflow="ellipsis")
        if task.failed:
            second.append(f"{human.count(task.failed)} FAILED; ", style="bold red")
        parts = [task.amount() or "under way", task.states_text()]
        second.append("; ".join(filter(None, parts)), style="dim")
        return Group(grid, second)


def _line(dataset: str, step: str, text: str, style: str) -> Text:
    name = human.printable(" ".join(filter(None, (dataset, step))))
    return Text.assemble((f"{name}  ", "bold"), (text, style))
