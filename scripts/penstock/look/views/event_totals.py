"""Totals of the events so far, by dataset and step. Not thread-safe: a view holds its own lock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.estimates import ProgressCurve
from penstock.core.events import Ended, Progressed, Started
from penstock.core.step_table import MOVES_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.core.events import Event

STATES = ("running", "pending", "held", "unknown", "done", "stopped", "failed", "cancelled", "lost")
# Seconds without progress until the time left is hidden; more than the longest pause between cluster queries.
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
    elements: int = 0  # that may work at once
    files: int = 0
    bytes: int = 0
    failed: int = 0
    read_back: int | None = None  # bytes, in a step that also reads back
    carried_files: int = 0  # the part of `files` and `bytes` that verify did not read (`verify.linked`)
    carried_bytes: int = 0
    beside_copy: int = 0  # bytes that copy's elements had read back
    states: dict[str, int] = field(default_factory=dict)
    moves: bool = False  # the step has begun; False: only a note named it
    ended: float | None = None
    seconds: float | None = None  # of the whole step, from its result
    # bytes and seconds that this command moved itself, from the result
    moved: tuple[int, float] | None = None
    _moved: float = 0.0  # when files or bytes last grew
    _curve: ProgressCurve = field(default_factory=ProgressCurve)
    # when this command first saw bytes read back, and `read_back` until then
    _unread: tuple[float, int] = (0.0, 0)

    def take(self, event: Event, now: float) -> None:
        """Update the totals by one event. Fields that it lacks keep their values."""
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
        # A giant's parts count one by one while under way.
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
        """Return recent (bytes, files) per second, without what was done before; no bytes for a step that
        moves none."""
        return self._curve.rates(now)

    def seconds_left(self, now: float) -> float | None:
        """Return the time left at the recent pace (`core.estimates`); None if no element runs, or
        nothing moved for STALE_SECONDS. Reading back continues beside and after the copy:

        | read back so far | the time left                                                            |
        |------------------|--------------------------------------------------------------------------|
        | None             | the step's own                                                           |
        | nothing          | the copy's, then that of all bytes at the copy's rate                    |
        | some             | the later of the copy's, and of what is unread at the mean rate of reads |
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
        """Return 0 to 1, or None if the totals are unknown."""
        # Publish reports only files although it knows the bytes.
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
        """Format the elements by state: `3 running, 1 done`."""
        ordered = [name for name in STATES if name in self.states]
        ordered += sorted(set(self.states) - set(STATES))
        return ", ".join(f"{self.states[name]} {human.printable(name)}" for name in ordered)

    def elements_text(self) -> str:
        """Format `4 elements: 3 running, 1 done`, or "" if there are none."""
        states = self.states_text()
        return f"{human.counted(sum(self.states.values()), 'element')}: {states}" if states else ""


class Tally:
    """All steps that events named, in the order in which they began."""

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
        """Return the steps that began and whose end no event reported."""
        return [task for task in self.tasks.values() if task.moves and task.ended is None]

    def broken_off(self, dataset: str, now: float) -> list[Task]:
        """Return the dataset's unended steps, and mark them as ended."""
        tasks = [task for task in self.unended() if task.dataset == dataset]
        for task in tasks:
            task.ended = now
        return tasks


def whole(result: Mapping[str, object], name: str, default: int = 0) -> int:
    """Return a count from a step's result, or `default` if it is none."""
    value = result.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return int(value)
    return default
