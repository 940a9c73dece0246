"""Claims of shards: which worker of a step does which shard, and who continues the shard of a dead worker.

A worker is one element of a job array. It claims a shard, does it, writes its receipt, and claims the next.
Workers divide the shards only by files. No process assigns shards, and nodes never query the scheduler.

    claims/<step>/00012.3.json    the third claim of shard 12: which worker, on which host, for which command

- C1. A claim is a file made whole under a new name (`small_files.create_file`), so exactly one worker makes
  it. A shard's highest claim counts, up to the first gap in the generations. Claims are never changed, and
  are removed only with the run.
- C2. A worker touches its claim once in a HEARTBEAT, and looks once a second for a higher claim. If it finds
  one, other workers took it for dead, and it leaves the shard as it is.
- C3. Any worker that needs a shard claims its next generation, by the table below.
- C4. A receipt is written under a new name while no higher claim exists: it never replaces a valid receipt.
  An invalid receipt is removed right before a claim, or by the step that made it invalid.
- C5. An outcome (how a claim ended without a receipt) has the claim's generation in its name. The controller
  writes an outcome only if none exists (`documents.create_outcome`).

| the highest claim of a shard without a receipt       | the next claim may be made                     |
|------------------------------------------------------|------------------------------------------------|
| does not exist                                       | yes: the first                                 |
| has an outcome, written by its worker, or by the     | yes, if this command (`call`) has no claim, or |
| controller for a worker that the scheduler ended     | its last claim has no outcome or an outcome    |
| or belongs to this worker, which the scheduler       | with `retry`, and at most `retries` of its     |
| started again                                        | claims were charged                            |
| was not touched for PATIENCE, by the clock of the    | yes, on the same conditions                    |
| worker that looks, even if it is empty or damaged    |                                                |
| is any other                                         | no: its worker is at work                      |

A claim is not charged (`free`) if a time limit or a signal ended it with progress. Nor is it charged if the
PAUSE file, preemption, a bad node, or a restart of its worker after a signal ended it. An unreadable claim
above the command's last is charged. Other commands' claims are not charged: earlier failures are tried again,
and two commands at once do not retry for ever. Between two looks, at most a HEARTBEAT (in the controller, a
fourth of PATIENCE) counts as time without a touch. So no worker counts as dead because servers were absent,
or because the looking process was halted.

**Deaths of workers.** "Next" is the worker that claims the next generation.

| a worker dies, or is halted for long     | on disk                   | then                                |
|------------------------------------------|---------------------------|-------------------------------------|
| before its claim has its name            | a temporary name          | nobody waits for it                 |
| before its claim has content (file       | an empty or torn claim    | next after PATIENCE                 |
| systems without hard links)              |                           |                                     |
| after that, or amid the rows             | a claim, maybe journals   | next after PATIENCE, or once the    |
|                                          |                           | controller reports its end; next    |
|                                          |                           | continues at the journal            |
| before its receipt has its name (without | a temporary name (a torn  | as if it had died amid the rows;    |
| hard links: its content)                 | receipt)                  | all rows are done                   |
| before its outcome has its name          | a claim                   | as if it had died amid the rows     |
| after its receipt or outcome             | receipt or outcome        | next at once, or nobody             |
| and wakes amid the rows after next began | a higher claim            | it ends the shard (C2)              |
| and wakes then, before its receipt       | a higher claim, maybe     | it writes no receipt (C4)           |
|                                          | also a receipt            |                                     |
| and wakes then, before its outcome       | a higher claim            | its outcome is for its claim (C5)   |

A look may be old, since NFS may reply from its cache for up to a minute: C2 only prevents duplicate work.
Receipts, and the look at each file after the last writer, keep anything unproven from being published.

**No listing for each claim.** A worker begins at its own place in the order, and claims by O_EXCL alone. When
it finds another worker's claim, it lists the folder once, and continues with unclaimed shards. Once all are
claimed, it watches WATCHED open shards at a time. A claim that is touched gives its place to the next shard.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.element_documents import ELEMENT_RECEIPT, SHARD_CLAIM, ElementReceipt, ShardClaim
from penstock.core.errors import FailedError, TransientError
from penstock.dataset import documents, receipts
from penstock.fs import small_files
from penstock.fs.safe_open import storage_error
from penstock.host import waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from penstock.core.element_documents import ElementOutcome
    from penstock.core.layout import RunLayout

LOOKED_AT = 64  # most shards that `prefers` leaves for later, or that are judged without a listing
WATCHED = 16  # others' claims that an idle worker watches at a time
LOOK = 1.0  # seconds between two looks for a higher claim
LONGEST = 65_536  # most bytes of a claim: a longer file is not a claim
NAME = re.compile(r"(\d{5}|[1-9]\d{5,8})\.([1-9]\d{0,8})\.json", re.ASCII)


class ClaimLostError(FailedError):
    """Another worker took the shard, since this worker counted as dead."""


def standing(run: RunLayout, step: str) -> dict[int, int]:
    """Return the highest generation of each claimed shard, by one listing."""
    claims = (NAME.fullmatch(name) for name in _names(run.claims(step)))
    highest: dict[int, int] = {}
    for index, generation in sorted((int(match[1]), int(match[2])) for match in claims if match):
        if generation == highest.get(index, 0) + 1:
            highest[index] = generation
    return highest


def read(run: RunLayout, step: str, index: int, generation: int) -> ShardClaim:
    """Return a claim; an empty claim if its file is not valid. Raises `safe_open.storage_error`'s errors."""
    return _read(run, step, index, generation)[0]


def _read(run: RunLayout, step: str, index: int, generation: int) -> tuple[ShardClaim, int]:
    """Read a claim, and its file's time in nanoseconds. Opens the file, so that NFS queries its server."""
    path = run.claim(step, index, generation)
    try:
        try:
            fd = small_files.descriptor(path)
            written = os.fstat(fd).st_mtime_ns
            return SHARD_CLAIM.from_json(small_files.content(fd, LONGEST, path), path), written
        except (ValueError, PermissionError):
            return ShardClaim(), os.lstat(path).st_mtime_ns
    except FileNotFoundError:
        return ShardClaim(), 0
    except OSError as error:
        raise storage_error(error, "a claim of a shard cannot be read", str(path)) from error


def beat(run: RunLayout, step: str, index: int, generation: int) -> int:
    """Return when a claim was touched last, in nanoseconds by the file system's clock; 0 if not known."""
    try:
        return os.stat(run.claim(step, index, generation)).st_mtime_ns
    except OSError:
        return 0


def proven(run: RunLayout, step: str) -> set[int]:
    """Return the shards with a receipt, valid or not, by one listing."""
    stems = (name.removesuffix(".json") for name in _names(run.receipt(step, 0).parent))
    return {int(stem) for stem in stems if stem.isdecimal()}


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise storage_error(error, "a folder of the run cannot be listed", str(folder)) from error


def last_ends(run: RunLayout, step: str) -> Iterator[tuple[int, ElementOutcome]]:
    """Yield, in order, the shards whose last claim has an outcome, and that outcome. Reads no receipts."""
    for index, generation in sorted(standing(run, step).items()):
        if (outcome := documents.find_outcome(run, step, index, generation)) is not None:
            yield index, outcome


def charged(
    run: RunLayout,
    step: str,
    index: int,
    generation: int,
    call: str,
    retries: int,
    earlier: Callable[[ShardClaim], bool] = lambda _: False,
) -> int | None:
    """Return how many claims of this command count as failures of a shard whose last claim has ended.

    Returns None if no further try is wanted. `earlier` returns whether a claim belongs to an earlier start of
    this worker. Raises FailedError.
    """
    unread = 0
    for lower in range(generation, 0, -1):
        last, outcome = read(run, step, index, lower), documents.find_outcome(run, step, index, lower)
        if last.worker and last.call == call:
            free = outcome is not None and (outcome.free or (outcome.stopped == "signal" and earlier(last)))
            number = last.charged + unread + (not free)
            again = outcome is None or outcome.retry
            return number if again and number <= retries else None
        unread += not last.worker
    return 0


class Claim:
    def __init__(self, run: RunLayout, step: str, index: int, generation: int, content: ShardClaim) -> None:
        self.index, self.generation, self.content = index, generation, content
        self._path = run.claim(step, index, generation)
        self._next = run.claim(step, index, generation + 1)
        self._run, self._looked = run, time.monotonic()

    def beat(self) -> None:
        """Touch the claim, to show that its worker lives. Call it once in a HEARTBEAT. Ignores failures."""
        with contextlib.suppress(OSError):
            os.utime(self._path)

    def beating(self) -> contextlib.AbstractContextManager[None]:
        """Beat in a thread during the block, since a shard's last writes may take minutes."""
        return waits.beating(self.beat, "claim")

    def look(self) -> None:
        """Raise ClaimLostError if another worker holds the shard. Looks at most once in LOOK seconds."""
        if time.monotonic() - self._looked >= LOOK:
            self._looked = time.monotonic()
            with contextlib.suppress(TransientError):
                self.require()

    def require(self) -> None:
        """Look now. Raises as `look` does, or an error of `safe_open.storage_error` if the look fails."""
        try:
            os.lstat(self._next)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error(error, "claims cannot be looked at", str(self._next)) from error
        raise ClaimLostError(
            f"another worker took shard {self.index}",
            where=str(self._next),
            why=f"nothing was heard of this one for {waits.PATIENCE:.0f} s, or it counted as ended",
            hint="that one goes on with it",
        )

    def prove(self, receipt: ElementReceipt, holds: Callable[[int], bool]) -> None:
        """Write the shard's receipt, durably, unless a receipt `holds` already. Raises ClaimLostError."""
        path = self._run.receipt(receipt.step, receipt.index)
        for _ in range(3):
            self.require()
            made = documents.create(ELEMENT_RECEIPT, path, receipt)
            if made or receipts.stands(path, lambda: holds(self.index)):
                return
        raise TransientError("a receipt cannot be written", where=str(path), why="its name is taken")


class WatchedClaim(NamedTuple):
    """A claim of another worker, as this worker sees it."""

    generation: int
    written: int = -1  # the file's time, in nanoseconds
    looked: float = 0.0  # when that time was read last, by this process's clock
    still: float = 0.0  # seconds for which that time stayed the same
    lives: bool = False  # whether that time changed while the claim was watched

    def after(self, generation: int, written: int, now: float, most: float) -> WatchedClaim:
        """Return the claim after one more look, which adds at most `most` seconds to `still`. So no worker
        counts as dead because servers were absent, or because the looking process was halted."""
        if self.generation != generation or self.written < 0:
            return WatchedClaim(generation, written, now)
        if self.written != written:
            return WatchedClaim(generation, written, now, lives=True)
        return self._replace(looked=now, still=self.still + min(now - self.looked, most))


class ShardClaims:
    """The shards of a step as one worker takes them.

    `worker` is the content of its claims, without `worker` and `charged`. `shards` are all that may be open,
    in the plan's order; the worker begins at `place`. `holds` returns whether a shard's receipt is valid.
    `name` returns a new attempt's name, unique on all nodes. `prefers` selects shards that suit the worker.
    """

    def __init__(
        self,
        run: RunLayout,
        step: str,
        worker: ShardClaim,
        shards: Sequence[int],
        place: int,
        holds: Callable[[int], bool],
        name: Callable[[], str],
        *,
        retries: int,
        prefers: Callable[[int], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._step, self._worker = run, step, worker
        self._holds, self._name, self._retries = holds, name, retries
        self._prefers, self._clock = prefers, clock
        self._new = deque([*shards[place:], *shards[:place]])
        self._late: deque[int] = deque()
        self._open = deque(self._new)  # shards that may be open, without the watched shards
        self._listed = float("-inf")
        self._watched: dict[int, WatchedClaim] = {}

    def next(self) -> Claim | None:
        """Claim a shard, unclaimed shards first; None if no shard can be taken now.

        None is not final, since other workers may fail. Reads WATCHED claims, so a waiting worker calls it at
        least once in a HEARTBEAT. Raises the errors of `safe_open.storage_error`.
        """
        return self._unclaimed() or self._again()

    def waits(self) -> bool:
        """Return whether others hold open shards, according to the last call of `next`."""
        return bool(self._watched)

    @property
    def left(self) -> int:
        return len(self._open) + len(self._watched)

    def _unclaimed(self) -> Claim | None:
        listed = False
        while (index := self._pop()) is not None:
            if claim := self.take(index):
                return claim
            if not listed:
                listed = True
                claimed = standing(self._run, self._step)
                self._new = deque(index for index in self._new if index not in claimed)
                self._late = deque(index for index in self._late if index not in claimed)
        return None

    def _pop(self) -> int | None:
        while self._new:
            index = self._new.popleft()
            if self._prefers is None or len(self._late) >= LOOKED_AT or self._prefers(index):
                return index
            self._late.append(index)
        return self._late.popleft() if self._late else None

    def _again(self) -> Claim | None:
        self._list()
        if self._open:
            alive = [index for index, watch in self._watched.items() if watch.lives]
            self._open.extend(alive)
            for index in alive:
                del self._watched[index]
        for index in list(self._watched):
            if claim := self.take(index):
                return claim
        for _ in range(len(self._open)):
            if len(self._watched) >= WATCHED:
                break
            if claim := self.take(self._open.popleft()):
                return claim
        return None

    def _list(self) -> None:
        """Drop shards with a receipt from a long list, once in PATIENCE. `take` checks the receipts."""
        if len(self._open) > LOOKED_AT and self._clock() - self._listed >= waits.PATIENCE:
            self._listed = self._clock()
            away = proven(self._run, self._step) | self._watched.keys()
            self._open = deque(index for index in self._open if index not in away)

    def take(self, index: int) -> Claim | None:
        """Claim this shard if the module's table allows it. Raises the errors of `next`."""
        if self._holds(index):
            self._watched.pop(index, None)
            return None
        watched = self._watched.get(index, WatchedClaim(0)).generation
        generation = documents.claimed(self._run, self._step, index, watched)
        charged = self._charged(index, generation) if generation else 0
        receipt = self._run.receipt(self._step, index)
        # An invalid receipt is removed only now, since a live worker's receipt may be torn for a moment.
        if charged is None or receipts.stands(receipt, lambda: self._holds(index)):
            return None
        content = self._worker._replace(worker=self._name(), charged=charged)
        claim = self._run.claim(self._step, index, generation + 1)
        if documents.create(SHARD_CLAIM, claim, content):
            self._watched.pop(index, None)
            self._open.extend({index}.difference(self._open))  # this claim may also fail
            return Claim(self._run, self._step, index, generation + 1, content)
        self._watched[index] = WatchedClaim(generation + 1)
        return None

    def _charged(self, index: int, generation: int) -> int | None:
        """Return how many claims of this command are charged; None while at work, or if given up."""
        last, written = _read(self._run, self._step, index, generation)
        outcome = documents.find_outcome(self._run, self._step, index, generation)
        ended = outcome is not None or self._earlier(last)
        if not ended and not self._stands_still(index, generation, written):
            return None
        self._watched.pop(index, None)
        return charged(
            self._run, self._step, index, generation, self._worker.call, self._retries, self._earlier
        )

    def _earlier(self, last: ShardClaim) -> bool:
        """Return whether this worker made the claim before the scheduler started it again. The old process
        has ended, or is on a node that the scheduler gave up, where C2 ends it."""
        own = self._worker
        return (last.array, last.number) == (own.array, own.number) and last.restarts < own.restarts

    def _stands_still(self, index: int, generation: int, written: int) -> bool:
        watch = self._watched.get(index, WatchedClaim(generation))
        watch = watch.after(generation, written, self._clock(), waits.HEARTBEAT)
        self._watched[index] = watch
        return watch.still >= waits.PATIENCE
