"""The live display on a real pseudo-terminal of 80 columns."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys

import pytest
from rich.console import Console
from tests.support import terminal

from penstock.core import run_steps
from penstock.look.views.line_view import Tally
from penstock.look.views.live_view import LiveView

GIB = 1 << 30

SCRIPT = r"""
import sys, time
from penstock.core import run_steps as events
from penstock.look.views.view_choice import open_view
view = open_view("auto", sys.stdout)
print(type(view).__name__)
say = lambda kind, **data: view(kind("imagenet", "copy", **data))
say(events.Started, files=20002, bytes=3 << 30, shards=31, elements=4)
for index in range(4):
    say(events.Progressed, files=1000 * index, bytes=150 * index << 20, states={"running": 3, "pending": 1})
    time.sleep(0.3)
say(events.Warned, text="slow \x1b[31mnode [bold]<script>")
if len(sys.argv) == 1:
    say(events.Ended, result={"files": 20002, "bytes": 3 << 30, "seconds": 23.0})
view.close()
print("after")
"""


def on_terminal(environment: dict[str, str], *words: str) -> str:
    """What the script wrote to a terminal of 80 columns."""
    names = ("PATH", "HOME", "LANG")
    kept = {name: os.environ[name] for name in names if name in os.environ} | environment
    recorded = terminal.record([sys.executable, "-c", SCRIPT, *words], env=kept)
    assert recorded.status == 0
    return recorded.written


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_on_a_terminal() -> None:
    written = on_terminal({"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"})
    text = plain(written)
    assert text.startswith("Live")
    assert "3 running, 1 pending" in text
    assert "1,000 of 20,002 files" in text
    assert "warning: slow \\x1b[31mnode [bold]<script>" in text
    assert "done: 20,002 files, 3.00 GiB in 23 s (134 MiB/s)" in text
    assert re.search(r"\x1b\[[0-9;]*31m[^\x1b]*warning: ", written), "red"
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1  # the cursor is back
    assert all(len(line) <= 80 for line in re.split(r"[\r\n]+", text))
    assert text.rstrip().endswith("after")


def test_how_far_a_step_came_that_did_not_end_stays() -> None:
    """U9: the display goes, and took it along."""
    lines = plain(on_terminal({"TERM": "xterm-256color"}, "stopped")).splitlines()
    assert [line.rstrip() for line in lines if line.strip()][-2:] == [
        "imagenet copy  left off at 3,000 of 20,002 files, 0.44 of 3.00 GiB",
        "after",
    ]


def test_no_color_is_honoured() -> None:
    written = on_terminal({"TERM": "xterm-256color", "NO_COLOR": "1"})
    assert not re.search(r"\x1b\[[0-9;]*(3[0-9]|9[0-7])m", written)


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_dumb_terminal_gets_lines(term: str) -> None:
    written = on_terminal({"TERM": term} if term else {})
    assert written.startswith("Lines")
    assert "\x1b" not in written


def test_a_pipe_gets_lines_without_colours() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout.startswith("Lines\n")
    assert "\x1b" not in ended.stdout
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("columns", "below"),
    [
        (
            80,
            [
                "  9,000 of 20,002 files, copied 1.50 of 3.42 GiB, read back 1.10 GiB; 3 running,",
                "  1 pending",
            ],
        ),
        (140, ["  9,000 of 20,002 files, copied 1.50 of 3.42 GiB, read back 1.10 GiB; 3 running, 1 pending"]),
    ],
)
def test_what_is_copied_and_what_is_read_back_stand_below_the_bar(columns: int, below: list[str]) -> None:
    view = LiveView(io.StringIO())
    task = Tally().take(run_steps.Started("imagenet", "copy", 20002, int(3.42 * GIB)), 0.0)
    states = {"running": 3, "pending": 1}
    task.take(run_steps.Progressed("imagenet", "copy", 9000, 3 * GIB // 2, None, states, int(1.1 * GIB)), 1.0)
    console = Console(file=io.StringIO(), width=columns)
    console.print(view._task(task, 1.0))
    bar, *rest = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert re.search(r"^imagenet copy .* 44% +1.0 s$", bar)
    assert [line.rstrip() for line in rest] == below
    assert len(bar) <= columns
