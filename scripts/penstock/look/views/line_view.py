"""Plain lines and JSON lines, for logs, pipes and programs. Also the totals of the events so far, which all
views show.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from penstock.core import human, run_steps, typed_json
from penstock.core.estimates import ProgressCurve
from penstock.core.human import printable_lines
from penstock.core.run_steps import (
    MOVES_BYTES,
    ElementChanged,
    Ended,
    Noted,
    Progressed,
    Started,
    Warned,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.core.run_steps import Event


# Totals of the events so far, by dataset and step. They are not thread-safe, so a view uses its own lock.

STATES = ("running", "pending", "held", "unknown", "done", "stopped", "failed", "cancelled", "lost")
# Seconds without progress after which the time left is hidden: more than the longest pause between cluster
# queries.
STALE_SECONDS = 90.0


@dataclass
class Task:
    """One step of one dataset."""

    dataset: str
    step: str
    begun: float
    total_files: int = 0
    total_bytes: int = 0
    shards: int = 0
    elements: int = 0  # number of elements that may work at once
    files: int = 0
    bytes: int = 0
    failed: int = 0
    read_back: int | None = None  # bytes read back, in a step that also reads back
    carried_files: int = 0  # number of files among `files` that verify did not read (`verify.linked`)
    carried_bytes: int = 0
    beside_copy: int = 0  # bytes that the elements of the copy step have read back
    states: dict[str, int] = field(default_factory=dict)
    moves: bool = False  # whether the step has begun; False if only a note named it so far
    ended: float | None = None
    seconds: float | None = None  # duration of the whole step, from its result
    # bytes that this command itself moved, and the seconds that this took, according to the result
    moved: tuple[int, float] | None = None
    _moved: float = 0.0  # time when files or bytes last increased
    _curve: ProgressCurve = field(default_factory=ProgressCurve)
    # time when this command first saw bytes read back, and the value of `read_back` before that
    _unread: tuple[float, int] = (0.0, 0)

    def take(self, event: Event, now: float) -> None:
        """Update the totals from an event. Totals that the event lacks are unchanged."""
        self.moves |= isinstance(event, (Started, Progressed))
        match event:
            case Started():
                self.total_files, self.total_bytes = event.files or 0, event.bytes or 0
                self.shards, self.elements = event.shards or 0, event.elements or 0
            case Progressed():
                self._progress(event, now)
            case Ended(result=result):
                self.ended = now
                self.files = whole(result, "files", self.files)
                self.bytes = whole(result, "bytes", self.bytes)
                self.carried_files = whole(result, "carried_files")
                self.carried_bytes = whole(result, "carried_bytes")
                self.beside_copy = whole(result, "beside_copy_bytes")
                self.shards = whole(result, "elements", self.shards)
                failed = result.get("failed")
                self.failed = (
                    len(failed) if isinstance(failed, list) else whole(result, "failed", self.failed)
                )
                seconds = result.get("seconds")
                self.seconds = seconds if isinstance(seconds, (int, float)) else None
                if "moved_bytes" in result and self.seconds is not None:
                    took = result.get("moved_seconds", seconds)
                    took = float(took) if isinstance(took, (int, float)) else self.seconds
                    self.moved = whole(result, "moved_bytes"), took

    def _progress(self, event: Progressed, now: float) -> None:
        before = self.files, self.bytes, self.read_back
        # While a giant is copied, each of its parts counts as a file.
        files = min(event.files, self.total_files) if self.total_files else event.files
        self.files, self.bytes = max(self.files, files), max(self.bytes, event.bytes or 0)
        if event.read_back_bytes is not None:
            read = max(self.read_back or 0, event.read_back_bytes)
            if self.read_back is None or read == self._unread[1]:
                self._unread = now, read
            self.read_back = read
        if (self.files, self.bytes, self.read_back) != before or not self._moved:
            self._moved = now
        if event.failed is not None:
            self.failed = event.failed
        if event.states is not None:
            self.states = {name: number for name, number in event.states.items() if number}
        self._curve.add(now, self.files, self.bytes if self.step in MOVES_BYTES else 0)

    def rates(self, now: float) -> tuple[float, float]:
        """Return recent (bytes, files) per second, without earlier work; 0 bytes if the step moves none."""
        return self._curve.rates(now)

    def seconds_left(self, now: float) -> float | None:
        """Return the time left at the recent pace (`core.estimates`). None if no element runs, or without
        progress for STALE_SECONDS. Reading back continues beside and after the copy:

        | read back so far | the time left                                                            |
        |------------------|--------------------------------------------------------------------------|
        | None             | that of the step                                                         |
        | 0                | that of the copy, plus reading all bytes at the copy's rate              |
        | above 0          | the longer: that of the copy, or of unread bytes at the mean read rate   |
        """
        if (self.states and "running" not in self.states) or now - self._moved > STALE_SECONDS:
            return None
        left = self._curve.seconds_left(now, self.total_files - self.files, self.total_bytes - self.bytes)
        unread = self.total_bytes - (self.read_back or 0)
        if self.read_back is None or unread <= 0:
            return left
        since, before = self._unread
        if self.read_back > before:
            return max(left or 0.0, unread * (now - since) / (self.read_back - before))
        rate = self.rates(now)[0]
        return (left or 0.0) + unread / rate if rate else left

    def fraction(self) -> float | None:
        """Return the done fraction, 0 to 1, or None if the totals are unknown."""
        # Publish reports only files, although it knows the bytes.
        by_bytes = self.total_bytes and (self.bytes or self.step in MOVES_BYTES or not self.total_files)
        done, total = (self.bytes, self.total_bytes) if by_bytes else (self.files, self.total_files)
        return min(done / total, 1.0) if total else None

    def amount(self) -> str:
        """Format `9,000 of 20,002 files, 1.50 of 3.42 GiB`."""
        phrases = []
        if self.total_files:
            phrases.append(f"{human.count(self.files)} of {human.counted(self.total_files, 'file')}")
        elif self.files:
            phrases.append(human.counted(self.files, "file"))
        if self.total_bytes and (self.bytes or self.step in MOVES_BYTES):
            copied = human.size_of(self.bytes, self.total_bytes)
            phrases.append(f"copied {copied}" if self.read_back else copied)
        elif self.bytes:
            phrases.append(human.size(self.bytes))
        return ", ".join(phrases)

    def read_back_text(self) -> str:
        """Format `read back 1.10 GiB`, or ""."""
        return f"read back {human.size(self.read_back)}" if self.read_back else ""

    def states_text(self) -> str:
        """Format the numbers of elements by state: `3 running, 1 done`."""
        ordered = [name for name in STATES if name in self.states]
        ordered += sorted(set(self.states) - set(STATES))
        return ", ".join(f"{self.states[name]} {human.printable(name)}" for name in ordered)

    def elements_text(self) -> str:
        """Format `4 elements: 3 running, 1 done`, or "" if the step has no elements."""
        states = self.states_text()
        return f"{human.counted(sum(self.states.values()), 'element')}: {states}" if states else ""


class Tally:
    """All steps that appeared in events, in the order in which they began."""

    def __init__(self) -> None:
        self.tasks: dict[tuple[str, str], Task] = {}

    def take(self, event: Event, now: float) -> Task:
        now = now if event.at is None else event.at
        key = (event.dataset, event.step)
        task = self.tasks.get(key)
        if task is None or (isinstance(event, Started) and task.ended is not None):
            task = self.tasks[key] = Task(event.dataset, event.step, now)
        task.take(event, now)
        return task

    def unended(self) -> list[Task]:
        """Return the steps that began, but whose end no event has reported."""
        return [task for task in self.tasks.values() if task.moves and task.ended is None]

    def broken_off(self, dataset: str, now: float) -> list[Task]:
        """Return the dataset's unended steps, and mark them as ended."""
        tasks = [task for task in self.unended() if task.dataset == dataset]
        for task in tasks:
            task.ended = now
        return tasks


def whole(result: Mapping[str, object], name: str, default: int = 0) -> int:
    """Return a count from a step's result, or `default` if the value is no count."""
    value = result.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return int(value)
    return default


# Plain lines and JSON lines, for logs, pipes and programs.
#
# A step prints a line at its start, a line every INTERVAL seconds during progress, and a line when it or the
# command ends. Each warning appears once; a warning of preflight appears once for all datasets. After
# WARNINGS warnings of a step, further warnings are only counted.

INTERVAL = 10.0
JSON_INTERVAL = 1.0
# Least time between progress lines in JSON, as a fraction of the step's time so far. So days of copying yield
# some 50,000 lines, not a million.
JSON_FRACTION = 1e-4
WARNINGS = 20
PREFLIGHT = "preflight"
BAD_STATES = ("failed", "cancelled", "lost")


class _Writer:
    """Writes whole lines to a stream. Once the stream fails, it writes nothing more."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream

    def write(self, line: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None


class Warnings:
    """Chooses the warnings to show: each text once, and at most WARNINGS texts per step."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str], set[str]] = {}
        self._more: dict[tuple[str, str], int] = {}

    def show(self, event: Warned) -> bool:
        step = (event.dataset, event.step)
        # Preflight's warnings are about target and cluster, which datasets share.
        shown = self._shown.setdefault(("", event.step) if event.step == PREFLIGHT else step, set())
        text = event.text
        if text in shown:
            return False
        if len(shown) >= WARNINGS:
            self._more[step] = self._more.get(step, 0) + 1
            return False
        shown.add(text)
        return True

    def more(self, event: Event) -> int:
        """Return the number of the step's warnings that were hidden since the last call."""
        return self._more.pop((event.dataset, event.step), 0)


class Silent:
    """A view that shows no events."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._writer, self._clock = _Writer(stream), clock
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None: ...

    def say(self, text: str) -> None:
        """Print lines that are not events, from Snakemake or a library."""
        with self._lock:
            self._writer.write(printable_lines(text))

    def failed(
        self,
        dataset: str,  # noqa: ARG002 other views know its steps
        text: str,
        how: str = run_steps.FAILED,  # noqa: ARG002 other views show it
    ) -> None:
        """Report that a step ended with the message `text`, which names the dataset. `how`: FAILED or another
        such word of `core.run_steps`."""
        if text:
            self.say(text)

    def close(self) -> None:
        """Do nothing, since this view keeps no output back."""


class Lines(Silent):
    """Prints events as plain lines."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream, clock)
        self._tally, self._warnings = Tally(), Warnings()
        self._shown: dict[tuple[str, str], tuple[float, str]] = {}

    def __call__(self, event: Event) -> None:
        with self._lock:
            now = self._clock()
            task = self._tally.take(event, now)
            for text in self._texts(event, task, now):
                self._write(event.dataset, event.step, text)

    def failed(self, dataset: str, text: str, how: str = run_steps.FAILED) -> None:
        with self._lock:
            self._left_off(self._tally.broken_off(dataset, self._clock()))
        super().failed(dataset, text, how)

    def close(self) -> None:
        """Print how far unended steps came."""
        with self._lock:
            self._left_off(self._tally.unended())

    def _left_off(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if text := left_off(task):
                self._write(task.dataset, task.step, text)

    def _write(self, dataset: str, step: str, text: str) -> None:
        name = " ".join(filter(None, (dataset, step)))
        self._writer.write(f"{time.strftime('%H:%M:%S')} {human.printable(name)}: {text}")

    def _texts(self, event: Event, task: Task, now: float) -> list[str]:
        key = (event.dataset, event.step)
        if isinstance(event, Started):
            self._shown[key] = (now, "")
            return [started(task)]
        if isinstance(event, Progressed):
            last, before = self._shown.setdefault(key, (now, ""))
            text = task.amount() + task.read_back_text() + task.elements_text()
            if now - last < INTERVAL or text == before:
                return []
            self._shown[key] = (now, text)
            return [moving(task, now)]
        if isinstance(event, Ended):
            more = self._warnings.more(event)
            return [*([f"{more} more warnings were not shown"] if more else []), finished(task)]
        if isinstance(event, Warned):
            return [f"warning: {human.printable(event.text)}"] if self._warnings.show(event) else []
        if isinstance(event, Noted):
            return [human.printable(event.text)]
        text = element(event) if isinstance(event, ElementChanged) else ""
        return [text] if text else []


class JsonLines(Silent):
    """Prints every event as a line of ASCII JSON, but progress at most once per second, and less often in
    long steps (JSON_FRACTION)."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream, clock)
        # {step: times of its first and its last progress line}
        self._shown: dict[tuple[str, str], tuple[float, float]] = {}

    def __call__(self, event: Event) -> None:
        with self._lock:
            key, now = (event.dataset, event.step), self._clock()
            if isinstance(event, Progressed):
                first, last = self._shown.get(key, (now, -JSON_INTERVAL))
                if now - last < max(JSON_INTERVAL, (now - first) * JSON_FRACTION):
                    return
                self._shown[key] = first, now
            at, data = round(time.time(), 3), typed_json.plain(event.data)
            line = {"at": at, "kind": event.kind, "dataset": event.dataset, "step": event.step, "data": data}
            self._writer.write(json.dumps(line, default=str))


def started(task: Task) -> str:
    """Format a step's start: `started: 20,002 files, 3.42 GiB, 31 shards, up to 4 elements`."""
    phrases = []
    if task.total_files:
        phrases.append(human.counted(task.total_files, "file"))
    if task.total_bytes:
        phrases.append(human.size(task.total_bytes))
    if task.shards:
        phrases.append(human.counted(task.shards, "shard"))
    if at_once := min(task.shards, task.elements):
        phrases.append(f"{'up to ' if at_once > 1 else ''}{human.counted(at_once, 'element')}")
    return "started" + (": " + ", ".join(phrases) if phrases else "")


def moving(task: Task, now: float) -> str:
    """Format a step's progress: `45%, 9,000 of 20,002 files, 1.50 of 3.42 GiB, 153 MiB/s, 13 s left; 2
    elements: ...`. A step that reads back meanwhile: `copied 1.50 of 3.42 GiB, 153 MiB/s, read back 1.10
    GiB`."""
    phrases = []
    fraction, left = task.fraction(), task.seconds_left(now)
    if fraction is not None:
        phrases.append(f"{fraction:.0%}")
    phrases.append(task.amount() or "under way")
    by_bytes, by_files = task.rates(now)
    if by_bytes:
        phrases.append(human.rate(by_bytes))
    elif by_files:
        phrases.append(f"{by_files:.0f} files/s")
    if task.read_back:
        phrases.append(task.read_back_text())
    if left is not None:
        phrases.append(f"{human.duration(left)} left")
    if task.failed:
        phrases.append(f"{human.count(task.failed)} FAILED")
    elements = task.elements_text()
    return ", ".join(phrases) + (f"; {elements}" if elements else "")


def finished(task: Task) -> str:
    """Format a step's end.

    done: 20,002 files, 3.42 GiB in 23 s (153 MiB/s)
    done: 29 files, 1.10 MiB in 1.7 s (663 KiB/s); 2,970 linked files carried over unread
    done: 100 files, 80 MiB, of them 48 MiB now in 6 s (8 MiB/s)        a resumed step
    done: all 31 shards were read back while others were copied         verify, by copy's elements
    """
    taken = task.seconds if task.seconds is not None else (task.ended or task.begun) - task.begun
    files, size = task.files - task.carried_files, task.bytes - task.carried_bytes
    phrases = [human.counted(files, "file")] if files else []
    phrases += [human.size(size)] if size else []
    parts = [f"{human.size(task.beside_copy)} beside the copy"] if task.beside_copy else []
    all_read = 0 < size <= task.beside_copy
    if task.moved is not None and task.moved[0] < size:
        size, taken = task.moved
        parts += [f"{human.size(size)} now"] if size else []
    if parts:
        phrases.append(f"of them {', '.join(parts)}")
    text = f"{', '.join(phrases)} in {human.duration(taken)}".strip().removeprefix("in ")
    if size and taken >= 0.1 and task.step in MOVES_BYTES:
        text += f" ({human.speed(size, taken)})"
    if all_read and not size:
        many = f"all {human.count(task.shards)} shards were read back while others were copied"
        text = many if task.shards > 1 else "the shard was read back as soon as it was copied"
    if task.carried_files:
        text += f"; {human.counted(task.carried_files, 'linked file')} carried over unread"
    return f"{human.count(task.failed)} FAILED, {text}" if task.failed else f"done: {text}"


def left_off(task: Task) -> str:
    """Format how far an unended step came: `left off at 9,000 of 20,002 files, 1.50 of 3.42 GiB`, or ""."""
    amounts = ", ".join(filter(None, (task.amount(), task.read_back_text())))
    return f"left off at {amounts}" if task.files or task.bytes else ""


def element(event: ElementChanged) -> str:
    """Format an element that ended badly; "" for any other element."""
    if event.state not in BAD_STATES:
        return ""
    text = f"element {event.index} {event.state}"
    text += f" on {event.node}" if event.node else ""
    text += f": {event.reason}" if event.reason else ""
    return human.printable(text)
