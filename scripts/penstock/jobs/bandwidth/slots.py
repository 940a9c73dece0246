"""The slots of a network link: what the names in their folder say, and what a holder does about them. Pure.

A holder is one element that copies over the link; `holder` runs it by these rules, and `folder` and
`overview` read the names. All times are seconds by one holder's own clock.

The cap is cut into SLOTS equal parts. The folder holds one small file for each of these facts, and its name
is the fact, so that one listing shows them all:

| name                                    | is made by                            | it says               |
|-----------------------------------------|---------------------------------------|-----------------------|
| `<slot>.<generation>`                   | a holder, by O_EXCL                   | it has taken the slot |
| `<slot>.<generation>.free`              | the same holder, later                | it has given it back  |
| `beat.<holder>.<number>.<slots>.<most>` | a holder, which renames it every 20 s | it uses these slots   |

`<slots>` is a mask in hexadecimal digits; more than `<most>` slots are of no use to the holder.

A slot's highest generation counts. Only the next generation can be taken, and O_EXCL gives it to one holder
alone, whatever old listing it went by. No name is used twice, so an order that was held up for minutes
changes nothing that came after it. docs/bandwidth.md has the whole protocol, its invariant and why it holds.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

SLOTS = 60
"""Parts of the cap. 60 divides evenly among up to six holders. More holders than that wait for one to end."""
LEASE = 60.0
"""Seconds. NFS may show a folder as it was up to 60 s ago: see `ABANDONED`."""
VALID = LEASE / 2
"""Seconds from the beginning of a beat for which a holder reads; then it stops until it has slots anew."""
ABANDONED = 2 * LEASE
"""Seconds for which a taker sees, by its own clock, no new beat for a slot before it takes it over. A beat
follows the one before within VALID; where listings are `late` seconds old, the taker sees it within `late`
and BLIND. So no slot of a living holder is taken while late < ABANDONED - VALID - BLIND, which is 70 s."""
BLIND = 20.0
"""Seconds without a look after which a taker begins to watch anew: in rest two looks are at most 15 s
apart."""

_TAKEN = re.compile(r"(\d{2})\.(\d{1,18})(\.free)?", re.ASCII)
_BEAT = re.compile(r"beat\.([0-9a-f]{16})\.(\d{1,12})\.([0-9a-f]{1,15})\.(\d{1,2})", re.ASCII)


class Beat(NamedTuple):
    """A holder's own file, which it renames again and again: what its name says."""

    holder: str
    """16 hexadecimal digits."""
    number: int
    """How many times the file was renamed."""
    slots: frozenset[int]
    """The slots that the holder uses."""
    most: int
    """How many slots are of use to it at most."""

    @property
    def name(self) -> str:
        """The file's name."""
        mask = sum(1 << slot for slot in self.slots)
        return f"beat.{self.holder}.{self.number}.{mask:x}.{self.most}"


class FolderState(NamedTuple):
    """A listing of the folder. Names that mean nothing here are passed over."""

    beats: Mapping[str, Beat]
    """By holder."""
    generations: Mapping[int, int]
    """The highest of each slot that was ever taken."""
    free: Collection[int]
    """Slots whose highest generation was given back."""


def taken_name(slot: int, generation: int) -> str:
    """The name of the file that says that a slot was taken."""
    return f"{slot:02d}.{generation}"


def free_name(slot: int, generation: int) -> str:
    """The name of the file that says that a slot was given back."""
    return f"{slot:02d}.{generation}.free"


def parse_taken(name: str) -> tuple[int, int] | None:
    """(slot, generation) of a name that says that a slot was taken, or given back; None for other names."""
    match = _TAKEN.fullmatch(name)
    return (int(match[1]), int(match[2])) if match and int(match[1]) < SLOTS else None


def parse_beat(name: str) -> Beat | None:
    """The beat of this file name; None for other names."""
    match = _BEAT.fullmatch(name)
    if not match:
        return None
    mask = int(match[3], 16)
    slots = frozenset(slot for slot in range(SLOTS) if mask >> slot & 1)
    return Beat(match[1], int(match[2]), slots, int(match[4]))


def parse(names: Iterable[str]) -> FolderState:
    """What a listing of the folder says. Of several beats of a holder the last one counts. Raises nothing."""
    beats: dict[str, Beat] = {}
    generations: dict[int, int] = {}
    given_back: set[tuple[int, int]] = set()
    for name in names:
        if beat := parse_beat(name):
            # A listing that was made while the file was renamed may show both names.
            if beat.holder not in beats or beats[beat.holder].number < beat.number:
                beats[beat.holder] = beat
        elif taken := parse_taken(name):
            slot, generation = taken
            if name.endswith(".free"):
                given_back.add(taken)
            else:
                generations[slot] = max(generations.get(slot, 0), generation)
    free = {slot for slot, generation in generations.items() if (slot, generation) in given_back}
    return FolderState(beats, generations, free)


def superseded(names: Iterable[str], is_old: Callable[[str], bool]) -> Iterator[str]:
    """The names of generations that mean nothing any more: those below one that `is_old`, which a listing
    that may be late shows for certain. The last generation of a slot is none of them: its number is what the
    next one counts from. `is_old` is asked a few times for each slot: generations are made one after another.
    """
    taken: dict[int, set[int]] = {}
    taken_files = [(name, one) for name in names if (one := parse_taken(name))]
    for name, (slot, generation) in taken_files:
        if not name.endswith(".free"):
            taken.setdefault(slot, set()).add(generation)
    oldest_kept: dict[int, int] = {}
    for slot, generations in taken.items():
        ordered = sorted(generations)
        files = [taken_name(slot, generation) for generation in ordered]
        young = bisect_left(files, True, key=lambda file: not is_old(file)) if len(files) > 1 else 0
        oldest_kept[slot] = ordered[max(0, young - 1)]
    for name, (slot, generation) in taken_files:
        if generation < oldest_kept.get(slot, 0):
            yield name


class Memory:
    """What one holder has seen of the others, by its own clock."""

    def __init__(self) -> None:
        self._looked = float("-inf")
        self._numbers: dict[str, tuple[int, float]] = {}
        """By holder: the number of its last beat, and when that was first seen."""
        self._generations: dict[int, tuple[int, float]] = {}
        """By slot: its generation, and when that, or a new beat for the slot, was last seen."""

    def look(self, state: FolderState, now: float) -> None:
        """Remember a listing that was begun at `now`. To be called before `living` and `open` are asked of
        it."""
        anew = now - self._looked > BLIND
        self._looked = now
        for slot, generation in state.generations.items():
            known = self._generations.get(slot)
            # Who did not look for long has not seen that nothing moved.
            if anew or known is None or known[0] != generation:
                self._generations[slot] = (generation, now)
        for holder, beat in state.beats.items():
            before = self._numbers.get(holder)
            if not anew and before is not None and before[0] == beat.number:
                continue
            self._numbers[holder] = (beat.number, now)
            for slot in beat.slots & self._generations.keys():
                self._generations[slot] = (self._generations[slot][0], now)
        for holder in self._numbers.keys() - state.beats.keys():
            if now - self._numbers[holder][1] >= ABANDONED:
                del self._numbers[holder]

    def moved(self, state: FolderState) -> list[Beat]:
        """Beats that `look` has not been shown yet."""
        return [
            beat
            for holder, beat in state.beats.items()
            if holder not in self._numbers or self._numbers[holder][0] != beat.number
        ]

    def living(self, state: FolderState, now: float, dead: Collection[str]) -> dict[str, Beat]:
        """The holders that count when the slots are divided, with their beats: those not in `dead` whose beat
        was new within ABANDONED seconds."""
        return {
            holder: beat
            for holder, beat in state.beats.items()
            if holder not in dead and now - self._numbers[holder][1] < ABANDONED
        }

    def open(self, state: FolderState, now: float) -> set[int]:
        """The slots that may be taken, each in its next generation.

        | the slot's highest generation                                      | may be taken |
        |--------------------------------------------------------------------|--------------|
        | there is none                                                      | yes          |
        | was given back                                                     | yes          |
        | neither it nor a new beat for the slot was first seen within ABANDONED | yes      |
        | else                                                               | no           |
        """
        return {
            slot
            for slot in range(SLOTS)
            if slot not in state.generations
            or slot in state.free
            or now - self._generations[slot][1] >= ABANDONED
        }

    def doubtful(self, state: FolderState, dead: Collection[str]) -> set[int]:
        """Slots that only holders use whose process is dead: the content of each slot's file says whose it
        is."""
        used: dict[int, set[str]] = {}
        for holder, beat in state.beats.items():
            for slot in beat.slots:
                used.setdefault(slot, set()).add(holder)
        return {
            slot
            for slot, holders in used.items()
            if slot in state.generations and slot not in state.free and holders <= set(dead)
        }


def divided(most: Mapping[str, int], slots: int = SLOTS) -> dict[str, int]:
    """How many slots each holder should have: as equal as can be, to none more than it can use. What does not
    divide evenly goes to the last by name, so that all who see the same holders reckon alike."""
    share, left = {}, slots
    for rank, holder in enumerate(sorted(most, key=lambda one: (most[one], one))):
        share[holder] = min(most[holder], left // (len(most) - rank))
        left -= share[holder]
    return share


class Move(NamedTuple):
    """What a holder does next: give so many of its slots back, or take so many; never both."""

    give: int = 0
    take: int = 0


def move(holder: str, held: int, living: Mapping[str, Beat], most: int, open_slots: int) -> Move:
    """What a holder that has `held` slots does, by what it knows of the `living` others. `most`: how many
    slots are of use to it; `open_slots`: how many may be taken.

    | it has              | others                        | then                                         |
    |---------------------|-------------------------------|----------------------------------------------|
    | less than its share |                               | takes what is open, up to its share          |
    | more than its share | lack more slots than are open | gives back what they lack, down to its share |
    | more than its share | lack nothing that is not open | keeps them                                   |
    | its share           |                               | nothing                                      |

    Nobody gives its last slot back: where there are more holders than slots, those that came last wait.
    """
    others = {name: beat for name, beat in living.items() if name != holder}
    share = divided({**{name: beat.most for name, beat in others.items()}, holder: most})
    if held < share[holder]:
        return Move(take=min(share[holder] - held, open_slots))
    lacking = sum(max(0, share[name] - len(beat.slots)) for name, beat in others.items())
    return Move(give=max(0, min(held - max(1, share[holder]), lacking - open_slots)))


def lacks(holder: str, held: int, living: Mapping[str, Beat], most: int) -> bool:
    """Whether the holder has less than its share."""
    others = {name: beat.most for name, beat in living.items() if name != holder}
    return held < divided({**others, holder: most})[holder]
