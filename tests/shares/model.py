"""Runs against each other on a scripted folder: every order may take any time, listings may be late by any
entry, processes stop, hang and die. Time is virtual, each process's clock its own. The processes are those of
`penstock.jobs.share_rule`, each a greenlet: at each operation it waits until the world goes on with it."""

from __future__ import annotations

import contextlib
import heapq
import random
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, cast

from greenlet import getcurrent, greenlet

from penstock.jobs.share_rule import PARTS, FileState, Member, Post

if TYPE_CHECKING:
    from collections.abc import Callable

FOLLOWS = 0.9
"""Seconds after which a process's workers go by what it may use."""


@dataclass
class File:
    content: bytes
    made: float
    gone: float = float("inf")


class Folder:
    """Every name that there ever was, with its times: what a late listing needs."""

    def __init__(self) -> None:
        self.files: dict[str, list[File]] = {}
        self.owners: dict[str, int] = {}
        """Of files that are not account 1's."""

    def there(self, name: str, at: float) -> File | None:
        return next((file for file in self.files.get(name, ()) if file.made <= at < file.gone), None)

    def make(self, name: str, content: bytes, now: float) -> bool:
        if self.there(name, now):
            return False
        self.files.setdefault(name, []).append(File(content, now))
        return True

    def remove(self, name: str, now: float) -> File | None:
        file = self.there(name, now)
        if file:
            file.gone = now
        return file

    def rename(self, old: str, new: str, now: float) -> bool:
        file = self.remove(old, now)
        if file:
            self.files.setdefault(new, []).append(File(file.content, now))
        return file is not None

    def forget(self, now: float) -> None:
        for name in [name for name, files in self.files.items() if files[-1].gone < now - 100.0]:
            del self.files[name]


@dataclass
class Process:
    """One process of a run."""

    member: Member
    clock: Callable[[], float]
    uses: bool
    """False: a controller, which copies nothing."""
    born: float
    greenlet: greenlet
    ended: bool = False
    leaves: Callable[[], None] | None = None
    """What it does after its next answer, in place of all else."""
    leaving: bool = False
    operations: int = 0
    first: float | None = None
    """Seconds after which it had a part."""
    allowed: list[tuple[float, float, float]] = field(default_factory=list)
    """When, by the world's clock, its workers were given this part, and until when by its own."""

    def hand_on(self, now: float) -> None:
        given = (now, *self.member.usable)
        if not self.allowed or self.allowed[-1][1:] != given[1:]:
            self.allowed.append(given)
        while len(self.allowed) > 1 and self.allowed[1][0] < now - FOLLOWS:
            del self.allowed[0]

    def part(self, now: float) -> float:
        """Of the rate, what any of its workers may use: each goes by what was given up to FOLLOWS ago."""
        if self.ended or not self.uses:
            return 0.0
        self.hand_on(now)
        clock = self.clock()
        part = max((part for _, part, until in self.allowed if clock <= until), default=0.0)
        if part and self.first is None:
            self.first = now - self.born
        return part


class _LeftError(Exception):
    """An element leaves when its workers have ended."""


class Reach:
    """`SharesFolder`, as one process reaches it: each call ends when the world says so."""

    process: Process

    def __init__(self, world: World) -> None:
        self._world = world

    def names(self) -> list[str]:
        return cast("list[str]", self._world.carry_out(self.process, self._world.shown))

    def make(self, name: str, content: bytes) -> None:
        self._world.carry_out(self.process, lambda: self._world.make(name, content))

    def rename(self, old: str, new: str) -> bool:
        return bool(self._world.carry_out(self.process, lambda: self._world.rename(old, new)))

    def state(self, name: str) -> FileState | None:
        return cast("FileState | None", self._world.carry_out(self.process, lambda: self._world.state(name)))

    def remove(self, name: str) -> None:
        self._world.carry_out(self.process, lambda: self._world.folder.remove(name, self._world.now))

    def rest(self, seconds: float) -> None:
        self._world.at(self._world.now + seconds, lambda: self._world.go_on(self.process))
        getcurrent().parent.switch()


class Run:
    """A run in a world: a controller that posts, and processes that copy."""

    def __init__(self, world: World, number: int, *, uid: int = 1) -> None:
        self.world, self.uid = world, uid
        self.name = f"{number:08x}"
        self.post = Post(PARTS, 0)
        self.holder = ""
        self.controller: Process | None = None
        self.workers: list[Process] = []
        self.born = world.now
        self.alone = not any(run.living for run in world.runs)

    @property
    def living(self) -> list[Process]:
        processes = [*self.workers, *([self.controller] if self.controller else [])]
        return [process for process in processes if not process.ended]

    def control(self, *, uses: bool = False) -> Process:
        """Start a controller, also where one died."""
        self.controller = self.world.start(self.name, uses, lambda: self.post, self.uid)
        return self.controller

    def work(self) -> Process:
        if self.controller is not None and self.controller.member.holder:
            self.holder = self.controller.member.holder
        process = self.world.start(self.holder, True, None, self.uid)
        self.workers.append(process)
        return process

    @property
    def wanted(self) -> float:
        """What its living processes could use of the rate, alone."""
        if not self.post.processes:
            return 0.0
        working = sum(not worker.ended and worker.uses for worker in self.workers)
        return self.post.most / PARTS * min(1.0, working / self.post.processes)

    def part(self) -> float:
        return sum(process.part(self.world.now) for process in self.living)


class World:
    """`late`: seconds by which an entry of a listing may be old. `hangs`: how likely an order is to take up
    to ten minutes, or to fail."""

    def __init__(self, seed: int, *, late: float = 0.0, hangs: float = 0.0) -> None:
        self.chance, self.late, self.hangs = random.Random(seed), late, hangs
        self.now, self.folder = 0.0, Folder()
        self.clock_set: float = 0.0
        """Seconds by which the clock of the file system was set on."""
        self.runs: list[Run] = []
        self.processes: list[Process] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self.watch: Callable[[], None] = lambda: None

    def at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), do))

    def run_of(self, number: int | None = None, *, uid: int = 1) -> Run:
        run = Run(self, len(self.runs) if number is None else number, uid=uid)
        self.runs.append(run)
        return run

    def start(self, run: str, uses: bool, wanted: Callable[[], Post] | None, uid: int) -> Process:
        rate, offset = self.chance.uniform(0.98, 1.02), self.chance.uniform(-1e4, 1e4)

        def clock() -> float:
            return self.now * rate + offset

        reach = Reach(self)
        member = Member(
            reach,
            reach.rest,
            run,
            str(uid).encode(),
            clock,
            late=self.late,
            wanted=wanted,
            new_name=lambda digits: f"{self.chance.getrandbits(4 * digits):0{digits}x}",
        )

        def work() -> None:
            with contextlib.suppress(OSError):
                try:
                    member.hold()
                except _LeftError:
                    if process.leaves:
                        process.leaves()
            process.ended = True

        reach.process = process = Process(member, clock, uses, self.now, greenlet(work))
        self.processes.append(process)
        process.greenlet.switch()
        return process

    def kill(self, process: Process) -> None:
        process.ended = True

    def leave(self, process: Process, *, whole: bool = False) -> None:
        """Its next answer is the last one. `whole`: and the holder ends."""
        process.leaves = process.member.end if whole else process.member.leave

    def go_on(self, process: Process, answer: object = None, error: Exception | None = None) -> None:
        if process.ended:
            return
        if process.leaves is not None and not process.leaving:
            process.allowed.clear()
            process.leaving, process.uses = True, False
            error = _LeftError()
        if error is not None:
            process.greenlet.throw(error)
        else:
            process.greenlet.switch(answer)

    def carry_out(self, process: Process, order: Callable[[], object]) -> object:
        """An order of the process at work, which goes on with the answer."""
        process.operations += 1
        chance = self.chance
        takes, fails = chance.uniform(0.0005, 0.05), False
        if chance.random() < self.hangs:
            takes = chance.choice([2.0, 12.0, 40.0, 100.0, 600.0]) * chance.random()
            fails = chance.random() < 0.5
        effect = self.now + takes * chance.random()
        answers: list[object] = []
        # An order that failed for its process may have been carried out all the same, even after it died.
        if not fails or chance.random() < 0.5:
            self.at(effect, lambda: answers.append(order()))
        error = OSError("it does not answer") if fails else None
        self.at(self.now + takes, lambda: self.go_on(process, answers[-1] if answers else None, error))
        return getcurrent().parent.switch()

    def shown(self) -> list[str]:
        if self.chance.random() < 0.05:
            self.folder.forget(self.now)
        return [name for name in list(self.folder.files) if self.folder.there(name, self._then())]

    def make(self, name: str, content: bytes) -> None:
        if self.folder.make(name, content, self.now):
            self.folder.owners[name] = int(content)

    def rename(self, old: str, new: str) -> bool:
        self.folder.owners[new] = self.folder.owners.get(old, 1)
        return self.folder.rename(old, new, self.now)

    def state(self, name: str) -> FileState | None:
        file = self.folder.there(name, self.now)
        return file and FileState(self.folder.owners.get(name, 1), file.made + self._set_by(file.made))

    def _set_by(self, then: float) -> float:
        return self.clock_set if then >= STORY / 2 else 0.0

    def _then(self) -> float:
        return self.now - self.chance.random() * self.late

    def run(self, until: float) -> None:
        """Carry out everything up to this time."""
        while self._events and self._events[0][0] <= until:
            self.now, _, do = heapq.heappop(self._events)
            do()
            self.watch()
        self.now = until

    def total(self) -> float:
        """Of the rate, what all may use together now."""
        self.processes = [process for process in self.processes if not process.ended]
        return sum(process.part(self.now) for process in self.processes if process.uses)


STORY = 1200.0
"""Seconds of a story."""
BETWEEN = 45.0
"""From one event of a story to the next one, as a mean."""


@dataclass
class Story:
    """Twenty minutes in which runs come, copy, change their number of processes, leave, lose processes and
    controllers, and begin again, at any moment."""

    seed: int
    late: float
    hangs: float
    kills: float = 0.35
    """Of the events that are none of joining, the part that are deaths."""
    clock_set: float = 0.0
    worst: float = 0.0
    """The largest sum of all parts in use, as a part of the rate."""
    used: float = 0.0
    usable: float = 0.0
    """What was used, and what could have been while a run had workers, in parts times seconds."""
    runs: list[Run] = field(default_factory=list)

    def play(self) -> Story:
        self._world = world = World(self.seed, late=self.late, hangs=self.hangs)
        world.clock_set = self.clock_set
        self.runs, self._chance = world.runs, random.Random(self.seed)
        self._since, self._sum, self._some = 0.0, 0.0, 0.0
        world.at(0.0, self._event)
        world.watch = self._watch
        world.run(STORY)
        return self

    def waits(self, *, alone: bool) -> list[float]:
        """Seconds from the begin of each run whose processes come at once, until one had a part."""
        firsts = [
            [worker.first + worker.born - run.born for worker in run.workers if worker.first is not None]
            for run in self.runs
            if run.alone == alone
        ]
        return [min(first) for first in firsts if first]

    def _event(self) -> None:
        chance, world = self._chance, self._world
        living = [run for run in self.runs if run.living]
        if len(living) < 2 or (len(living) < 5 and chance.random() < 0.5):
            self._join(living)
        else:
            run = chance.choice(living)
            if chance.random() < self.kills:
                self._kill(run)
            else:
                self._change(run)
        self._some = min(1.0, sum(run.wanted for run in self.runs))
        world.at(world.now + chance.expovariate(1 / BETWEEN), self._event)

    def _join(self, living: list[Run]) -> None:
        chance, world = self._chance, self._world
        ended = [run for run in self.runs if not run.living]
        if ended and chance.random() < 0.3:
            run = chance.choice(ended)
            world.runs.remove(run)
            run = world.run_of(int(run.name, 16), uid=run.uid)
        else:
            run = world.run_of(uid=chance.choice([1, 1, 2]))
        run.alone = not living
        run.post = Post(chance.choice([PARTS, PARTS, 200, 500]), chance.choice([1, 2, 4]))
        run.control()
        self._begin_workers(run)

    def _begin_workers(self, run: Run) -> None:
        """As copy does: when its controller has posted how many there may be."""
        controller = run.controller
        if controller is None or controller.ended or run.workers:
            return
        if not controller.member.knows(run.post.processes):
            self._world.at(self._world.now + 0.2, lambda: self._begin_workers(run))
            return
        for _ in range(run.post.processes):
            run.work()

    def _kill(self, run: Run) -> None:
        chance, world = self._chance, self._world
        what = chance.random()
        if what < 0.3 and run.controller:
            world.kill(run.controller)
        elif what < 0.7 and run.workers:
            worker = chance.choice(run.workers)
            world.kill(worker)
            run.workers.remove(worker)
        else:
            for process in run.living:
                world.kill(process)

    def _change(self, run: Run) -> None:
        chance, world = self._chance, self._world
        workers = [worker for worker in run.workers if not worker.ended]
        controller = run.controller if run.controller and not run.controller.ended else None
        what = chance.random()
        if controller is None:
            run.control()
        elif what < 0.2:
            run.post = run.post._replace(most=chance.choice([PARTS, 500, 100, 10]))
        elif what < 0.4:
            self._widen(run, chance.choice([1, 2, 4, 8]), workers)
        elif what < 0.7 and len(workers) < run.post.processes and controller.member.knows(run.post.processes):
            run.work()
        elif what < 0.8 and workers:
            world.leave(chance.choice(workers))
        elif not workers:
            world.leave(controller, whole=True)

    def _widen(self, run: Run, processes: int, workers: list[Process]) -> None:
        if processes >= len(workers):
            run.post = run.post._replace(processes=processes)

    def _watch(self) -> None:
        world = self._world
        seconds = world.now - self._since
        self.used += self._sum * seconds
        self.usable += self._some * seconds
        self._since = world.now
        self._sum = world.total()
        self.worst = max(self.worst, self._sum)
