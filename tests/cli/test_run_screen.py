"""What `penstock run` reads of the steps below it, while they write."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest

from penstock.cli.run_results import RunScreen
from penstock.look.views.line_view import Lines
from penstock.workflow import controller

if TYPE_CHECKING:
    from pathlib import Path

LINE = '{{"at": {at}, "kind": "{kind}", "dataset": "d", "step": "copy", "data": {data}}}\n'
LEFT = controller.Left("copy", 6, "d", "d: copy: no space is left\n  make room", "no space is left")


def screen(folder: Path, shown: io.StringIO) -> RunScreen:
    return RunScreen(Lines(shown), folder, lambda name: f"datasets.{name} in my.yaml, line 3")


def test_events_text_and_a_failure_each_once(tmp_path: Path) -> None:
    shown = io.StringIO()
    with screen(tmp_path, shown) as told:
        told.said.write(LINE.format(at=10.0, kind="start", data='{"files": 4}').encode())
        told.said.write(LINE.format(at=12.5, kind="progress", data='{"files": 1}').encode())
        told.said.write(
            b"Killed \xff\x1b[2J\n{no event}\n" + LINE.format(at=1, kind="odd", data="{}").encode()
        )
        told.said.write(b"an end without a line feed")
        told.said.flush()
        for number in (1, 2):  # the listing of a dataset leaves it, and the job that ends as it did
            (tmp_path / f"{number}.json").write_text(json.dumps(LEFT._asdict()))
        (tmp_path / "3.json").write_text('{"command": "co')  # still being written
        told.finish()
        assert told.left == [LEFT, LEFT]
    lines = [line.partition(" ")[2] if line[2:3] == ":" else line for line in shown.getvalue().splitlines()]
    assert lines == [
        "d copy: started: 4 files",
        "Killed \\xff\\x1b[2J",
        "{no event}",
        LINE.format(at=1, kind="odd", data="{}").strip(),
        "d copy: left off at 1 of 4 files",
        "d  FAILED in copy: no space is left",
        "   make room",
        "an end without a line feed",
    ]
    assert set(told.seconds) == {"d"}


@pytest.mark.parametrize(
    ("left", "last"),
    [
        (
            LEFT._replace(command="list", text="d: busy"),
            "   datasets.d in my.yaml, line 3; nothing was copied",
        ),
        (
            controller.Left("snakemake", 7, "", "another is at work"),
            "FAILED in snakemake: another is at work",
        ),
        (LEFT._replace(exit=130, text="stopped by SIGINT"), ""),
        (
            LEFT._replace(exit=1, text="copy was cancelled [d]: by x", cancelled=True),
            "d  copy was cancelled [d]: by x",
        ),
    ],
)
def test_what_is_shown_of_an_end(tmp_path: Path, left: controller.Left, last: str) -> None:
    shown = io.StringIO()
    with screen(tmp_path, shown) as told:
        (tmp_path / "1.json").write_text(json.dumps(left._asdict()))
        told.finish()
    assert (shown.getvalue().splitlines() or [""])[-1] == last
