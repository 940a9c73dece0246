"""A process's share of a rate: `Share`, and `Hold`, by which a controller posts for the processes of its run.
Also a process's share of the metadata operations a second that `target.ops` allows all processes together.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import threading
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.core.errors import FailedError
from penstock.core.human import printable
from penstock.dataset import holder as holders
from penstock.fs import capabilities as file_clock
from penstock.fs import small_files
from penstock.host.pacing import clock, spending
from penstock.jobs.share_rule import (
    LIVES,
    LONGEST,
    NOBODY,
    PARTS,
    Holder,
    Member,
    Post,
    SharesFolder,
    abandoned,
    divided,
    late_of,
    parse,
    run_digits,
)
from penstock.target import notices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context, OpsHold, Stop


# A process's share of a rate: `Share`, and `Hold`, by which a controller posts for the processes of its run.
#
# Only one thread, which runs `share_rule.Member`, uses the folder, so no other thread waits for it. If the
# folder is unresponsive, the thread hangs, and the share ends at the time in `Member.usable`.

READ = 2.5  # seconds between two calls of `tick` at rest
ENDING = 5.0  # most seconds for the share's end; files left then count for a while, and are removed later
UNUSED = 30.0  # seconds after which unused parts go to other holders
RAISED = 5.0  # seconds of full use after which a holder claims more
SHOWN = 200  # most holders in one look: others may make thousands, and `divided` visits all holders for each
KEPT = 3600.0  # seconds without a beat, by the file system's clock, after which files are removed
_LOOK = 0.2


class _EndedError(Exception):
    """The share has ended."""


class Share:
    """A context: `with Share(...) as share:`. Any thread may call `share.now()`."""

    def __init__(
        self,
        folder: Path,
        digits: str,
        who: holders.Holder,
        wanted: Callable[[], Post] | None = None,
        *,
        lowers: bool = True,
    ) -> None:
        """`digits` name the holder to which the process belongs; if "", the process is its own holder.
        `wanted` is as in `Member`. Raises OSError."""
        self._where, self._alone = printable(str(folder)), not digits
        self.member = Member(
            SharesFolder(folder), self._rest, digits or secrets.token_hex(4), who.to_json(), clock,
            late=late_of(folder), wanted=wanted, lowers=lowers,
        )  # fmt: skip
        self._stop, self._wake = threading.Event(), threading.Event()
        self.failed = ""
        self._thread = threading.Thread(target=self._run, name="shares", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._wake.set()
        self._thread.join(ENDING)
        if not self._thread.is_alive():
            with contextlib.suppress(OSError):
                self.leave()

    def leave(self) -> None:
        if self._alone:
            self.member.end()
        else:
            self.member.leave()

    def tick(self) -> None:
        """Do work of a subclass, at least once in READ seconds while the folder is responsive."""

    def now(self) -> float:
        """Return the part of the rate usable now, 0 to 1. Raises FailedError if no share can come now."""
        if self.failed or not self._thread.is_alive():
            raise self._unusable(self.failed or "the thread that holds the share has ended")
        part, until = self.member.usable
        return part if clock() <= until else 0.0

    def _unusable(self, why: str) -> FailedError:
        return FailedError(
            "the folder of the shares cannot be used",
            where=self._where,
            why=printable(why),
            hint="each account that has a share must be able to write there, from each node: look at its "
            "modes, free space, inodes and quota",
        )

    def _run(self) -> None:
        try:
            self.member.hold()
        except _EndedError:
            pass
        except Exception as error:  # noqa: BLE001  `now` reports it to the user of the share
            self.failed = f"{type(error).__name__}: {error}"

    def _rest(self, seconds: float) -> None:
        end = clock() + seconds
        self.tick()
        while (left := end - clock()) > 0 and not self._wake.wait(min(left, READ)):
            self.tick()
        self._wake.clear()
        if self._stop.is_set():
            raise _EndedError


def claimed(most: int, part: float, used: float | None, *, left: int, works: bool) -> int:
    """Return the new claim, of PARTS, of a holder that claims `most` now and has `part` (0 to 1) of the rate.

    `used` is the fraction of their allowance that the holder's working processes used; None if not known yet.
    `left` is the part that others do not claim.

    | left         | works | used            | new claim        |
    |--------------|-------|-----------------|------------------|
    | all          |       |                 | all              |
    | half or more | no    |                 | as before        |
    | less         | no    |                 | 1                |
    | not all      | yes   | less than half  | half of its part |
    | not all      | yes   | 0.9 or more     | all              |
    | not all      | yes   | other, unknown  | as before        |
    """
    if left == PARTS or (works and used is not None and used >= 0.9):
        return PARTS
    if not works:
        return most if 2 * left >= PARTS else 1
    if used is not None and used < 0.5:
        return max(1, min(most, round(part * PARTS / 2)))
    return most


class Hold(Share):
    """The share of a run, kept by its controller: its claim, and how many processes divide it. On exit its
    files stay if processes of the holder may live then, so that the next step continues at once."""

    def __init__(
        self,
        folder: Path,
        digits: str,
        who: holders.Holder,
        *,
        rate: Callable[[], float],
        per_process: float | None = None,
        processes: int = 0,
        lowers: bool = True,
        ends: bool = False,
        stopped: bool = False,
    ) -> None:
        """`rate` returns the rate of all holders together, infinite if there is no cap.

        `per_process` is one process's own limit; `processes` counts those that may work before `begin`. Set
        `ends` if no other process lives when this one ends, and `stopped` if this is also so after an error.
        `lowers` is as in `Member`.
        """
        super().__init__(folder, digits, who, self._wanted, lowers=lowers)
        self._ends, self._stopped = ends, stopped
        self._rate, self._cap, self._per_process = rate, 0.0, per_process
        self._processes, self._works, self._most = processes, False, PARTS
        self._running, self._amount, self._since = 0, 0, clock()

    def __exit__(self, *error: object) -> None:
        self._ends = self._stopped if any(error) else self._ends
        super().__exit__()

    def leave(self) -> None:
        if self._ends:
            self.member.end()

    @property
    def holder(self) -> str:
        return self.member.holder

    def begin(self, processes: int, wait: Callable[[float], object], *, first: bool = False) -> None:
        """Return when this number of processes may work at once.

        Set `first` if no process of the holder lives yet. If it is not set, a higher post stays. Calls `wait`
        repeatedly, which may raise. Raises FailedError if the folder cannot be used, or takes no file.
        """
        member, began = self.member, clock()
        self._processes, self._works, self._since, member.lowers = processes, True, began, first
        self._wake.set()
        while not member.knows(processes, first=first):
            self.now()
            if member.trouble and clock() - began > 2 * member.waits + LIVES:
                raise self._unusable(member.trouble)
            wait(_LOOK)

    def works(self) -> None:
        if not self._works:
            self._works = True
            self._wake.set()

    def uses(self, running: int, amount: int) -> None:
        """Adapt the claim to the number of `running` processes and the total `amount`, in the rate's unit."""
        now = clock()
        seconds, member = now - self._since, self.member
        if running != self._running or amount < self._amount:
            self._running, self._amount, self._since = running, amount, now
            self._works = self._works and running > 0
            return
        could = self._cap * member.holder_part * running / max(1, self._processes) * seconds
        # If there is no cap on bytes, the use of a share of requests is not known.
        used = (amount - self._amount) / could if 0 < could < math.inf else None
        if seconds >= UNUSED or (seconds >= RAISED and used is not None and used >= 0.9):
            self._works = running > 0
            self._most = claimed(self._most, member.holder_part, used, left=member.left, works=self._works)
            self._amount, self._since = amount, now

    def _wanted(self) -> Post:
        left = self.member.left
        most = claimed(self._most, 0.0, None, left=left, works=self._works)
        if left == PARTS:
            self._most = PARTS
        self._cap = self._rate()
        if self._per_process is not None and 0 < self._cap < math.inf:
            full = self._per_process * max(1, self._processes) * PARTS // self._cap + 1
            most = max(1, min(most, int(full)))
        return Post(most, self._processes)


def sweep(path: Path) -> None:
    """Remove this account's files of holders that did not change for KEPT seconds. Raises nothing."""
    with contextlib.suppress(OSError):
        folder, listing, now = SharesFolder(path), parse(os.listdir(path)), file_clock.now(path)
        states = {}
        for name in chain(listing.holders, *listing.beats.values()):
            with contextlib.suppress(OSError):
                states[name] = folder.state(name)
        young = {
            name.split(".")[1] for name, state in states.items() if state and now - state.changed <= KEPT
        }
        for name, state in states.items():
            if state and state.uid == os.geteuid() and name.split(".")[1] not in young:
                with contextlib.suppress(OSError):
                    folder.remove(name)


class HolderShare(NamedTuple):
    part: float  # part of the rate, 0 to 1
    who: str  # readable text, safe on a terminal


def look(path: Path) -> list[HolderShare]:
    """Return at most SHOWN live holders, by the file system's clock, the largest part first; as old as the
    file system's listings. Changes only the folder's own time. Raises OSError."""
    listing = parse(os.listdir(path) if os.path.lexists(path) else [])
    if not listing.holders:
        return []
    folder, now, longest = SharesFolder(path), file_clock.now(path), abandoned(late_of(path))
    most: dict[Holder, int] = {}
    who: dict[Holder, str] = {}
    for name, (digits, post) in listing.holders.items():
        state = folder.state(name)
        if state is None or state.uid == NOBODY:
            continue
        holder, beats = Holder(state.uid, digits), map(folder.state, listing.beats.get(digits, ()))
        if any(beat and beat.uid == state.uid and now - beat.changed < longest for beat in beats):
            most[holder], who[holder] = max(post.most, most.get(holder, 0)), _who(path / name)
    largest = sorted(most, key=lambda holder: most[holder], reverse=True)[:SHOWN]
    held = [HolderShare(divided(most, holder) / PARTS, who[holder]) for holder in largest]
    return sorted(held, key=lambda share: (-share.part, share.who))


def _who(path: Path) -> str:
    with contextlib.suppress(OSError):
        if holder := holders.parse(small_files.read(path, LONGEST)):
            return printable(holder.describe())
    return "not known: it has just begun, or ended, or cannot be read"


# This process's share of the metadata operations a second that `target.ops` allows below a root.
#
# Runs, repairs, rehearsals, removals and `du` hold shares by files in `<root>/.operations/`
# (`jobs.share_rule`). Audits and verify only read, and have no share. A process that cannot write in that
# folder, as on a full file system, takes a tenth of the budget and is not counted.

REMOVALS = 1000  # names a second that all removals together remove if there is no budget of operations
UNCOUNTED = 0.1  # part of the budget for a process that cannot hold a share
# Most holders that `holders_of` returns, and most characters of each text, since other accounts wrote it.
NAMED, LONGEST_HOLDER = 20, 300


def _folder_of(layout: DatasetLayout) -> Path | None:
    """Return the folder of the shares, made if missing; None if it cannot be made."""
    try:
        notices.make_folder_as_above(layout.operations)
        above, made = layout.root.stat(), layout.operations.stat()
        if made.st_uid != above.st_uid and os.geteuid() == 0 == made.st_uid:
            # Accounts that stage must be able to write here, even if root came first, only to look.
            os.chown(layout.operations, above.st_uid, above.st_gid)
    except (OSError, FailedError):
        return None
    return layout.operations


def ops_hold(context: Context, layout: DatasetLayout, step: str, run: str, release: str) -> Hold | None:
    """Return the holder of a run, or of a repair of a release; None if there can be no share. Also removes
    files of this account's processes that were killed long ago."""
    if (folder := _folder_of(layout)) is None:
        return None
    sweep(folder)
    run = run or f"repair of {release}"
    return Hold(
        folder,
        run_digits(layout.lock, run),
        holders.this_process(run, f"{step} {layout.dataset}"),
        rate=lambda: float(context.ops),
        processes=1,
        # Elements of an interrupted run may be at work.
        lowers=not release and step not in ("plan", "copy"),
        ends=bool(release) or step == "publish",
        stopped=context.cluster.abilities.elements_end_with_controller,
    )


def rate_of(share: Share | OpsHold | None, ops: float, uncounted: float = UNCOUNTED) -> Callable[[], float]:
    """Return a function for the operations a second allowed now (without a share, `uncounted` of `ops`)."""

    def rate() -> float:
        if share is not None:
            with contextlib.suppress(FailedError):
                return ops * share.now()
        return ops * uncounted

    return rate


@contextlib.contextmanager
def held(
    layout: DatasetLayout,
    ops: float,
    command: str,
    holder: str = "",
    *,
    most: int = PARTS,
    uncounted: float = UNCOUNTED,
) -> Iterator[Callable[[], float]]:
    """Yield a function that returns this process's share now, in operations a second. `holder` is its run's
    holder, or "" if the process is its own holder, with a claim of `most` of PARTS."""
    share = None
    if (folder := _folder_of(layout)) is not None:
        who = holders.this_process("", f"{command} {layout.dataset}")
        share = Share(folder, holder, who, None if holder else lambda: Post(most, 1))
    with share or contextlib.nullcontext():
        yield rate_of(share, ops, uncounted)


@contextlib.contextmanager
def paced(
    layout: DatasetLayout,
    ops: float,
    command: str,
    stop: Stop,
    *,
    most: int = PARTS,
    uncounted: float = UNCOUNTED,
) -> Iterator[Callable[[int], None]]:
    """Yield `spend` (`host.pacing`) of a command that is its own holder. `ops` of 0 means no
    budget. `spend` waits while the PAUSE file exists, and raises if the command was stopped."""
    if not ops:
        yield lambda _: stop.check()
        return
    with (
        held(layout, ops, command, most=most, uncounted=uncounted) as rate,
        spending(rate, stop.event.wait) as take,
    ):

        def spend(operations: int) -> None:
            stop.check()
            take(operations)

        yield spend


@contextlib.contextmanager
def removing(context: Context, layout: DatasetLayout) -> Iterator[None]:
    """During the block, have `context.spend` wait for this process's share, at most a fifth of the budget."""
    before = context.spend
    # On a full file system there can be no share, but removals must go on, since they make room.
    ops, most, uncounted = (context.ops, PARTS // 5, UNCOUNTED) if context.ops else (REMOVALS, PARTS, 0.5)
    try:
        pace = paced(layout, ops, "gc", context.stop, most=most, uncounted=uncounted)
        with pace as context.spend:
            yield
    finally:
        context.spend = before


def holders_of(layout: DatasetLayout) -> list[str]:
    """Return a phrase for each holder of a large share now; [] if the holders cannot be read."""
    try:
        return [
            f"{share.part:.1%}: {share.who}"[:LONGEST_HOLDER] for share in look(layout.operations)[:NAMED]
        ]
    except OSError:
        return []
