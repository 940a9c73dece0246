"""Two rules for the shares of a link, each on the same story: `python -m tests.bandwidth.rule_trial RUNS`.

A story is half an hour in which holders join, leave, die and change how much they can use, at any moment;
each holder's clock is its own and goes wrong by up to 2 %. `late`: seconds by which each entry of a listing
may be old by itself; `hangs`: how likely an order takes up to ten minutes, or fails.
"""

from __future__ import annotations

import random
import statistics
import sys
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tests.bandwidth.lease_rule import LeaseHolder
from tests.bandwidth.model import Process, World

from penstock.jobs.bandwidth.holder import SlotHolder
from penstock.jobs.bandwidth.slots import SLOTS

if TYPE_CHECKING:
    from collections.abc import Sequence

RULES = ("slots", "lease")
STORY = 1800.0
BETWEEN = 60.0
"""Seconds from one event of a story to the next one, as a mean."""
LONG = 300.0
"""Seconds after which a living holder without any part counts as starved."""


@dataclass
class Member:
    """A holder of a story."""

    process: Process
    alone: bool
    """Nobody else was there when it joined."""
    most: list[int]
    """How many parts are of use to it: one number, which changes."""
    first: float | None = None
    """Seconds after which it had a part."""


@dataclass
class Trial:
    """One story under one rule."""

    rule: str
    seed: int
    late: float
    hangs: float
    kills: float = 0.35
    """Of the events of a story that are none of joining, the part that are deaths."""
    worst: float = 0.0
    """The largest sum of all parts in use, as a part of the cap."""
    used: float = 0.0
    usable: float = 0.0
    """What was used, and what the living could have used, in parts times seconds."""
    members: list[Member] = field(default_factory=list)
    orders: int = 0
    """Operations on the folder."""

    def run(self) -> Trial:
        """Play the story."""
        rule = SlotHolder if self.rule == "slots" else partial(LeaseHolder, late=self.late)
        self._world = World(self.seed, late=self.late, hangs=self.hangs, rule=rule)
        self._chance = random.Random(self.seed)
        self._since, self._sum, self._wanted = 0.0, 0.0, 0
        self._world.at(0.0, self._event)
        self._world.watch = self._watch
        self._world.run(STORY)
        self.orders = sum(process.operations for process in self._world.processes)
        return self

    def waits(self, *, alone: bool) -> list[float]:
        """Seconds until each holder had a part, of those that ever had one."""
        return [one.first for one in self.members if one.alone == alone and one.first is not None]

    def starved(self) -> int:
        """Holders that live and never had a part in LONG seconds."""
        return sum(one.first is None and STORY - one.process.born > LONG for one in self._living())

    def _living(self) -> list[Member]:
        return [one for one in self.members if not one.process.ended and not one.process.closing]

    def _event(self) -> None:
        world, chance, living = self._world, self._chance, self._living()
        if len(living) < 2 or (len(living) < 5 and chance.random() < 0.6):
            most = [chance.choice([SLOTS, SLOTS, 10, 30])]
            self.members.append(Member(world.join(most=lambda: most[0]), not living, most))
        else:
            what, member = chance.random(), chance.choice(living)
            if what < self.kills:
                world.kill(member.process)
            elif what < 0.7:
                world.leave(member.process)
            else:
                member.most[0] = chance.choice([SLOTS, 30, 10, 5])
        world.at(world.now + chance.expovariate(1 / BETWEEN), self._event)

    def _watch(self) -> None:
        world, living = self._world, self._living()
        seconds = world.now - self._since
        self.used += self._sum * seconds
        self.usable += self._wanted * seconds
        self._since = world.now
        self._sum = sum(process.parts(world.now, world.follows) for process in world.processes)
        self._wanted = min(SLOTS, sum(one.most[0] for one in living))
        self.worst = max(self.worst, self._sum / SLOTS)
        for one in living:
            if one.first is None and one.process.parts(world.now, world.follows):
                one.first = world.now - one.process.born


def _row(trials: Sequence[Trial]) -> str:
    """What all these trials of one rule on one kind of story showed."""
    one = trials[0]
    usable, orders = sum(trial.usable for trial in trials), sum(trial.orders for trial in trials)
    words = [
        f"{one.rule:5}  late {one.late:4.0f} s  hangs {one.hangs:.0%}  deaths {one.kills:.0%}",
        f"worst sum {max(trial.worst for trial in trials):.3f}",
        f"used {sum(trial.used for trial in trials) / usable:.0%}",
    ]
    for alone, word in ((True, "alone"), (False, "beside others")):
        waits = [seconds for trial in trials for seconds in trial.waits(alone=alone)]
        words.append(f"first part {word} {statistics.median(waits):.0f} s, at most {max(waits):.0f} s")
    words.append(f"starved {sum(trial.starved() for trial in trials)}")
    words.append(f"{orders / sum(len(trial.members) for trial in trials):.0f} orders a holder")
    return "; ".join(words)


def main(runs: int) -> None:
    """Print a row for each rule and kind of story."""
    for late in (0.0, 2.0, 60.0):
        for hangs in (0.0, 0.02):
            for kills in (0.0, 0.35):
                for rule in RULES:
                    trials = [Trial(rule, seed, late, hangs, kills).run() for seed in range(runs)]
                    print(_row(trials), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
