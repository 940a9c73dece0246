"""What a holder of slots does, one operation at a time: the protocol without a disk, a thread or a clock.

A slot is one of the equal parts of the cap on a network link (`slots`); a holder is one element that copies
over that link. It renames a file of its own again and again, which says that it lives and which slots it
uses: its beat. Nothing is touched here: operations are data, which others carry out.

`SlotHolder.steps` is a generator of operations; whoever drives it (`share`, or a test that lets many
holders run against each other) carries each one out and sends its answer, or throws the OSError that it ended
with. An operation may take any time. Between two of them `SlotHolder.usable` says how many slots may be used,
and until when; it is handed to those that read before the next one begins.

In rest a holder makes one operation in PAUSE seconds: a beat, a listing, a look for another cap file and a
listing in turn. While it has less than its share it lists every QUICK seconds instead, for a lease at most.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, NamedTuple

from penstock.jobs.bandwidth.slots import (
    BLIND,
    LEASE,
    SLOTS,
    VALID,
    Beat,
    Memory,
    free_name,
    lacks,
    move,
    parse,
    taken_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from penstock.jobs.bandwidth.slots import FolderState

PAUSE = 5.0
"""Seconds between two operations in rest, and before another try after an error."""
QUICK = 2.0
"""Seconds between two listings while a holder has less than its share."""
BEAT = 20.0 - 0.1
"""Seconds from the beginning of one beat to the next one. A beat that failed is tried again after PAUSE: that
try begins before VALID has passed where operations are quick, a third one hardly. Where both fail, the holder
uses nothing until it has begun anew."""
TIDY, TIDIED = 1800.0, 100
"""Seconds between two removals of old names by a holder that goes on, and how many names each removes."""
CAP_TURN = 2
"""Turns after a beat at which the cap is looked for: a listing is between the two, and after each."""
SETTLE = 1.0
"""Seconds between the order to use fewer slots and the moment at which they are given back. Whoever drives
`SlotHolder.steps` hands `usable` to the workers before the wait begins; they follow within 0.4 s."""


# Why a holder gave up its slots: more than VALID seconds passed between two beats.
SLOW = f"its operations took longer than {VALID:.0f} s"


class ListFolder(NamedTuple):
    """Answer: the names in the folder."""


class Make(NamedTuple):
    """Make a file by O_EXCL. Answer: whether this call made it."""

    name: str
    content: bytes = b""


class Rename(NamedTuple):
    """Rename a file. Answer: whether there was such a file."""

    old: str
    new: str


class ReadFile(NamedTuple):
    """Read a file. Answer: its content; b"" where there is no such file."""

    name: str


class Remove(NamedTuple):
    """Remove a file, which may be gone already. Answer: None."""

    name: str


class LookForCap(NamedTuple):
    """Open the cap's file by its name: it may have been replaced. Answer: None."""


class Tidy(NamedTuple):
    """Remove what this account's holders left long ago. Answer: None."""

    names: list[str]
    beat: str
    most: int
    """Names that are removed at most."""


class Sleep(NamedTuple):
    """Wait. Answer: None, after so many seconds."""

    seconds: float


Operation = ListFolder | Make | Rename | ReadFile | Remove | LookForCap | Tidy | Sleep


class _LapsedError(Exception):
    """VALID seconds have passed since the last beat began, or somebody removed it."""


class SlotHolder:
    """One holder. `usable` may be called from any thread; all else is for one.

    `who`: what its beat's file holds, by which others know its process. `clock`: seconds, of this machine
    alone, going on while it sleeps. `most`: called for how many slots are of use. `dead`: whether the process
    that a beat's content names has certainly ended. `new_name`: 16 random hexadecimal digits."""

    def __init__(
        self,
        who: bytes,
        clock: Callable[[], float],
        *,
        most: Callable[[], int] = lambda: SLOTS,
        dead: Callable[[bytes], bool] = lambda _: False,
        new_name: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._who, self._clock, self._most, self._dead = who, clock, most, dead
        self._new_name = new_name
        self.name = ""
        self._beat: Beat | None = None
        self._begun: Beat | None = None
        """The name that the beat may have, too: nobody knows what became of the order."""
        self._beaten = float("-inf")
        self._usable: tuple[frozenset[int], float] = (frozenset(), self._beaten)
        self._owned: dict[int, int] = {}
        """Slots that this holder has taken, with their generations, until it has given them back."""
        self._taken: dict[int, float] = {}
        """By owned slot: when it was taken."""
        self._memory = Memory()
        self._others: dict[str, bytes] = {}
        """What the beats of other holders hold."""
        self._tidied = clock()
        self.trouble = ""
        """Why the last operation that failed did, for people; "" after a beat that did not."""

    def usable(self) -> tuple[frozenset[int], float]:
        """The numbers of the slots that may be used, and until when, by `clock`."""
        return self._usable

    @property
    def _used(self) -> frozenset[int]:
        """Of the slots that are owned, those that may be used: the last beat names them."""
        return self._usable[0]

    def _use(self, slots: frozenset[int]) -> None:
        # In one store: it is read by other threads.
        self._usable = slots, self._beaten + VALID

    def steps(self) -> Generator[Operation, object, None]:
        """The operations of holding a fair share, without end. Raises OSError where the folder cannot be used
        at the beginning; later it gives up its slots, and begins anew when the folder answers again."""
        yield from self._begin()
        yield from self._tidy()
        while True:
            try:
                yield from self._hold()
            except (_LapsedError, OSError) as error:
                self._why(error)
                self._use(frozenset())
            begun = False
            while not begun:
                yield Sleep(PAUSE)
                try:
                    yield from self._end()
                    yield from self._begin()
                    begun = True
                except OSError as error:
                    self._why(error)

    def end(self) -> Generator[Operation, object, None]:
        """The operations of giving everything back. `steps` must have been closed. Raises OSError."""
        self._use(frozenset())
        yield from self._end()
        if self._begun is not None:
            yield Remove(self._begun.name)

    def _begin(self) -> Generator[Operation, object, None]:
        # The same name at each try: one that failed may have made the file.
        beat = self._begun or Beat(self._new_name(), 0, frozenset(), self._most())
        self._begun, began = beat, self._clock()
        yield Make(beat.name, self._who)
        self.name, self._owned, self._memory = beat.holder, {}, Memory()
        self._beat, self._beaten, self._begun = beat, began, None
        self._use(frozenset())

    def _tidy(self) -> Generator[Operation, object, None]:
        if self._beat is not None:
            names = yield ListFolder()
            assert isinstance(names, list)
            yield Tidy(names, self._beat.name, 1000)

    def _end(self) -> Generator[Operation, object, None]:
        """Nothing that is owned is used any more."""
        if self._owned:
            # A file that says that a lost slot was given back would give back a later taking of it.
            began = self._clock()
            names = yield ListFolder()
            assert isinstance(names, list)
            yield from self._drop_lost(parse(names), began)
        for slot, generation in list(self._owned.items()):
            yield Make(free_name(slot, generation))
            del self._owned[slot]
        if self._beat is None:
            return
        # A name that is not known to be there is removed, too.
        for beat in filter(None, (self._beat, self._begun)):
            yield Remove(beat.name)
        self._beat = self._begun = None

    def _hold(self) -> Generator[Operation, object, None]:
        looked_for_cap = lacking_since = looked = self._clock()
        turn = 0
        while True:
            now, wait = self._clock(), PAUSE
            self._check()
            if now - self._beaten >= BEAT:
                turn = 0
                try:
                    yield from self._beat_now(self._used)
                except OSError as error:
                    self._failed(error)
                    yield Sleep(PAUSE)
                    continue
            elif turn == CAP_TURN or (turn > CAP_TURN + 1 and now - looked_for_cap >= BEAT + PAUSE):
                looked_for_cap, turn = now, CAP_TURN
                try:
                    yield LookForCap()
                except OSError as error:
                    self._failed(error)
            else:
                looked = now
                lacking = yield from self._look()
                now = self._clock()
                if not lacking:
                    lacking_since = now
                elif now - lacking_since < LEASE:
                    wait = QUICK
            turn += 1
            # Where orders take seconds, a listing follows a beat or a look for the cap at once: see BLIND.
            if self._clock() - looked <= BLIND / 2:
                yield Sleep(wait)

    def _failed(self, error: OSError) -> None:
        """Raises _LapsedError."""
        self._why(error)
        self._check()

    def _why(self, error: Exception) -> None:
        if isinstance(error, OSError):
            name = error.filename if isinstance(error.filename, str) else ""
            self.trouble = f"{name}: {error.strerror or error}" if name else error.strerror or str(error)
        elif not self.trouble:
            self.trouble = str(error)

    def _check(self) -> None:
        if self._clock() - self._beaten > VALID:
            raise _LapsedError(SLOW)

    def _beat_now(
        self, slots: Iterable[int], listed: float | None = None
    ) -> Generator[Operation, object, None]:
        """Say which slots are used from now on. They are, on return; on an OSError the old ones still are.
        `listed`: when the listing was begun by which some of them are new. More than VALID seconds later
        another may have found those abandoned."""
        assert self._beat is not None
        beat = Beat(self.name, self._beat.number + 1, frozenset(slots), self._most())
        began = self._clock()
        self._begun = beat
        there = yield Rename(self._beat.name, beat.name)
        self._check()
        if not there:
            raise _LapsedError(f"{self._beat.name} is gone: who removed it?")
        if listed is not None and self._clock() - listed > VALID:
            raise _LapsedError(SLOW)
        self._beat, self._beaten, self._begun, self.trouble = beat, began, None, ""
        self._use(beat.slots)

    def _look(self) -> Generator[Operation, object, bool]:
        """List the folder, and give or take what is due; whether less than the share is held then."""
        began = self._clock()
        try:
            names = yield ListFolder()
        except OSError as error:
            self._failed(error)
            return False
        assert isinstance(names, list)
        state = parse(names)
        dead = yield from self._dead_holders(state)
        yield from self._drop_lost(state, began)
        self._memory.look(state, began)
        living = self._memory.living(state, began, dead)
        open_slots = self._memory.open(state, began)
        for slot in sorted(self._memory.doubtful(state, dead) - open_slots):
            owner = yield from self._read(taken_name(slot, state.generations[slot]))
            if owner.decode("ascii", "replace") in dead:
                open_slots.add(slot)
        open_slots -= self._owned.keys()
        if began - self._tidied >= TIDY and self._beat is not None:
            self._tidied = began
            with contextlib.suppress(OSError):
                yield Tidy(names, self._beat.name, TIDIED)
        self._check()
        due = move(self.name, len(self._used), living, self._most(), len(open_slots))
        if due.give:
            yield from self._give(due.give)
        elif due.take:
            yield from self._take(due.take, open_slots, state, began)
        return lacks(self.name, len(self._used), living, self._most())

    def _drop_lost(self, state: FolderState, began: float) -> Generator[Operation, object, None]:
        """Use no slot whose file somebody removed, or another has, against the protocol. Nor is it given
        back: that would give back what another took since.

        | the slot's generation in the listing is | and                                     | then      |
        |-----------------------------------------|-----------------------------------------|-----------|
        | later than this holder's                |                                         | dropped   |
        | an earlier one, or none                 | it was taken LEASE and VALID before     | dropped   |
        | an earlier one, or none                 | it was not: the listing may be late     | kept      |
        | this holder's                           | another's new beat names the slot, and  |           |
        |                                         | its file names another, too             | dropped   |
        | this holder's                           | else: that beat may be from before      | kept      |
        """
        moved = self._memory.moved(state)
        named = {slot for beat in moved if beat.holder != self.name for slot in beat.slots}
        for slot, generation in list(self._owned.items()):
            listed = state.generations.get(slot, 0)
            if listed == generation and slot in named:
                owner = yield from self._read(taken_name(slot, generation))
                lost = owner not in (b"", self.name.encode())
            else:
                lost = listed < generation and began - self._taken[slot] > LEASE + VALID
            if listed > generation or lost:
                del self._owned[slot]
        self._use(self._used & self._owned.keys())

    def _read(self, name: str) -> Generator[Operation, object, bytes]:
        """A file's content; b"" where it cannot be read, too: anybody may make names in the folder."""
        try:
            content = yield ReadFile(name)
        except OSError:
            return b""
        return content if isinstance(content, bytes) else b""

    def _dead_holders(self, state: FolderState) -> Generator[Operation, object, set[str]]:
        for holder, beat in state.beats.items():
            if holder == self.name or holder in self._others:
                continue
            try:
                content = yield ReadFile(beat.name)
            except OSError:
                # A name that anybody may make: it is not read again.
                self._others[holder] = b""
                continue
            # Nothing, where the beat has a later name by now: then it is read at the next look.
            if isinstance(content, bytes) and content:
                self._others[holder] = content
        return {one for one in state.beats if one in self._others and self._dead(self._others[one])}

    def _give(self, number: int) -> Generator[Operation, object, None]:
        given = sorted(self._used)[-number:]
        self._use(self._used - frozenset(given))
        yield Sleep(SETTLE)
        for slot in given:
            yield Make(free_name(slot, self._owned[slot]))
            del self._owned[slot]
        yield from self._beat_now(self._used)

    def _take(
        self, number: int, open_slots: Iterable[int], state: FolderState, began: float
    ) -> Generator[Operation, object, None]:
        """`began`: when the listing was begun by which they are open."""
        # Holders that take at once begin at different places.
        ordered = sorted(open_slots)
        first = int(self.name, 16) % len(ordered)
        taken: list[int] = []
        for slot in [*ordered[first:], *ordered[:first]]:
            # On a slow file system what was taken so far is named in time, and the rest is taken later.
            if len(taken) == number or self._clock() - min(began, self._beaten) > VALID / 2:
                break
            generation = state.generations.get(slot, 0) + 1
            made = yield Make(taken_name(slot, generation), self.name.encode())
            if made:
                self._owned[slot], self._taken[slot] = generation, self._clock()
                taken.append(slot)
        if taken:
            yield from self._beat_now({*self._used, *taken}, began)
