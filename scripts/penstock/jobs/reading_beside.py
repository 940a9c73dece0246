"""Reading back beside the copy. A worker (a process of the job array) of copy also does verify's work on
copied shards. It never reads faster than it copies, and pauses while reading makes the copy slower.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.core.errors import InterruptedRunError, PenstockError
from penstock.dataset import documents, receipts
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.engine import pool
from penstock.fs import small_files
from penstock.host import kernel_facts, waits
from penstock.host.kernel_facts import host_name
from penstock.jobs import shard_claims
from penstock.jobs.element import Element, attempt_name, own_claim, say
from penstock.jobs.shard_claims import LOOKED_AT, ClaimLostError, ShardClaims, WatchedClaim

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.core.element_documents import ArrayLine, ShardClaim
    from penstock.dataset.context import Stop
    from penstock.dataset.documents import Run
    from penstock.jobs.shard_claims import Claim


# How fast a worker reads shards back while it copies others: never faster than it copies.
#
# Reading pauses while it slows the copy down. A `ReadingPace` compares the rate of the copy with and without
# reading, in seconds and bytes:
#
# | situation                             | then the worker                                              |
# |---------------------------------------|--------------------------------------------------------------|
# | the copy was measured alone for QUIET | reads, and measures the copy after each TRIED                |
# | the copy's rate is below MUCH of its  | stops reading (for twice as long as before, if it happens    |
# | rate alone, or twice in a row below   | repeatedly), and then measures the copy's rate alone again   |
# | SLOWER of its rate alone              |                                                              |
# | the copy keeps its rate               | continues; after AGAIN it measures the copy alone once more  |
# | nothing is copied                     | reads as fast as it can                                      |

QUIET, TRIED, AGAIN = 3.0, 10.0, 60.0  # seconds; see the table
REST = 10.0  # seconds of the first rest
LONGEST_REST = 300.0  # most seconds of a rest
SLOWER, MUCH = 0.95, 0.8  # fractions of the copy's rate alone
WINDOW = 1.0  # seconds over which no more is read than copied
SLACK = 64 << 20  # bytes that may be read ahead within a WINDOW: some blocks of each stream


class _Mark(NamedTuple):
    at: float
    copied: int
    read: int

    def rate(self, now: float, copied: int) -> float:
        return (copied - self.copied) / max(now - self.at, 0.001)


class ReadingPace:
    """The pace of one worker. `copied` returns its bytes copied so far, or None while it copies nothing."""

    def __init__(self, copied: Callable[[], int | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._copied, self._clock = copied, clock
        self._alone: float | None = None  # the copy's rate without reading
        self._measured = float("-inf")  # when `_alone` was measured
        self._phase: _Mark | None = None
        self._window: _Mark | None = None
        self._rests_until, self._rest, self._slower = float("-inf"), REST, 0
        self._read = self._before = 0

    def rests(self, read: int) -> bool:
        """Return whether reading must pause now. `read` counts the bytes read of the current shard."""
        now, copied = self._clock(), self._copied()
        self._before += self._read if read < self._read else 0
        self._read = read
        total = self._before + read
        if copied is None:
            self._alone = self._phase = self._window = None
            return False
        if now < self._rests_until:
            return True
        if self._phase is None:
            self._phase = self._window = _Mark(now, copied, total)
        if self._alone is None:
            if now - self._phase.at < QUIET:
                return True
            self._alone, self._measured = self._phase.rate(now, copied), now
            self._phase = self._window = _Mark(now, copied, total)
        elif now - self._phase.at >= TRIED:
            self._judge(now, copied)
            self._phase = _Mark(now, copied, total)
            if self._alone is None:
                return True
        return self._is_ahead(now, copied, total)

    def _judge(self, now: float, copied: int) -> None:
        assert self._phase is not None
        assert self._alone is not None
        rate = self._phase.rate(now, copied)
        self._slower = self._slower + 1 if rate < SLOWER * self._alone else 0
        if rate < MUCH * self._alone or self._slower > 1:
            self._rests_until, self._rest = now + self._rest, min(2 * self._rest, LONGEST_REST)
            self._alone, self._slower = None, 0
            return
        self._rest = self._rest if self._slower else REST
        if now - self._measured >= AGAIN:
            self._alone = None

    def _is_ahead(self, now: float, copied: int, total: int) -> bool:
        """Return whether more was read than copied in this WINDOW, which grows while reading is ahead."""
        mark = self._window or _Mark(now, copied, total)
        ahead = total - mark.read > copied - mark.copied + SLACK
        if not ahead and now - mark.at >= WINDOW:
            mark = _Mark(now, copied, total)
        self._window = mark
        return ahead


# Reading back beside the copy: a worker of copy also does verify's work on copied shards.
#
# A thread reads shards back while the worker copies others, paced so that the copy does not slow down
# (`ReadingPace`). At the end the worker reads back the rest. Workers divide the shards by claims of the step
# verify (`jobs.shard_claims`). The step verify itself does the shards that lack its receipt.
#
# | a shard                              | is read back here                                             |
# | ------------------------------------ | ------------------------------------------------------------- |
# | without a valid receipt of copy      | no                                                            |
# | with parts of giants                 | when all their parts are copied, also those in other shards;  |
# |                                      | no if `changed: follow` may copy a giant as a whole later     |
# | with rows that were linked, or taken | when all shards are copied: each further link to an inode     |
# | over                                 | changes its ctime                                             |
# | that another node wrote              | at once: a cold read on another node proves more              |
# | that this node wrote                 | at once if this worker works alone; otherwise if no other     |
# |                                      | node took the shard within OWN seconds                        |
#
# Shards copied earlier come first, as far as listings show it. A worker lists receipts and claims when it
# knows of no shard to take.

STEP = "verify"
OWN = 60.0
LOOKS = 1.0, 30.0  # fewest and most seconds between two looks for shards
SHARDS_A_SECOND = 200  # for each such number of shards in the run, the next look is a second later
IDLE = 10.0  # seconds to wait for shards that others hold, once all are copied
FAILURES = 2  # failed readings in a row, after which a worker leaves reading to others


class CopiedShards:
    """The shards of a run that may be read back, as one worker takes them. The worker begins at `place` in
    the order of shards. `alone`: no other node takes part."""

    def __init__(
        self,
        run: Run,
        worker: ShardClaim,
        place: int,
        *,
        retries: int,
        alone: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._worker, self._retries, self._alone = run, worker, retries, alone
        self._clock, self._place = clock, place
        self._copied = receipts.held(run, "copy")
        self._read_back = receipts.held(run, STEP)
        self._known: dict[int, None] = {}  # copied shards, in the order in which looks showed them
        self._queue: deque[int] = deque()
        self._claims = self._claims_of(())
        self._looked = float("-inf")
        self._watched: dict[int, WatchedClaim] = {}
        self._crossing: dict[int, tuple[str, str]] = {}  # giants across a shard's ends, by shard
        self._left_giants: dict[int, bool] = {}  # whether a shard's giants are left to the step verify
        self.all_copied = False

    def _claims_of(self, shards: Sequence[int]) -> ShardClaims:
        place = self._place * len(shards) // max(1, len(self._run.indices))
        folder, host = self._run.folder, host_name()
        return ShardClaims(
            folder, STEP, self._worker, shards, place, self._is_not_for_it, attempt_name,
            retries=self._retries, prefers=lambda index: receipts.copied_elsewhere(folder, index, host),
        )  # fmt: skip

    def _is_not_for_it(self, index: int) -> bool:
        return self._read_back(index) or not self._copied(index) or self._has_left_giants(index)

    def next(self) -> Claim | None:
        """Claim a shard; None if none can be taken now. Raises the errors of `safe_open.storage_error`."""
        if self.all_copied:
            return self._claims.next()
        claim = self._queued()
        if claim is None and self._clock() - self._looked >= self.pause:
            self._look()
            claim = self._claims.next() if self.all_copied else self._queued()
        return claim

    def refresh(self) -> None:
        """Have `next` look at the receipts, however recent its last look."""
        self._looked = float("-inf")

    @property
    def pause(self) -> float:
        if self.all_copied:
            return min(IDLE / 2, max(0.2, self._claims.left / 100))
        return min(LOOKS[1], max(LOOKS[0], len(self._run.indices) / SHARDS_A_SECOND))

    def waits(self) -> bool:
        """Return whether all shards are copied, and other workers hold shards that they may leave."""
        return self.all_copied and self._claims.waits()

    def copies(self, shards: Sequence[int]) -> tuple[int, bool, bool]:
        """Return how many of these shards others copy, whether any is left, and whether any was given up.

        A shard is left if it has no claim, or if its last claim failed or is no longer touched. Raises
        FailedError.
        """
        now, folder, alive, left, given_up = self._clock(), self._run.folder, 0, False, False
        claims, proven = shard_claims.standing(folder, "copy"), shard_claims.proven(folder, "copy")
        for index in shards:
            if index in proven:
                continue
            if not (generation := claims.get(index, 0)):
                left = True
                continue
            if documents.find_outcome(folder, "copy", index, generation) is not None:
                call, tries = self._worker.call, self._retries
                charged = shard_claims.charged(folder, "copy", index, generation, call, tries)
                left, given_up = left or charged is not None, given_up or charged is None
                continue
            written = shard_claims.beat(folder, "copy", index, generation)
            before = self._watched.get(index, WatchedClaim(generation))
            self._watched[index] = beat = before.after(generation, written, now, waits.HEARTBEAT)
            stands_still = beat.still >= waits.PATIENCE
            left, alive = left or stands_still, alive + (not stands_still)
        return alive, left, given_up

    def _look(self) -> None:
        self._looked = self._clock()
        folder = self._run.folder
        named = shard_claims.proven(folder, "copy")
        indices = self._run.indices
        ordered = [*indices[self._place :], *indices[: self._place]]
        self._known |= dict.fromkeys(i for i in ordered if i in named and i not in self._known)
        if len(self._known) == len(indices):
            self.all_copied = True
            self._claims = self._claims_of(indices)
            return
        away = shard_claims.standing(folder, STEP)
        self._queue = deque(i for i in self._known if i not in away and not self._run.shards[i].reused)

    def _queued(self) -> Claim | None:
        later: list[int] = []
        try:
            while self._queue and len(later) < LOOKED_AT:
                index = self._queue.popleft()
                if self._has_left_giants(index) or not self._giants_are_copied(index):
                    continue  # checked again only after the next look, since such shards may be many
                if not self._suits(index):
                    later.append(index)
                elif claim := self._claims.take(index):
                    return claim
        finally:
            self._queue.extendleft(reversed(later))
        return None

    def _suits(self, index: int) -> bool:
        receipt = receipts.element(self._run.folder, "copy", index)
        if receipt is None:
            return False
        return self._alone or receipt.host != host_name() or time.time() - receipt.ended >= OWN

    def _giants_are_copied(self, index: int) -> bool:
        """Return whether all parts of this shard's giants are copied. The other parts are in neighbouring
        shards, since shards are contiguous."""
        for end, step in ((0, -1), (1, 1)):
            giant, place = self._ends(index)[end], index
            while giant and self._ends(place)[end] == giant:
                place += step
                if place not in self._known:
                    return False
        return True

    def _ends(self, index: int) -> tuple[str, str]:
        if not self._run.plan.giants:
            return "", ""
        if index not in self._crossing:
            from penstock.tables.run_tables import crossing

            self._crossing[index] = crossing(self._run.folder.shard(index))
        return self._crossing[index]

    def _has_left_giants(self, index: int) -> bool:
        if not self._run.plan.giants or self._run.config.dataset.changed != "follow":
            return False
        if index not in self._left_giants:
            from penstock.tables.run_tables import giants

            self._left_giants[index] = bool(giants(self._run.folder.shard(index)))
        return self._left_giants[index]


class ReadingBeside:
    """A context in which a thread reads shards back. `rest` reads the shards that are left."""

    def __init__(
        self,
        copying: Element,
        number: int,
        line: ArrayLine,
        stop: Stop,
        retries: int,
        leaves: Callable[[], bool],
    ) -> None:
        run = copying.run
        self._stop, self._leaves, self._number, self._line = stop, leaves, number, line
        self._over = threading.Event()
        self._pace = ReadingPace(lambda: None if self._over.is_set() else copying.moved())
        self._element = Element(
            copying.folder, STEP, stop, copying.layout.root,
            rests=self._pace.rests, beside=lambda: not self._over.is_set(), watch=copying.watch,
        )  # fmt: skip
        place = (number - line.base) * len(run.indices) // max(1, line.workers)
        alone = not kernel_facts.current_job().job or (line.workers == 1 and not line.base)
        self._shards = CopiedShards(run, own_claim(line, number), place, retries=retries, alone=alone)
        small_files.make_dirs(run.folder.claims(STEP))
        self._thread = threading.Thread(target=self._beside, name="reading back")
        self._failures = 0
        self._bug: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Return when the thread has ended: after its current shard, or at once after a signal. Re-raises an
        unexpected exception from the thread."""
        self._over.set()
        self._stop.stir()
        self._thread.join()
        if self._bug is not None:
            bug, self._bug = self._bug, None
            raise bug

    def _beside(self) -> None:
        try:
            with contextlib.suppress(InterruptedRunError):  # the copy also notices the signal
                self._reads(self._over.is_set)
        except BaseException as error:  # noqa: BLE001  `end` raises it
            self._bug = error

    def _reads(self, over: Callable[[], bool]) -> None:
        """Call `_read`. After an error, log it and leave the rest to verify. Raises InterruptedRunError."""
        try:
            with pool.kept():
                self._read(over)
        except InterruptedRunError:
            raise
        except PenstockError as error:
            say(f"this worker reads nothing back any more: {error}")

    def rest(self) -> bool:
        """Read back the remaining shards when this worker has none to copy. Return whether to copy again.

        Raises InterruptedRunError.

        | the shards that are not copied          | then this worker                                  |
        |-----------------------------------------|---------------------------------------------------|
        | at least one has no worker any more     | copies again                                      |
        | at least one is given up                | ends, since the step fails                        |
        | other workers copy N of them            | reads back, and waits if it is one of the first   |
        |                                         | 2 N of the newest array, so that not all nodes    |
        |                                         | are idle for a slow one                           |
        | there are none                          | reads back, until it finds nothing for IDLE       |
        """
        since, again, refreshed = time.monotonic(), False, False

        def over() -> bool:
            nonlocal since, again, refreshed
            if self._leaves():
                return True
            if self._shards.all_copied:
                since = time.monotonic() if self._claimed else since
                return not self._claimed and (time.monotonic() - since >= IDLE or not self._shards.waits())
            alive, again, given_up = self._shards.copies(self._line.indices)
            if not (alive or again or given_up or refreshed):
                refreshed = True
                self._shards.refresh()
                return False
            wanted = self._claimed or (self._number - self._line.base < 2 * alive and self._is_newest())
            return again or given_up or not wanted

        self.end()
        self._reads(over)
        return again

    def _is_newest(self) -> bool:
        """Return whether this worker's array is the newest. Workers of older arrays need not wait as well."""
        names = [line.name for line in ArrayBook(self._element.folder.arrays).all() if line.step == "copy"]
        return names[-1:] == [self._line.name]

    def _read(self, over: Callable[[], bool]) -> None:
        self._claimed = True
        with self._element as element:
            while self._failures < FAILURES and not over():
                self._stop.check()
                element.check()
                claim = self._shards.next()
                self._claimed = claim is not None
                if claim is None:
                    self._stop.wait(self._shards.pause)
                    continue
                try:
                    code = element.do(claim)
                except ClaimLostError as error:
                    say(str(error))
                    continue
                self._stop.signalled()
                self._failures = self._failures + 1 if code else 0
