"""The rule by which runs divide a rate, and the folder in which holders of shares make files. The rule has
no disk, thread or clock of its own. Also cleans up the files by which versions before 1.0 divided.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.human import printable
from penstock.fs import capabilities
from penstock.fs.capabilities import facts
from penstock.target import access

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from penstock.core.errors import PenstockError


# The folder in which holders of shares make small files. All information is in the files' names (see below).

LONGEST = 4096  # bytes of a file that counts
NOBODY = -1  # the owner of files that no process of penstock made
_MODE = 0o644


def run_digits(*words: object) -> str:
    """Return the digits by which the processes of a run, or of a lone command, find their holder."""
    text = "\0".join(map(str, words))
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()


def late_of(folder: Path) -> float:
    """Return how old, in seconds, a listing of this folder may be. Raises OSError."""
    return facts(folder).traits.names_late


class FileState(NamedTuple):
    uid: int  # the owner, or NOBODY
    changed: float  # time of the last creation or rename, in seconds by the file system's clock


class SharesFolder:
    """The folder, as one process reaches it. Each call may raise OSError. A call that raised may still take
    effect at any later time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> list[str]:
        return os.listdir(self._path)

    def make(self, name: str, content: bytes) -> None:
        """Make a file; an existing one stays."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(FileExistsError):
            fd = os.open(self._path / name, flags, _MODE)
            # Beyond a quota of blocks a file can be made, but not written: its name is enough.
            with contextlib.suppress(OSError):
                try:
                    os.fchmod(fd, _MODE)
                    os.write(fd, content[:LONGEST])
                finally:
                    os.close(fd)

    def rename(self, old: str, new: str) -> bool:
        try:
            os.rename(self._path / old, self._path / new)
        except FileNotFoundError:
            return False
        return True

    def state(self, name: str) -> FileState | None:
        try:
            status = os.lstat(self._path / name)
        except FileNotFoundError:
            return None
        plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size <= LONGEST
        return FileState(status.st_uid if plain else NOBODY, status.st_ctime)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path / name)


# The rule by which runs divide a rate, without a disk, a thread or a clock of its own.
#
# **Problem.** Runs of several accounts on many nodes share a rate. Penstock has no service of its own. On
# some file systems flock does not work between nodes, and clocks differ. A listing may show each name as it
# was up to `late` seconds ago. A process may be stopped for ten minutes. All together must never exceed the
# rate.
#
# **The obvious way** is that each process divides by the holders in its last listing. It fails when a
# newcomer arrives: the others still use parts from a listing without the newcomer.
#
# **The way.** A *holder* is a run, a removal, or a command that works alone. All its processes send beats for
# it, by renaming their files.
#
# | file name                                  | made by        | meaning                                    |
# | ------------------------------------------ | -------------- | ------------------------------------------ |
# | `holder.<holder>.<new>.<most>.<processes>` | the controller | the holder uses `most` thousandths at most |
# |                                            |                | and gives each process an even part        |
# | `begin.<holder>.<process>.<number>`        | each process   | the process lives, and uses nothing yet    |
# | `beat.<holder>.<process>.<number>`         | a rename of it | it lives, and all others count the holder  |
#
# A holder's name has 8 digits by which controllers of a run find it, and 8 random digits. Elements get the
# name on their command line. `<new>` is random: no name is made twice, so an operation that is delayed for
# minutes changes nothing newer. A *view* is a listing's content: the other holders, and each holder's `most`.
#
# docs/bandwidth.md ("How it is kept") has the rules L1 to L7, why the parts never exceed the rate, and their
# limits.

PARTS = 1000  # parts that make up the rate
VALID = 30.0  # seconds for which a view may be used
LIVES = 45.0  # seconds for which a process may work after its last beat
BEAT = 20.0 - 0.1  # seconds between two beats
PAUSE = 5.0  # seconds between two operations at rest
QUICK = 1.0  # seconds between two operations while a process waits, or a file is to be removed
GONE = 600.0  # seconds without a listing that shows a beat, after which its file counts as removed
DRIFT = 1.05  # factor on waiting times, since each process measures by its own clock
NAMES = 8  # number of an account's holders that count
LOOKED = 50  # similar files whose owners are read at once, at most: others may make thousands

_HOLDER = re.compile(r"holder\.([0-9a-f]{16})\.[0-9a-f]{8}\.(\d{1,4})\.(\d{1,7})", re.ASCII)
_BEAT = re.compile(r"(begin|beat)\.([0-9a-f]{16})\.[0-9a-f]{8}\.\d{1,12}", re.ASCII)


def abandoned(late: float) -> float:
    """Return the number of seconds without a new beat after which a holder no longer counts."""
    return (LIVES + late + 2 * PAUSE) * DRIFT


class Post(NamedTuple):
    most: int  # the largest part for the holder, of PARTS
    processes: int  # number of processes that may use this part at once; 0 if none may yet


class Holder(NamedTuple):
    """A holder as other processes identify it. The same name in another account's file is another holder."""

    uid: int
    name: str


class Listing(NamedTuple):
    holders: Mapping[str, tuple[str, Post]]  # maps a file's name to the holder's name and its post
    beats: Mapping[str, Sequence[str]]  # maps a holder's name to the names of its beat files


def parse(names: Iterable[str]) -> Listing:
    holders: dict[str, tuple[str, Post]] = {}
    beats: dict[str, list[str]] = defaultdict(list)
    for name in names:
        if match := _HOLDER.fullmatch(name):
            post = Post(int(match[2]), int(match[3]))
            if 1 <= post.most <= PARTS:
                holders[name] = match[1], post
        elif match := _BEAT.fullmatch(name):
            beats[match[2]].append(name)
    return Listing(holders, beats)


def divided(most: Mapping[Holder, int], own: Holder) -> float:
    """Return the part of PARTS for the holder `own`. Parts are even, but no holder gets more than its `most`.

    Each view shows at least all holders that use anything, so a further holder must never enlarge another's
    part. Only an account's NAMES largest holders count. If it has more, all divide what these would get.
    """
    accounts: dict[int, list[int]] = defaultdict(list)
    for holder, claim in most.items():
        if holder != own:
            accounts[holder.uid].append(claim)
    like, mine = len(accounts[own.uid]) + 1, most[own]
    counted = [
        claim for uid, claims in accounts.items() for claim in sorted(claims)[(uid == own.uid) - NAMES :]
    ]
    left, part = float(PARTS), 0.0
    for rank, claim in enumerate([*sorted(claim for claim in counted if claim < mine), mine]):
        part = min(claim, left / (len(counted) + 1 - rank))
        left -= part
    return part * min(1.0, NAMES / like)


class _Memory:
    """What a process has seen of the holders; times are by its own clock."""

    def __init__(self, folder: SharesFolder, late: float) -> None:
        self._folder, self._late = folder, late
        self._owners: dict[str, int] = {}  # the owners of holders' files, by name
        self._shown: dict[str, float] = {}  # the time of the last listing that showed a beat file, by name
        self._moved: dict[Holder, float] = {}  # the end of the last listing that showed a new beat

    def look(self, listing: Listing, began: float, ended: float, own: Holder) -> dict[Holder, list[str]]:
        """Return the live holders, and always `own`, with their files."""
        posts: dict[Holder, list[str]] = defaultdict(list)
        self._owners = {
            name: self._owners[name] if name in self._owners else self._owner(name)
            for name in listing.holders
        }
        for name, owner in self._owners.items():
            if owner != NOBODY:
                posts[Holder(owner, listing.holders[name][0])].append(name)
        self._moved = {holder: self._moved[holder] for holder in posts if holder in self._moved}
        for holder in posts:
            new = [name for name in listing.beats.get(holder.name, ()) if name not in self._shown]
            if holder not in self._moved or (holder != own and self._any_of(new, holder.uid)):
                self._moved[holder] = ended
        self._shown = {name: when for name, when in self._shown.items() if ended - when < GONE}
        for files in listing.beats.values():
            self._shown.update(dict.fromkeys(files, ended))
        return {
            holder: files
            for holder, files in posts.items()
            if holder == own or self._lives(holder, listing, began)
        }

    def _lives(self, holder: Holder, listing: Listing, began: float) -> bool:
        silent = began - self._moved[holder]
        return silent < (abandoned(self._late) if listing.beats.get(holder.name) else GONE)

    def _owner(self, name: str) -> int:
        state = self._folder.state(name)
        return state.uid if state else NOBODY

    def _any_of(self, files: Sequence[str], uid: int) -> bool:
        """Return whether any of these new beats may be this account's. A file renamed meanwhile may be."""
        states = (self._folder.state(name) for name in files[:LOOKED])
        return any(state is None or state.uid == uid for state in states) or len(files) > LOOKED


class _LapsedError(Exception):
    """The process begins again as a new one."""


class _GoneError(_LapsedError):
    """Others no longer count the holder."""


class Member:
    """One process of a holder. Any thread may read its attributes; all else is for one thread.

    `rest` waits for a number of seconds; an exception from it ends `hold`. `run` is the holder's name, 16
    hexadecimal digits. The posting process passes 8 digits, by which it finds an earlier holder. `who` is the
    readable content of its files. `clock` gives this machine's seconds, and counts its sleep. `late` is a
    listing's greatest age in seconds. `wanted` returns the post that the one posting process wants; None for
    other processes. `lowers`: False if more processes may live than are posted: an earlier controller's
    higher post then stays. `new_name` returns the given number of random hexadecimal digits.
    """

    def __init__(
        self,
        folder: SharesFolder,
        rest: Callable[[float], object],
        run: str,
        who: bytes,
        clock: Callable[[], float],
        *,
        late: float,
        wanted: Callable[[], Post] | None = None,
        lowers: bool = True,
        new_name: Callable[[int], str] = lambda digits: secrets.token_hex(digits // 2),
    ) -> None:
        self._folder, self._rest, self._clock, self._late = folder, rest, clock, late
        self._run, self._who, self._wanted, self._new_name = run, who, wanted, new_name
        self.lowers = lowers
        self.waits = (late + VALID) * DRIFT
        self.holder = "" if wanted else run  # the holder's digits; "" before the first beat
        self.usable = 0.0, float("-inf")  # the part of the rate, 0 to 1, and its end by `clock`
        self.trouble = ""  # why the last operation failed; "" after a beat
        self._memory, self._own = _Memory(folder, late), Holder(NOBODY, "")
        self._process, self._number, self._changed = "", 0, 0.0
        self._names: list[str] = []  # names its file may have: a failed operation may still take effect
        self._made = self._beaten = float("-inf")
        self._settled = False  # whether all others count the holder
        # Only in the posting process: the holder's files, and when each was made, or first seen.
        self._posted: dict[str, tuple[Post, float]] = {}
        self._said = ""  # the holder's file that this process made last
        self._counts: set[int] = set()  # all numbers of processes posted for this holder
        # The view: the other holders, the posts of the own holder, and when the listing began.
        self._others: dict[Holder, int] = {}
        self._shown: list[Post] = []
        self._began = float("-inf")

    @property
    def left(self) -> int:
        """The part of PARTS that the other holders do not claim."""
        return max(0, PARTS - sum(self._others.values()))

    @property
    def holder_part(self) -> float:
        """The part of the rate that the holder's processes may use together, from 0 to 1."""
        return self.usable[0] * max([post.processes for post, _ in list(self._posted.values())], default=0)

    def knows(self, processes: int, *, first: bool = False) -> bool:
        """Return whether this number of processes may begin: no process divides by fewer any more. `first`:
        no process of the holder lives yet, so only late listings show fewer."""
        posted = dict(self._posted)
        said = [posted[self._said]] if self._said in posted else []
        said = said if self.lowers else [*posted.values()]
        since = min((made for post, made in said if post.processes >= processes), default=None)
        if since is None:
            return False
        fewer = any(0 < number < processes for number in list(self._counts))
        return not fewer or self._clock() - since >= (self._late * DRIFT if first else self.waits)

    def _reckon(self) -> None:
        now, until = self._clock(), min(self._began + VALID, self._beaten + LIVES)
        posts = [post for post, _ in self._posted.values()] if self._wanted else self._shown
        processes = max((post.processes for post in posts), default=0)
        self._settled = self._settled or now - self._made >= self.waits
        if not self._settled or not processes or now > until:
            self.usable = 0.0, until
            return
        most = {**self._others, self._own: min(post.most for post in posts)}
        self.usable = divided(most, self._own) / PARTS / processes, until

    def hold(self) -> None:
        """Hold the share until `rest` raises.

        Raises OSError if the folder cannot be used at the beginning. If it fails later, the process uses
        nothing, and begins again when the folder works.
        """
        first = True
        while True:
            try:
                self._begin()
                first = False
                self._hold()
            except (_LapsedError, OSError) as error:
                if first and isinstance(error, OSError):
                    raise
                self._note(error)
                self.usable = 0.0, float("-inf")
                if isinstance(error, _GoneError) and self._wanted:
                    # Wait until no beat says any longer that others count the holder, so that the holder's
                    # other processes also learn that its files are gone.
                    until = self._clock() + self.waits + LIVES * DRIFT
                    while (left := until - self._clock()) > 0:
                        self._rest(left)
            with contextlib.suppress(OSError):
                self.leave()  # otherwise a new process of the holder would settle by this one's beat
            self._rest(PAUSE)

    def end(self) -> None:
        """End the holder. Call it after `hold`, when no other process of it may live. Raises OSError."""
        names = self._folder.names()
        for name in [*self._posted, *parse(names).beats.get(self._own.name, ())]:
            with contextlib.suppress(OSError):  # another account's file
                self._folder.remove(name)
        self.leave()

    def leave(self) -> None:
        """End this process's part only. Call it after `hold`. Raises OSError."""
        self.usable = 0.0, float("-inf")
        while self._names:
            self._folder.remove(self._names[-1])
            self._names.pop()

    def _note(self, error: Exception) -> None:
        self.trouble = str(error) if isinstance(error, OSError) else self.trouble or str(error)

    def _begin(self) -> None:
        """Begin to beat for the run's holder, which the posting process finds, or else makes."""
        self._settled, self._posted, self._said, self._shown = False, {}, "", []
        listing = parse(self._folder.names())
        if self.holder:
            self._join(self.holder)
        else:
            alike = [
                (name, holder) for name, (holder, _) in listing.holders.items() if holder[:8] == self._run
            ]
            for name, holder in alike[:LOOKED]:
                self._join(holder)
                state = self._folder.state(name)
                if state and state.uid == self._own.uid:
                    break
            else:
                self._join(self._run + self._new_name(8))
            self.holder = self._own.name
        self._inherit(listing)
        self._others = {
            Holder(NOBODY, holder): post.most
            for holder, post in listing.holders.values()
            if holder != self.holder
        }
        if self._wanted and all(holder != self.holder for holder, _ in listing.holders.values()):
            self._post(self._wanted())
            self._made = self._clock()

    def _join(self, holder: str) -> None:
        self.leave()
        self._process, self._number = self._new_name(8), 0
        self._names = [f"begin.{holder}.{self._process}.0"]
        began = self._clock()
        self._folder.make(self._names[0], self._who)
        self._beaten, self._made = began, self._clock()
        state = self._folder.state(self._names[0])
        if state is None:
            raise _LapsedError("the file of this process is gone: who removed it?")
        self._changed, self._own = state.changed, Holder(state.uid, holder)

    def _inherit(self, listing: Listing) -> None:
        """Rule L3: settle if another process of the holder renamed its `beat` file within LIVES."""
        since = (self._clock() - self._made) * DRIFT + 1.0
        beats = [name for name in listing.beats.get(self._own.name, ()) if name.startswith("beat")]
        for name in [name for name in beats if name not in self._names][:LOOKED]:
            state = self._folder.state(name)
            age = self._changed - state.changed if state and state.uid == self._own.uid else LIVES
            if -since <= age < LIVES / DRIFT:
                self._settled = True
                return

    def _post(self, post: Post) -> None:
        self._counts.add(post.processes)
        name = f"holder.{self._own.name}.{self._new_name(8)}.{post.most}.{post.processes}"
        self._folder.make(name, self._who)
        self._posted[name], self._said = (post, self._clock()), name

    def _hold(self) -> None:
        joined, said = self._clock(), False
        while True:
            now = self._clock()
            if now - self._beaten > LIVES:
                raise _LapsedError("the folder answers too slowly")
            try:
                if now - self._beaten >= BEAT or (said != self._settled and self._began >= joined):
                    said = self._settled
                    self._beat()
                else:
                    self._look(joined)
                self._reckon()
                if self._wanted:
                    self._keep(self._wanted())
            except OSError as error:
                self._note(error)
            self._reckon()
            self._rest(self._rests(said))
            self._reckon()

    def _rests(self, said: bool) -> float:
        if self._settled and said and len(self._posted) < 2:
            return PAUSE
        # A view that began `late` after the file was made may be enough.
        soon = max(self._made, self._last_made()) + self._late * DRIFT - self._clock()
        return min(soon, PAUSE) if soon > 0 else QUICK if self._settled == said else 0.0

    def _beat(self) -> None:
        began, old = self._clock(), list(self._names)
        self._number += 1
        word = "beat" if self._settled else "begin"
        new = f"{word}.{self._own.name}.{self._process}.{self._number}"
        self._names.append(new)
        if not any(self._folder.rename(name, new) for name in reversed(old)):
            raise _LapsedError("the file of this process is gone: who removed it?")
        if self._clock() - self._beaten > LIVES:
            raise _LapsedError("the folder answers too slowly")
        self._names, self._beaten, self.trouble = [new], began, ""

    def _look(self, joined: float) -> None:
        began = self._clock()
        listing, ended = parse(self._folder.names()), self._clock()
        files = self._memory.look(listing, began, ended, self._own)
        own = {name: listing.holders[name][1] for name in files.pop(self._own, [])}
        self._others = {
            holder: max(listing.holders[name][1].most for name in names) for holder, names in files.items()
        }
        self._shown, self._began = list(own.values()), began
        if self._wanted:
            # The view also shows files of an earlier controller, or of an operation that seemed to fail.
            self._posted = {name: (post, ended) for name, post in own.items()} | self._posted
            self._counts.update(post.processes for post in self._shown)
        if not self._settled:
            self._inherit(listing)
        late = self._late * DRIFT
        if not own and began - max(joined, self._last_made()) >= late:
            raise _GoneError("the files of this run are gone: who removed them?")
        if not self._others and began - self._made >= late:
            self._settled = True

    def _keep(self, wanted: Post) -> None:
        """Keep one post of the holder, by rule L5."""
        if not self.lowers and any(p.processes > wanted.processes for p, _ in self._posted.values()):
            return
        if not self._said and {post for post, _ in self._posted.values()} == {wanted}:
            self._said = next(iter(self._posted))
        said = self._posted.get(self._said)
        if said is None or said[0] != wanted:
            self._post(wanted)
            return
        alone = not self._others and self._began - said[1] >= self._late * DRIFT
        if len(self._posted) > 1 and (alone or self._clock() - said[1] >= self.waits):
            for name in [name for name in self._posted if name != self._said]:
                self._folder.remove(name)
                del self._posted[name]

    def _last_made(self) -> float:
        return max([made for _, made in self._posted.values()], default=self._made)


# The files by which versions before 1.0 divided a link and a target's room. Live processes touched them.
#
# Only `penstock gc` still handles these versions: it removes the files that they left.

OLDER_LIVES = capabilities.BOUND  # seconds without a touched file after which an older process is dead


def _older_states(folder: Path) -> tuple[dict[Path, os.stat_result], float]:
    states: dict[Path, os.stat_result] = {}
    try:
        names = sorted(os.listdir(folder))
        now = capabilities.now(folder) if names else 0.0
    except OSError:
        return {}, 0.0
    for path in (folder / name for name in names):
        with contextlib.suppress(OSError):
            if stat.S_ISREG((status := path.lstat()).st_mode):
                states[path] = status
    return states, now


def refuse_older(
    folder: Path, error: type[PenstockError], counts: Callable[[int], bool] = lambda _: True
) -> None:
    """Raise `error` while a live process of an older version touches files. `counts` selects accounts."""
    states, now = _older_states(folder)
    for path, status in states.items():
        if abs(now - status.st_ctime) <= OLDER_LIVES and counts(status.st_uid):
            raise error(
                "an older penstock is at work, and what it takes is not known here",
                where=printable(str(path)),
                why=f"{access.in_words([str(status.st_uid)])} was at work within {OLDER_LIVES:.0f} s",
                hint="wait until it has ended, or have its owner end it (`penstock cancel`). Where no older "
                f"penstock runs, the owner of {printable(str(folder))}, or root, may remove that folder",
            )


def remove_dead_older(folder: Path) -> None:
    """Remove this account's files, and the empty folder, once none of its older processes lives. Most files
    of a live process are old, so a single file's age proves nothing. Raises nothing."""
    states, now = _older_states(folder)
    own = {path: status for path, status in states.items() if status.st_uid == os.geteuid()}
    if any(abs(now - status.st_ctime) <= OLDER_LIVES for status in own.values()):
        return
    for path in own:
        with contextlib.suppress(OSError):
            path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()
