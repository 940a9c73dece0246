"""Plain and JSON lines: few, whole, safe, and silent once nobody listens."""

from __future__ import annotations

import io
import json
import threading
from dataclasses import replace
from typing import Any

import pytest

from penstock.core import run_steps
from penstock.look.views.line_view import (
    INTERVAL,
    STALE_SECONDS,
    WARNINGS,
    JsonLines,
    Lines,
    Tally,
    moving,
    started,
)
from penstock.look.views.view_choice import KINDS, open_view


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Broken(io.StringIO):
    """A pipe whose reader has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


KIND = {one.kind: one for one in run_steps.Event.__subclasses__()}


def event(kind: str, step: str = "copy", **data: Any) -> run_steps.Event:
    given = {"result": data} if kind == "end" else data
    return KIND[kind]("imagenet", step, **given)


def texts(stream: io.StringIO) -> list[str]:
    """The lines without their time stamps."""
    return [line.partition(" ")[2] for line in stream.getvalue().splitlines()]


def test_one_line_at_the_start_few_between_one_at_the_end() -> None:
    stream, clock = io.StringIO(), Clock()
    view = Lines(stream, clock)
    view(event("start", files=1000, bytes=1000 << 20, shards=31, elements=2))
    for second in range(1, 26):
        clock.now += 1
        states = {"running": 1, "done": 1}
        view(event("progress", files=10 * second, bytes=10 * second << 20, states=states))
    clock.now += 5
    view(event("end", files=1000, bytes=1000 << 20, seconds=50.0))
    assert texts(stream) == [
        "imagenet copy: started: 1,000 files, 1000 MiB, 31 shards, up to 2 elements",
        (
            "imagenet copy: 10%, 100 of 1,000 files, 100 of 1000 MiB, 10.0 MiB/s, 1 min 30 s left; "
            "2 elements: 1 running, 1 done"
        ),
        (
            "imagenet copy: 20%, 200 of 1,000 files, 200 of 1000 MiB, 10.0 MiB/s, 1 min 20 s left; "
            "2 elements: 1 running, 1 done"
        ),
        "imagenet copy: done: 1,000 files, 1000 MiB in 50 s (20.0 MiB/s)",
    ]


def test_what_was_carried_over_is_not_said_to_be_read() -> None:
    stream = io.StringIO()
    view = Lines(stream, Clock())
    view(event("start", "verify", files=3000, bytes=3000 << 20))
    carried = {"carried_files": 2971, "carried_bytes": 2971 << 20}
    view(event("end", "verify", files=3000, bytes=3000 << 20, seconds=2.0, **carried))
    assert texts(stream)[-1] == (
        "imagenet verify: done: 29 files, 29.0 MiB in 2.0 s (14.5 MiB/s); "
        "2,971 linked files carried over unread"
    )


def test_what_is_copied_and_what_is_read_back_have_one_remaining_time() -> None:
    stream, clock = io.StringIO(), Clock()
    view = Lines(stream, clock)
    view(event("start", files=1000, bytes=1000 << 20, shards=31, elements=4))
    for second in range(1, 22):
        clock.now += 1
        back = max(0, second - 12) * (5 << 20)
        moved = {"files": 10 * second, "bytes": 10 * second << 20, "read_back_bytes": back}
        view(event("progress", states={"running": 4}, **moved))
    view.close()
    assert texts(stream)[1:] == [
        (
            "imagenet copy: 10%, 100 of 1,000 files, 100 of 1000 MiB, 10.0 MiB/s, 3 min 10 s left; "
            "4 elements: 4 running"
        ),
        (
            "imagenet copy: 20%, 200 of 1,000 files, copied 200 of 1000 MiB, 10.0 MiB/s, read back 40.0 MiB, "
            "3 min 12 s left; 4 elements: 4 running"
        ),
        "imagenet copy: left off at 210 of 1,000 files, copied 210 of 1000 MiB, read back 45.0 MiB",
    ]


def test_how_far_a_step_came_that_did_not_end_stays() -> None:
    """U9: after Ctrl-C nothing of it was left."""
    stream = io.StringIO()
    view = Lines(stream, Clock())
    view(event("note", "list", text="a note is no step"))
    view(event("start", "plan", files=1000))
    view(event("start", files=1000, bytes=1000 << 20))
    view(event("progress", files=10, bytes=20 << 20))
    view(event("start", "verify", files=5))
    view(event("end", "verify", files=5, seconds=1.0))
    before = len(texts(stream))
    view.close()
    assert texts(stream)[before:] == ["imagenet copy: left off at 10 of 1,000 files, 20.0 of 1000 MiB"]


def test_nothing_moved_says_nothing() -> None:
    stream, clock = io.StringIO(), Clock()
    view = Lines(stream, clock)
    view(event("start", files=10))
    for _ in range(5):
        clock.now += INTERVAL
        view(event("progress", files=3))
    assert len(texts(stream)) == 2


def test_what_a_resumed_step_found_is_no_speed() -> None:
    stream, clock = io.StringIO(), Clock()
    view = Lines(stream, clock)
    view(event("start", files=100, bytes=100 << 30))
    clock.now += 1
    view(event("progress", bytes=90 << 30))
    clock.now += INTERVAL
    view(event("progress", bytes=(90 << 30) + (10 << 20)))
    assert "1.00 MiB/s" in texts(stream)[-1]


def test_warnings_are_escaped_said_once_and_bounded() -> None:
    stream = io.StringIO()
    view = Lines(stream, Clock())
    for _ in range(3):
        view(event("warning", text="a\x1b]0;owned\x07\nb"))
    for index in range(WARNINGS + 4):
        view(event("warning", text=f"warning {index}"))
    view(event("end"))
    lines = texts(stream)
    assert lines[0] == "imagenet copy: warning: a\\x1b]0;owned\\x07\\nb"
    assert len(lines) == WARNINGS + 2
    assert "5 more warnings" in lines[-2]


def test_only_elements_that_ended_badly_are_told() -> None:
    stream = io.StringIO()
    view = Lines(stream, Clock())
    view(event("element", index=1, state="done", node="n1"))
    view(event("element", index=2, state="failed", node="n2", reason="OutOfMemory"))
    assert texts(stream) == ["imagenet copy: element 2 failed on n2: OutOfMemory"]


def test_json_lines_are_ascii_and_bounded() -> None:
    stream, clock = io.StringIO(), Clock()
    view = JsonLines(stream, clock)
    view(event("start", files=5))
    for _ in range(10):
        clock.now += 0.25
        view(event("progress", files=1))
    view(event("note", text="é\n\udcff"))
    lines = stream.getvalue().splitlines()
    assert stream.getvalue().isascii()
    assert [json.loads(line)["kind"] for line in lines] == [
        "start",
        "progress",
        "progress",
        "progress",
        "note",
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stream", [Broken(), io.StringIO()])
def test_no_view_ever_raises(kind: str, stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    if not isinstance(stream, Broken):
        stream = io.StringIO()
        stream.close()
    view = open_view(kind, stream)
    bad = [event("end", failed=[1], seconds="x", odd=object), event("end", files=-1, bytes=True)]
    for item in [*bad, event("start"), event("element", index=1, state="odd"), event("note", text="\udcff")]:
        view(item)
    view.close()
    view.close()


def test_many_threads_write_whole_lines() -> None:
    stream = io.StringIO()
    view = Lines(stream)

    def work(number: int) -> None:
        for index in range(50):
            view(event("note", step=f"s{number}", text=f"note {index}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = texts(stream)
    assert len(lines) == 400
    assert all(line.startswith("imagenet s") and "note" in line for line in lines)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="no such view"):
        open_view("loud", io.StringIO())


@pytest.mark.parametrize("read_back", [None, 5], ids=["copied", "read back, too"])
def test_no_estimate_is_left_when_nothing_runs_or_moves(read_back: int | None) -> None:
    tally = Tally()
    tally.take(run_steps.Started("d", "copy", 100, 1000), 0.0)
    for second in range(11):
        moved = run_steps.Progressed(
            "d", "copy", second, 10 * second, states={"running": 1},
            read_back_bytes=read_back and read_back * second,
        )  # fmt: skip
        task = tally.take(moved, float(second))
    assert task.seconds_left(10.0) is not None
    assert task.seconds_left(10.0 + STALE_SECONDS + 1) is None
    tally.take(replace(moved, states={"pending": 1}), 11.0)
    assert task.seconds_left(11.0) is None
    assert moving(task, 11.0).endswith("; 1 element: 1 pending")
    assert "left" not in moving(task, 11.0)


@pytest.mark.parametrize(
    ("shards", "elements", "words"),
    [
        (31, 4, "31 shards, up to 4 elements"),
        (3, 4, "3 shards, up to 3 elements"),
        (31, 1, "31 shards, 1 element"),
        (1, 4, "1 shard, 1 element"),
        (31, None, "31 shards"),
        (None, None, ""),
    ],
)
def test_a_shard_is_a_part_and_an_element_a_process(
    shards: int | None, elements: int | None, words: str
) -> None:
    task = Tally().take(run_steps.Started("d", "copy", 9, None, shards, elements), 0.0)
    assert started(task) == ", ".join(filter(None, ["started: 9 files", words]))
