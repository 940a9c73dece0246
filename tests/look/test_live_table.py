"""The live display of a run of several datasets, on a real pseudo-terminal."""

from __future__ import annotations

import io
import os
import re
import sys
import time

import pytest
from rich.console import Console
from tests.support import terminal

from penstock.core import run_steps
from penstock.look.views.live_view import LiveTable

SCRIPT = r"""
import sys, time
from penstock.core import run_steps as events
from penstock.look.views.view_choice import open_view
names = ["a", "b", "c", "d" * 64, *(f"s{n:02d}" for n in range(int(sys.argv[1])))]
view = open_view("auto", sys.stderr, names)
view(events.Started("a", "copy", 100, 100 << 20))
view(events.Started("d" * 64, "verify", 100, 100 << 20))
for second in range(4):
    view(events.Progressed("a", "copy", 10 * second, 10 * second << 20))
    view(events.Progressed("d" * 64, "verify", second, second << 20, states={"pending": 3}))
    time.sleep(0.3)
view(events.Ended("b", "list", {"published": True}))
for name in "ab":
    view(events.Warned(name, "preflight", "no mode fences a late writer"))
view(events.Noted("a", "copy", "array 7 of an earlier controller lives " + "and is watched " * 9))
view.failed("c", "c  FAILED in preflight: there is no such bucket [s3://nosuch/]\n   check the name")
time.sleep(0.6)
view(events.Ended("a", "report", {"status": "PASSED"}))
time.sleep(0.6)
view.close()
print("after")
"""


def on_terminal(more: int, size: tuple[int, int], **environment: str) -> terminal.Recorded:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    kept |= {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **environment}
    recorded = terminal.record([sys.executable, "-c", SCRIPT, str(more)], env=kept, size=size)
    assert recorded.status == 0
    return recorded


@pytest.mark.parametrize("columns", [80, 120])
def test_a_line_a_dataset_and_messages_above(columns: int) -> None:
    recorded = on_terminal(0, (columns, 24))
    screens = ["\n".join(recorded.plain(n)) for n in range(len(recorded.frames))]
    assert any(re.search(r"^  a +copy .* 30% .* s left$", screen, re.MULTILINE) for screen in screens)
    assert any(re.search(r"^  d{10,}.* verify +3 pending ", screen, re.MULTILINE) for screen in screens)
    last = re.compile(
        r"^  a +published\n  b +unchanged\n! c +FAILED\n  d+.* verify +3 pending ", re.MULTILINE
    )
    assert any(last.search(screen) for screen in screens)
    lines = {line for screen in screens for line in screen.split("\n")}
    assert all(len(line) <= columns for line in lines)
    assert all(len(line) < columns - 2 for line in lines if re.match("  [^ ]|! ", line)), "room for ^C"
    # What stays: each warning and each failure once, and where the step was that did not end.
    end = recorded.plain()
    assert end[0] == "a preflight  warning: no mode fences a late writer"
    assert end[1].startswith("a copy  array 7 of an earlier")
    failure = end.index("c  FAILED in preflight: there is no such bucket [s3://nosuch/]")
    assert end[failure + 1] == "   check the name"
    assert "verify left off at 3 of 100 files, 3.00 of 100 MiB after" in " ".join(" ".join(end).split())
    assert end[-1] == "after"
    red = next(line for line in recorded.frames[-1] if "FAILED" in line)
    assert "\x1b[1;31m" in red


def test_the_table_never_runs_over_the_screen() -> None:
    recorded = on_terminal(60, (80, 10))
    tables = [
        [line for line in recorded.plain(n) if re.match("  [^ ]|! ", line)]
        for n in range(len(recorded.frames))
    ]
    assert all(len(table) <= 9 for table in tables)
    shown = [line for table in tables for line in table]
    assert any("60 waiting, 1 done, 1 failed" in line for line in shown)
    assert any(line.startswith("  a ") for line in shown), "what works stays"
    assert not any(line.startswith("  s0") for line in shown)


def test_no_color_and_dumb_terminals_are_honoured() -> None:
    assert not re.search(r"\x1b\[[0-9;]*(3[0-9]|9[0-7])m", on_terminal(0, (80, 24), NO_COLOR="1").written)
    lines = on_terminal(0, (80, 24), TERM="dumb").written
    assert "\x1b" not in lines
    assert "a copy: started: 100 files, 100 MiB" in lines


@pytest.mark.parametrize(
    ("how", "mark"), [(run_steps.FAILED, "! "), (run_steps.STOPPED, "  "), (run_steps.CANCELLED, "  ")]
)
def test_what_was_stopped_or_cancelled_is_not_called_failed(how: str, mark: str) -> None:
    table = LiveTable(io.StringIO(), ["c"])
    table.failed("c", "", how)
    console = Console(file=io.StringIO(), width=80)
    console.print(table._render())
    assert console.file.getvalue().split() == [*mark.split(), "c", how]  # type: ignore[attr-defined]
    table.close()


@pytest.mark.parametrize("columns", [80, 140])
def test_the_share_that_is_read_back_stands_beside_the_step(columns: int) -> None:
    table = LiveTable(io.StringIO(), ["imagenet", "a-dataset-of-21-chars"])
    now = time.monotonic()
    for name, more in (("imagenet", {}), ("a-dataset-of-21-chars", {"failed": 2})):
        table._latest[name] = table._tally.take(run_steps.Started(name, "copy", 100, 100 << 20), now - 20)
        for n in range(2):
            size = (42 + 20 * n) << 20
            table._tally.take(
                run_steps.Progressed(name, "copy", 62, size, read_back_bytes=40 << 20, **more),
                now - 10 + 10 * n,
            )
    console = Console(file=io.StringIO(), width=columns)
    console.print(table._render())
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert re.search(r"^  imagenet +copy, verify 40% .* 62% +2.00 MiB/s +49 s left$", lines[0].rstrip())
    assert " copy, verify 40%, 2 FAILED " in lines[1]
    assert all(len(line) <= columns for line in lines)
    table.close()
