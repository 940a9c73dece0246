"""Another rule for the shares of a link than slots, tried beside them by `rule_trial`; penstock uses slots.

| name                        | is                            | it says                                      |
|-----------------------------|-------------------------------|----------------------------------------------|
| `holder.<id>.<most>`        | made once, removed at the end | this holder counts, for `most` parts         |
| `beat.<id>.<number>.<whom>` | renamed every BEAT seconds    | it lives, and divides among these (a digest) |

Nobody owns a part. Each holder divides the cap over all holders that its last listing (its *view*) shows, and
uses its part of that. Let `late` be how old an entry of a listing may be.

- L1. A view is used for VALID seconds from the moment at which its listing began.
- L2. A holder whose last beat began more than LIVES seconds ago uses nothing, and goes on as a new holder.
- L3. A new holder uses nothing until `late` + VALID have passed since its file was made: then no view that is
  used lacks it. It begins earlier by a view that began `late` after its file was made, where that shows
  nobody else, or only holders whose beats say that they divide among the same: whoever came later sees it.
- L4. A holder is left out of a view that shows a beat whose number was first seen ABANDONED before. One whose
  beat is not shown stays: a listing can miss a name that is renamed meanwhile.
- L5. More `most` is a file of its own, used as L3 says; the other files are removed when it may be.
- L6. A holder whose own file is not in its view goes on as a new one.
- L7. A holder that was seen stays in the view for `late`, whatever later listings show: the beat said so.

L4 is safe while LIVES + `late` < ABANDONED: a beat that is shown unchanged was not renamed until `late`
before, and a holder that does not rename it within LIVES uses nothing any more. Each holder measures by its
own clock, so the times for which it waits carry DRIFT.
"""

from __future__ import annotations

import hashlib
import math
import re
from typing import TYPE_CHECKING, NamedTuple

from penstock.jobs.bandwidth.holder import ListFolder, Make, ReadFile, Remove, Rename, Sleep
from penstock.jobs.bandwidth.slots import SLOTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Mapping

    from penstock.jobs.bandwidth.holder import Operation

VALID = 30.0
LIVES = 45.0
ABANDONED = 120.0
GONE = 600.0
"""Seconds without any sight of a beat after which its holder is left out: somebody removed it."""
BEAT = 20.0 - 0.1
PAUSE = 5.0
QUICK = 2.0
SETTLE = 1.0
DRIFT = 1.05

_HOLDER = re.compile(r"holder\.([0-9a-f]{16})\.(\d{1,2})", re.ASCII)
_BEAT = re.compile(r"beat\.([0-9a-f]{16})\.(\d{1,12})\.([0-9a-f]{16})", re.ASCII)


class Listing(NamedTuple):
    most: Mapping[str, int]
    """By holder: of its files the largest one."""
    beats: Mapping[str, tuple[int, str]]
    """Number and digest."""


def parse(names: Iterable[str]) -> Listing:
    most: dict[str, int] = {}
    beats: dict[str, tuple[int, str]] = {}
    for name in names:
        if match := _HOLDER.fullmatch(name):
            most[match[1]] = max(most.get(match[1], 0), int(match[2]))
        elif match := _BEAT.fullmatch(name):
            beats[match[1]] = max(beats.get(match[1], (0, "")), (int(match[2]), match[3]))
    return Listing(most, beats)


def digest(holders: Iterable[str]) -> str:
    return hashlib.blake2b(" ".join(sorted(holders)).encode(), digest_size=8).hexdigest()


def divided(most: Mapping[str, int]) -> dict[str, float]:
    """The parts of each, SLOTS together: equal ones, to none more than it can use."""
    share, left = {}, float(SLOTS)
    for rank, holder in enumerate(sorted(most, key=lambda holder: most[holder])):
        share[holder] = min(float(most[holder]), left / (len(most) - rank))
        left -= share[holder]
    return share


class Memory:
    """What a holder has seen of the others, by its own clock."""

    def __init__(self) -> None:
        self._beats: dict[str, tuple[int, float]] = {}
        """Number, and the end of the listing that showed it first."""
        self._shown: dict[str, float] = {}
        """When a beat was shown last; before, when the holder was seen first."""
        self._new: dict[str, tuple[float, int]] = {}
        """When it was seen first, with `most`."""

    def living(
        self, listing: Listing, began: float, ended: float, dead: Collection[str], late: float
    ) -> dict[str, int]:
        living = {}
        for holder, most in listing.most.items():
            self._new.setdefault(holder, (ended, most))
        kept = {holder: most for holder, (since, most) in self._new.items() if began - since < late * DRIFT}
        for holder in kept.keys() | listing.most.keys():
            number, _ = listing.beats.get(holder, (None, ""))
            last = self._beats.get(holder)
            if number is not None:
                self._shown[holder] = ended
                if last is None or number > last[0]:
                    self._beats[holder] = last = (number, ended)
            stood = number is not None and last is not None and began - last[1] >= ABANDONED * DRIFT
            gone = began - self._shown.setdefault(holder, ended) >= GONE
            if not stood and not gone and holder not in dead:
                living[holder] = max(kept.get(holder, 0), listing.most.get(holder, 0))
        return living


class _LapsedError(Exception):
    pass


class LeaseHolder:
    """As `penstock.jobs.bandwidth.holder.SlotHolder`, for this rule."""

    def __init__(
        self,
        who: bytes,
        clock: Callable[[], float],
        *,
        late: float,
        most: Callable[[], int],
        dead: Callable[[bytes], bool],
        new_name: Callable[[], str],
    ) -> None:
        self._who, self._clock, self._most, self._dead = who, clock, most, dead
        self._late, self._new_name = late, new_name
        self.name, self._number = "", 0
        self._said: set[str] = set()
        """The holders of the view that the last beat named, by their digest."""
        self._memory = Memory()
        self._contents: dict[str, bytes] = {}
        self._former: set[str] = set()
        self._files: dict[int, float] = {}
        """Of this holder, by `most`: when each may be used."""
        self._names: list[str] = []
        """Names that the beat may have."""
        self._beaten = -math.inf
        self._view: tuple[dict[str, int], float] = {}, -math.inf
        self._usable: tuple[float, float] = (0.0, -math.inf)

    def usable(self) -> tuple[float, float]:
        return self._usable

    def _reckon(self) -> None:
        """Use what may be used now."""
        view, began = self._view
        now = self._clock()
        until = min(began + VALID, self._beaten + LIVES)
        ready = [most for most, when in self._files.items() if when <= now]
        if not ready or now > until:
            self._usable = 0.0, until
            return
        most = min(self._most(), max(ready))
        self._usable = divided({**view, self.name: most})[self.name], until

    def steps(self) -> Generator[Operation, object, None]:
        while True:
            try:
                yield from self._begin()
                yield from self._hold()
            except (_LapsedError, OSError):
                self._usable = 0.0, -math.inf
            yield Sleep(PAUSE)
            try:
                yield from self.end()
            except OSError:
                continue

    def end(self) -> Generator[Operation, object, None]:
        self._usable = 0.0, -math.inf
        for most in list(self._files):
            yield Remove(f"holder.{self.name}.{most}")
            del self._files[most]
        for name in self._names:
            yield Remove(name)

    def _begin(self) -> Generator[Operation, object, None]:
        self.name, self._number = self._new_name(), 0
        self._former.add(self.name)
        self._said = {self.name}
        self._names, self._files = [self._beat_name()], {}
        began = self._clock()
        yield Make(self._names[0], self._who)
        self._beaten = began
        yield from self._announce(self._most())

    def _beat_name(self) -> str:
        return f"beat.{self.name}.{self._number}.{digest(self._said)}"

    def _announce(self, most: int) -> Generator[Operation, object, None]:
        self._files[most] = math.inf
        yield Make(f"holder.{self.name}.{most}", self._who)
        self._files[most] = self._clock() + (self._late + VALID) * DRIFT

    def _hold(self) -> Generator[Operation, object, None]:
        made = self._clock()
        turn = 0
        while True:
            now = self._clock()
            if now - self._beaten > LIVES:
                raise _LapsedError
            try:
                if now - self._beaten >= BEAT:
                    turn = 0
                    yield from self._beat()
                elif turn == 2:
                    yield ReadFile("cap")
                else:
                    yield from self._look(made)
                if (most := self._most()) not in self._files:
                    yield from self._announce(most)
                elif self._files[most] <= self._clock():
                    for other in [other for other in self._files if other != most]:
                        yield Remove(f"holder.{self.name}.{other}")
                        del self._files[other]
            except OSError:
                pass
            turn += 1
            self._reckon()
            waits = any(when > self._clock() for when in self._files.values())
            soon = max(QUICK, self._late * DRIFT - (self._clock() - made))
            yield Sleep(min(PAUSE, soon) if waits else PAUSE)
            self._reckon()

    def _beat(self) -> Generator[Operation, object, None]:
        began = self._clock()
        self._said = {*self._view[0], self.name}
        self._number += 1
        new, old = self._beat_name(), list(self._names)
        self._names.append(new)
        for name in reversed(old):
            if (yield Rename(name, new)):
                if self._clock() - self._beaten > LIVES:
                    raise _LapsedError
                self._names, self._beaten = [new], began
                self._reckon()
                return
        raise _LapsedError

    def _look(self, made: float) -> Generator[Operation, object, None]:
        began = self._clock()
        names = yield ListFolder()
        ended = self._clock()
        assert isinstance(names, list)
        listing = parse(names)
        for holder in listing.most:
            if holder not in self._contents and holder not in self._former:
                try:
                    content = yield ReadFile(f"holder.{holder}.{listing.most[holder]}")
                except OSError:
                    content = b""
                if isinstance(content, bytes) and content:
                    self._contents[holder] = content
        dead = {holder for holder, content in self._contents.items() if self._dead(content)}
        others = Listing(
            {holder: most for holder, most in listing.most.items() if holder not in self._former},
            listing.beats,
        )
        self._view = self._memory.living(others, began, ended, dead, self._late), began
        settled = began - made >= self._late * DRIFT
        if settled and listing.most.get(self.name, 0) == 0:
            raise _LapsedError
        whom = {*self._view[0], self.name}
        agreed = all(listing.beats.get(holder, (0, ""))[1] == digest(whom) for holder in self._view[0])
        if settled and agreed and len(self._files) == 1:
            self._files = dict.fromkeys(self._files, -math.inf)
        self._reckon()
        if whom - self._said:
            yield Sleep(SETTLE)
            yield from self._beat()
