"""Holders against each other on a scripted folder: every order may take any time, listings may be late by any
entry, processes stop, hang and die. Time is virtual, each holder's clock its own."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from penstock.jobs.bandwidth.holder import (
    SETTLE,
    ListFolder,
    Make,
    ReadFile,
    Remove,
    Rename,
    Sleep,
    SlotHolder,
    Tidy,
)
from penstock.jobs.bandwidth.slots import parse_beat, superseded

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from penstock.jobs.bandwidth.holder import Operation

KEPT = 120.0
"""Seconds for which the model keeps what is superseded; the real folder keeps it for an hour."""


@dataclass
class File:
    content: bytes
    made: float
    gone: float = float("inf")


class Folder:
    """Every name that there ever was, with its times: what a late listing needs."""

    def __init__(self) -> None:
        self.files: dict[str, list[File]] = {}

    def there(self, name: str, at: float) -> File | None:
        return next((one for one in self.files.get(name, ()) if one.made <= at < one.gone), None)

    def make(self, name: str, content: bytes, now: float) -> bool:
        if self.there(name, now):
            return False
        self.files.setdefault(name, []).append(File(content, now))
        return True

    def remove(self, name: str, now: float) -> File | None:
        found = self.there(name, now)
        if found:
            found.gone = now
        return found

    def rename(self, old: str, new: str, now: float) -> bool:
        found = self.remove(old, now)
        if found:
            self.files.setdefault(new, []).append(File(found.content, now))
        return found is not None

    def tidy(self, names: list[str], now: float) -> None:
        """As `bandwidth.folder.tidy`: generations below one that is old."""
        for name in superseded(names, lambda name: self._is_old(name, now)):
            self.remove(name, now)
        for name in names:
            if parse_beat(name) and self._is_old(name, now):
                self.remove(name, now)
        for name in [name for name, files in self.files.items() if files[-1].gone < now - 100.0]:
            del self.files[name]

    def _is_old(self, name: str, now: float) -> bool:
        found = self.there(name, now)
        return found is not None and now - found.made > KEPT


class Held(Protocol):
    """A holder by any rule."""

    def usable(self) -> tuple[Any, float]:
        """Its slots, or its part of SLOTS, and until when by its own clock."""

    def steps(self) -> Generator[Operation, object, None]: ...

    def end(self) -> Generator[Operation, object, None]: ...


@dataclass
class Process:
    """One holder, as its process runs it."""

    holder: Any
    steps: Generator[Operation, object, None]
    clock: Callable[[], float]
    ended: bool = False
    closing: bool = False
    operations: int = 0
    born: float = 0.0
    handed_on: list[tuple[float, Any, float]] = field(default_factory=list)
    """When, by the world's clock, its workers were told to use these slots, and until when by its own."""

    def hand_on(self, now: float, follows: float) -> None:
        told = (now, *self.holder.usable())
        if not self.handed_on or self.handed_on[-1][1:] != told[1:]:
            self.handed_on.append(told)
        while len(self.handed_on) > 1 and self.handed_on[1][0] < now - follows:
            del self.handed_on[0]

    def parts(self, now: float, follows: float) -> float:
        """Of SLOTS, what any of its workers may use."""
        if self.ended:
            return 0.0
        self.hand_on(now, follows)
        clock = self.clock()
        given = [usable for _, usable, until in self.handed_on if clock <= until]
        if any(isinstance(usable, float) for usable in given):
            return float(max(given))
        return float(len(frozenset().union(*given)))

    def used(self, now: float, follows: float) -> frozenset[int]:
        """What any of its workers may use, each of which goes by what it was told up to `follows` seconds
        ago."""
        if self.ended:
            return frozenset()
        self.hand_on(now, follows)
        clock = self.clock()
        if len(self.handed_on) == 1:
            return self.handed_on[0][1] if clock <= self.handed_on[0][2] else frozenset()
        return frozenset().union(*(slots for _, slots, until in self.handed_on if clock <= until))


class World:
    """`late`: seconds by which an entry of a listing may be old. `hangs`: how likely an order is to take up
    to ten minutes, or to fail. `follows`: seconds after which a worker goes by what it was told."""

    def __init__(
        self,
        seed: int,
        *,
        late: float = 0.0,
        hangs: float = 0.0,
        local: bool = False,
        follows: float = 0.9 * SETTLE,
        rule: Callable[..., Held] = SlotHolder,
    ) -> None:
        self.chance, self.late, self.hangs, self.local = random.Random(seed), late, hangs, local
        self.rule = rule
        self.now, self.folder, self.follows = 0.0, Folder(), follows
        self.processes: list[Process] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self.overlaps: list[float] = []
        self.takes: Callable[[Operation], float] | None = None
        """Seconds that an order takes; None: milliseconds, or as it hangs."""
        self.fails: Callable[[Process, Operation], bool] = lambda *_: False
        """Whether an order that is carried out ends with an error all the same."""
        self.watch: Callable[[], None] = lambda: None

    def at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), do))

    def join(self, *, most: int | Callable[[], int] = 60) -> Process:
        rate, offset = self.chance.uniform(0.98, 1.02), self.chance.uniform(-1e4, 1e4)

        def clock() -> float:
            return self.now * rate + offset

        name = str(len(self.processes)).encode()
        holder = self.rule(
            name,
            clock,
            most=most if callable(most) else lambda: most,
            dead=lambda who: self.local and bool(who) and self.processes[int(who)].ended,
            new_name=lambda: f"{self.chance.getrandbits(64):016x}",
        )
        process = Process(holder, holder.steps(), clock, born=self.now)
        self.processes.append(process)
        self._go_on(process, None)
        return process

    def kill(self, process: Process) -> None:
        process.ended = True

    def leave(self, process: Process) -> None:
        """Its next answer is the last one; then it gives everything back."""
        process.closing = True

    def _go_on(self, process: Process, answer: object, error: OSError | None = None) -> None:
        if process.ended:
            return
        try:
            if process.closing:
                process.closing = False
                # An element leaves when its workers have ended.
                process.handed_on.clear()
                process.steps.close()
                process.steps = process.holder.end()
                operation = next(process.steps)
            elif error is not None:
                operation = process.steps.throw(error)
            else:
                operation = process.steps.send(answer)
        except (StopIteration, OSError):
            process.ended = True
            return
        self._begin(process, operation)

    def _begin(self, process: Process, operation: Operation) -> None:
        if isinstance(operation, Sleep):
            self.at(self.now + operation.seconds, lambda: self._go_on(process, None))
            return
        process.operations += 1
        chance = self.chance
        takes, fails = chance.uniform(0.0005, 0.05), False
        if chance.random() < self.hangs:
            takes = chance.choice([2.0, 12.0, 40.0, 100.0, 600.0]) * chance.random()
            fails = chance.random() < 0.5
        if self.takes is not None:
            takes = self.takes(operation)
        done = self.now + takes
        effect = self.now + takes * chance.random()
        answers: list[object] = []
        # An order that failed for its process may have been carried out all the same, even after it died.
        if not fails or chance.random() < 0.5:
            self.at(effect, lambda: answers.append(self._carried_out(operation)))
        fails = fails or self.fails(process, operation)
        error = OSError("it does not answer") if fails else None
        self.at(done, lambda: self._go_on(process, answers[-1] if answers else None, error))

    def _carried_out(self, operation: Operation) -> object:
        folder, now = self.folder, self.now
        match operation:
            case ListFolder():
                return [name for name in list(folder.files) if folder.there(name, self._then())]
            case Make(name, content):
                return folder.make(name, content, now)
            case Rename(old, new):
                return folder.rename(old, new, now)
            case ReadFile(name):
                found = folder.there(name, self._then())
                return found.content if found else b""
            case Remove(name):
                folder.remove(name, now)
            case Tidy(names):
                folder.tidy(names, now)
        return None

    def _then(self) -> float:
        return self.now - self.chance.random() * self.late

    def run(self, until: float) -> None:
        """Carry out everything up to this time; notes when two may use a slot at once."""
        while self._events and self._events[0][0] <= until:
            self.now, _, do = heapq.heappop(self._events)
            do()
            running = [process for process in self.processes if not process.ended]
            if self.rule is SlotHolder:
                used = [self.used(process) for process in running]
                if sum(map(len, used)) > len(frozenset().union(*used)):
                    self.overlaps.append(self.now)
            self.watch()
        self.now = until

    def used(self, process: Process) -> frozenset[int]:
        return process.used(self.now, self.follows)

    def total(self) -> int:
        return sum(len(self.used(process)) for process in self.processes)

    def beats(self) -> int:
        names = [name for name in self.folder.files if self.folder.there(name, self.now)]
        return sum(parse_beat(name) is not None for name in names)
