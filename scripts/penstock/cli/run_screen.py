"""What `penstock run` shows while its steps work.

Snakemake and all below it write to one file: events as lines of JSON (`look.views.line_view.JsonLines`),
anything else text. A thread shows that file and failed steps' messages in one view. A pipe could fill up or
lose its reader; with a file no step waits for the screen, or fails by it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Self

from penstock.cli import output
from penstock.core import events
from penstock.workflow import exit_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from penstock.look.views.view_choice import View

SAID = "said"
INTERVAL = 0.2  # seconds between two reads of the file
BLOCK = 1 << 20
# what a failed step changed, where its message does not say so
CHANGED = {"preflight": "nothing was changed", "list": "nothing was copied", "plan": "nothing was copied"}


class RunScreen:
    """A context manager: thread, view and file end with it."""

    def __init__(self, view: View, folder: Path, place: Callable[[str], str] | None) -> None:
        """`folder` holds exit statuses; `place` locates a dataset in the configuration, in a run of
        several."""
        self._view, self._folder, self._place = view, folder, place
        self.said = (folder / SAID).open("ab")  # where Snakemake and its children write
        self._reader = (folder / SAID).open("rb")
        self._rest = b""
        self._left: dict[str, exit_files.Left] = {}
        self._shown: set[str] = set()
        self._begun: dict[tuple[str, str], float] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="screen", daemon=True)
        self.seconds: dict[str, float] = {}  # how long each dataset's steps worked

    @property
    def left(self) -> list[exit_files.Left]:
        """How failed steps ended, the earliest first."""
        return [self._left[name] for name in sorted(self._left)]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()
        self._view.close()
        self._reader.close()
        self.said.close()

    def finish(self) -> None:
        """Show what is left, once Snakemake has ended."""
        if not self._ending.is_set():
            self._ending.set()
            self._thread.join()
            with contextlib.suppress(OSError):
                self._look()
            if self._rest:
                self._line(self._rest)

    def failed(self, dataset: str, how: str, text: str) -> None:
        """Show what stands against one of several datasets; an only dataset's summary has it."""
        if self._place is not None:
            self._view.failed(dataset, message(dataset, how, output.pasted(text)))

    def _follow(self) -> None:
        while not self._ending.wait(INTERVAL):
            with contextlib.suppress(OSError):
                self._look()

    def _look(self) -> None:
        # Read before, and shown after the file: so what a step wrote before it failed is in the file.
        new = exit_files.read_new(self._folder, self._left)
        while block := self._reader.read(BLOCK):
            *lines, self._rest = (self._rest + block).split(b"\n")
            for line in lines:
                self._line(line)
        for left in new:
            self._fail(left)

    def _line(self, line: bytes) -> None:
        text = line.decode("utf-8", "surrogateescape")
        try:
            event = events.event_from_json(text)
        except ValueError:
            self._view.say(text)
            return
        self._time(event)
        self._view(event)

    def _fail(self, left: exit_files.Left) -> None:
        """Show a failure once: a dataset's listing reports it, and so does the job that ends as it did."""
        key = left.dataset or left.text
        if key in self._shown:
            return
        self._shown.add(key)
        self._end(left.dataset)
        if self._place is None:
            text = f"penstock: {output.pasted(left.text)}" if left.text else ""
            self._view.failed(left.dataset, text, left.how)
        elif left.how == events.STOPPED:  # the closing table reports it once for all
            self._view.failed(left.dataset, "", left.how)
        elif left.how == events.CANCELLED:
            self._view.failed(left.dataset, message(left.dataset, "", output.pasted(left.text)), left.how)
        else:
            text = left.text.removeprefix(f"{left.dataset}: ").removeprefix(f"{left.command}: ")
            if left.command in CHANGED:
                text += f"\n  {self._place(left.dataset)}; {CHANGED[left.command]}"
            self.failed(left.dataset, f"FAILED in {left.command}", text)

    def _time(self, event: events.Event) -> None:
        key, now = (event.dataset, event.step), event.at or time.monotonic()
        if isinstance(event, events.Started):
            self._begun[key] = now
        elif isinstance(event, events.Ended):
            self._add(key, now)

    def _end(self, dataset: str) -> None:
        now = time.monotonic()
        for key in [key for key in self._begun if key[0] == dataset]:
            self._add(key, now)

    def _add(self, key: tuple[str, str], now: float) -> None:
        seconds = now - self._begun.pop(key, now)
        self.seconds[key[0]] = self.seconds.get(key[0], 0.0) + seconds


def message(dataset: str, how: str, text: str) -> str:
    """Make the message about one of several datasets.

    >>> print(message("c", "FAILED in copy", "1 shard did not finish\\n  see the log"))
    c  FAILED in copy: 1 shard did not finish
       see the log
    """
    first, *more = text.split("\n")
    begins = f"{dataset}  {how}: " if how else f"{dataset}  "
    return "\n".join([f"{begins}{first}".lstrip(), *(f" {line}" for line in more)])
