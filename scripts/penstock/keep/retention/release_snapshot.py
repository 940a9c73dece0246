"""What is known of a dataset's releases before gc or remove decides: when they were published, when they left
`current`, and who holds them.

A release is held (kept from being removed) by a reader's pin, by a run that links files from it, by an audit
or a repair, and by an administrator's HOLD.

For `collection`, `dataset_removal` and `gc_step`. Reads the dataset's state and releases, not their data, and
/proc; asks the cluster whether the jobs of pins have ended, and for its longest time limit. Changes nothing;
folders of the dataset are touched, to read the file system's clock (`fs.clock`).
"""

from __future__ import annotations

import contextlib
import os
import re
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.documents.history_line import Publication
from penstock.core.errors import FailedError, NewerFormatError, PenstockError, PreflightError
from penstock.dataset import current_pointer, pins, run_store, seals
from penstock.dataset import holder as holders
from penstock.fs import clock, plain_files
from penstock.jobs.ownership import liveness
from penstock.keep.retention import decision
from penstock.keep.retention.decision import Known
from penstock.target import dataset_folders, hold

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.dataset.current_pointer import Move
    from penstock.dataset.pins import ReleasePin
    from penstock.keep.retention.decision import Criteria, ReleaseDecision
    from penstock.target.hold import Hold

_MADE = re.compile(r"[0-9]{8}-[0-9a-f]{8}(\.[0-9]+)?")
"""A release's name that `release: auto` makes."""
BY_HAND = 300.0
"""Seconds by which the `current` link may be younger than the history's last word, before somebody must have
moved it by hand: the clocks of nodes and servers differ."""
STILL = 3600.0
"""Seconds without a heartbeat after which the lock of an audit, a repair or `gate --mend` holds nothing."""


class ReleaseSnapshot(NamedTuple):
    """One look at a dataset."""

    current: str | None
    """None where the link `current` is missing or leads to no release."""
    known: Sequence[Known]
    """The one that was published longest ago comes first; before it those of which nobody knows, by name."""
    ended: Mapping[str, str]
    """The name of each pin that stands no more, and of what is no pin, and why."""
    now: float
    """When it was taken, in seconds since the epoch by the file system's clock: ages are judged by it."""

    def decide(self, criteria: Criteria) -> list[ReleaseDecision]:
        """What becomes of each release, by what is known here."""
        return decision.decide(criteria, self.known, self.current, self.now)


def take(context: Context, layout: DatasetLayout, unpinned: Container[str] = ()) -> ReleaseSnapshot:
    """What is there now. Pins whose names are `unpinned` hold nothing. Raises PreflightError where pins or
    HOLD cannot be read, FindingsError where the dataset's folders are damaged, and as
    `dataset_folders.current`, `current_pointer.moves` and `clock.checked`."""
    current = dataset_folders.current(layout) if dataset_folders.leads(layout) else None
    moves = current_pointer.moves(layout)
    now = clock.checked(layout.releases)
    pinned: dict[str, list[ReleasePin]] = {}
    ended: dict[str, str] = {}
    scheduler = partial(liveness.scheduler, context)
    there = pins.read_strictly(layout)
    ended |= dict.fromkeys(pins.strays(layout, {pin.name for pin in there}, now), "it is no pin")
    for pin in there:
        why = pins.ended(pin, now, context.config.gc.longest_pin, scheduler)
        if why:
            ended[pin.name] = why
        elif pin.name not in unpinned:
            pinned.setdefault(pin.release, []).append(pin)
    held = {release: pins.words(those) for release, those in pinned.items()}
    for release, words in _in_use(layout):
        held.setdefault(release, []).append(words)
    administrators = _by_administrators(layout)
    for release in dataset_folders.releases(layout):
        held.setdefault(release, []).extend(_words(administrators, release))
    linked = _link_made(layout)
    # The history has seconds, so of two of one second its order says which is the newer one.
    place = {one.release: number for number, one in enumerate(moves) if isinstance(one, Publication)}
    known = sorted(
        (
            _known(layout, name, current, moves, linked, held.get(name, []))
            for name in dataset_folders.releases(layout)
        ),
        key=lambda one: (one.published or 0.0, place.get(one.release, -1), one.release),
    )
    return ReleaseSnapshot(current, known, ended, now)


def holders_now(context: Context, layout: DatasetLayout, release: str) -> list[str]:
    """Who holds a release that is marked for its removal, in words: pins, a run, an audit, HOLD; [] where
    nobody does. Raises PreflightError where pins or HOLD cannot be read, FindingsError where the dataset's
    folders are damaged, and as `clock.checked`."""
    now = clock.checked(layout.releases)
    scheduler = partial(liveness.scheduler, context)
    longest = context.config.gc.longest_pin
    there = pins.read_strictly(layout)
    placed = pins.standing(there, now, longest, scheduler).get(release, [])
    in_use = [words for name, words in _in_use(layout) if name == release]
    return [*pins.words(placed), *in_use, *_words(_by_administrators(layout), release)]


def _by_administrators(layout: DatasetLayout) -> list[Hold]:
    """What is held is evidence. Raises PreflightError where nobody can say whether it is."""
    try:
        return hold.of_dataset(layout)
    except OSError as error:
        raise PreflightError(
            "whether a release is held is not known",
            where=str(layout.root / hold.NAME),
            why=str(error.strerror),
            hint="see whether the file system is mounted and answers",
        ) from None


def _words(holds: Sequence[Hold], release: str) -> list[str]:
    """The first that holds the release, in words."""
    return [f"{hold.NAME}: {held}" for held in holds if held.covers(release)][:1]


def grace(context: Context) -> float:
    """Seconds: `gc.grace`, or the longest time that a job of any of the cluster's partitions may take, where
    that is longer; a partition without a limit does not count, nor does a cluster that does not answer."""
    longest = context.config.gc.grace
    with contextlib.suppress(PenstockError):
        longest = max(longest, context.cluster.longest_anywhere())
    return longest


def _known(
    layout: DatasetLayout,
    release: str,
    current: str | None,
    moves: Sequence[Move],
    linked: float,
    held: Sequence[str],
) -> Known:
    stored, newer = None, ""
    # A seal that cannot be read says nothing; the release can be removed all the same.
    try:
        stored = seals.find(layout, release)
    except NewerFormatError as error:
        newer = f"newer: a newer penstock sealed it, and is needed to remove it: {error.why}"
    except FailedError:
        pass
    seal = stored.seal if stored else None
    publications = [one for one in moves if isinstance(one, Publication) and one.release == release]
    times = [_seconds(one.at) for one in publications]
    published = max((one for one in times if one is not None), default=None)
    if published is None and seal is not None:
        published = _seconds(seal.sealed)
    left = None if release == current or current is None else left_at(moves, release, linked)
    said = seal or next(reversed(publications), None)
    return Known(
        release,
        published,
        left,
        not _MADE.fullmatch(release),
        (*held, newer) if newer else tuple(held),
        said.files if said else 0,
        said.bytes if said else 0,
        said.run if said else "",
    )


def left_at(moves: Sequence[Move], release: str, linked: float) -> float:
    """When a release that is not current left `current`, in seconds since the epoch, at the latest. `linked`
    is when the link was made that stands now.

    | the history                                              | it left                                  |
    |----------------------------------------------------------|------------------------------------------|
    | names what came after it                                 | then: the last time that it names        |
    | ends with it, or never names it                          | when the present link was made           |
    | is older than the present link: it was moved by hand     | when the present link was made           |
    """
    times: list[float | None] = []
    for index, move in enumerate(moves):
        before = move.previous if isinstance(move, Publication) else move.left
        follows = index > 0 and moves[index - 1].release == release
        if (before == release or follows) and move.release != release:
            times.append(_seconds(move.at))
    last = _seconds(moves[-1].at) if moves else None
    if not times or None in times or last is None or linked > last + BY_HAND or moves[-1].release == release:
        return max([linked, *(one for one in times if one is not None)])
    return max(one for one in times if one is not None)


def _link_made(layout: DatasetLayout) -> float:
    """When the link `current` was made, in seconds since the epoch; now where that is not known."""
    try:
        return os.lstat(layout.current).st_mtime
    except OSError:
        return clock.now(layout.releases)


def _in_use(layout: DatasetLayout) -> list[tuple[str, str]]:
    """The releases that a run, a repair or an audit needs, and which."""
    needed = []
    with contextlib.suppress(PreflightError, FailedError):
        run = run_store.open_run(layout)
        if run.folder.plan.exists() and seals.of_run(run) is None and run.plan.base:
            needed.append((run.plan.base, f"base: run {run.id}, which has not ended, links from it"))
    # Of audits and repairs, and of `gate --mend`, which takes the other one for both of its steps.
    for name in ("audit.lock", "gate.lock"):
        lock = layout.state / name
        with contextlib.suppress(OSError):
            holder = holders.parse(plain_files.read(lock))
            age = clock.now(layout.state) - lock.stat().st_mtime
            if holder is not None and holder.run and holders.lives(holder) is not False and age < STILL:
                needed.append((holder.run, f"{holder.command}: {holder.describe()}"))
    return needed


def _seconds(text: str) -> float | None:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
