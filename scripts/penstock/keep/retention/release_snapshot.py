"""What gc and remove know of a dataset's releases before they decide: when they were published, when they
left `current`, and who holds them.

A reader's pin, a run that links files, an audit, a repair and an administrator's HOLD keep a release. The
scheduler says whether a pin's job has ended. Nothing is changed, but folders are touched for the file
system's clock.
"""

from __future__ import annotations

import contextlib
import os
import re
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.dataset_documents import Publication
from penstock.core.errors import FailedError, NewerFormatError, PenstockError, PreflightError
from penstock.dataset import holder as holders
from penstock.dataset import pins, run_store, seals
from penstock.fs import clock, small_files
from penstock.jobs import dataset_state
from penstock.keep.retention import decision
from penstock.keep.retention.decision import Known
from penstock.target import dataset_folders, hold

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.dataset.pins import ReleasePin
    from penstock.dataset.run_store import Move
    from penstock.keep.retention.decision import Criteria, ReleaseDecision
    from penstock.target.hold import Hold

_MADE = re.compile(r"[0-9]{8}-[0-9a-f]{8}(\.[0-9]+)?")  # a name made by `release: auto`
# Seconds by which `current` may be younger than the history's last line before somebody must have moved it by
# hand: clocks of nodes and servers differ.
BY_HAND = 300.0
STILL = 3600.0  # seconds without a heartbeat after which an audit, repair or `gate --mend` holds nothing


class ReleaseSnapshot(NamedTuple):
    """A dataset at one moment."""

    current: str | None  # None: the link `current` is missing or leads to no release
    releases: Sequence[Known]  # oldest publication first; before them, by name, those without a known time
    ended: Mapping[str, str]  # the names of ended pins and strays, with the reason
    now: float  # when it was taken: seconds since the epoch by the file system's clock

    def decide(self, criteria: Criteria) -> list[ReleaseDecision]:
        return decision.decide(criteria, self.releases, self.current, self.now)


def take(context: Context, layout: DatasetLayout, unpinned: Container[str] = ()) -> ReleaseSnapshot:
    """Read the dataset's releases and their holders. Pins named in `unpinned` hold nothing. Raises
    PreflightError if pins or HOLD cannot be read, FindingsError if the dataset's folders are damaged, and as
    `dataset_folders.current`, `run_store.moves` and `clock.checked`."""
    current = dataset_folders.current(layout) if dataset_folders.leads(layout) else None
    moves = run_store.moves(layout)
    now = clock.checked(layout.releases)
    pinned: dict[str, list[ReleasePin]] = {}
    ended: dict[str, str] = {}
    scheduler = partial(dataset_state.scheduler, context)
    all_pins = pins.read_strictly(layout)
    ended |= dict.fromkeys(pins.strays(layout, {pin.name for pin in all_pins}, now), "it is no pin")
    for pin in all_pins:
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
    # The history has whole seconds: within one, its order says which release is newer.
    place = {move.release: number for number, move in enumerate(moves) if isinstance(move, Publication)}
    releases = sorted(
        (
            _known(layout, name, current, moves, linked, held.get(name, []))
            for name in dataset_folders.releases(layout)
        ),
        key=lambda facts: (facts.published or 0.0, place.get(facts.release, -1), facts.release),
    )
    return ReleaseSnapshot(current, releases, ended, now)


def holders_now(context: Context, layout: DatasetLayout, release: str) -> list[str]:
    """Say who holds a release marked for removal: pins, a run, an audit, HOLD. Raises PreflightError if pins
    or HOLD cannot be read, FindingsError if the dataset's folders are damaged, and as `clock.checked`."""
    now = clock.checked(layout.releases)
    scheduler = partial(dataset_state.scheduler, context)
    longest = context.config.gc.longest_pin
    all_pins = pins.read_strictly(layout)
    placed = pins.standing(all_pins, now, longest, scheduler).get(release, [])
    in_use = [words for name, words in _in_use(layout) if name == release]
    return [*pins.words(placed), *in_use, *_words(_by_administrators(layout), release)]


def _by_administrators(layout: DatasetLayout) -> list[Hold]:
    """Read the administrators' holds. Raises PreflightError if they cannot be read: held releases are
    evidence."""
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
    """Describe the first hold on the release."""
    return [f"{hold.NAME}: {held}" for held in holds if held.covers(release)][:1]


def grace(context: Context) -> float:
    """Return the seconds for which a release stays after it left `current`. That is `gc.grace`, or the
    longest time limit of the cluster's partitions, if longer. Partitions without a limit and clusters that do
    not answer do not count."""
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
    # An unreadable seal does not keep a release from being removed.
    try:
        stored = seals.find(layout, release)
    except NewerFormatError as error:
        newer = f"newer: a newer penstock sealed it, and is needed to remove it: {error.why}"
    except FailedError:
        pass
    seal = stored.seal if stored else None
    publications = [line for line in moves if isinstance(line, Publication) and line.release == release]
    times = [_seconds(line.at) for line in publications]
    published = max((time for time in times if time is not None), default=None)
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
    """Return the latest time at which a release left `current`, in seconds since the epoch.

    `linked` is when the present link was made.

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
        return max([linked, *(time for time in times if time is not None)])
    return max(time for time in times if time is not None)


def _link_made(layout: DatasetLayout) -> float:
    """Return when the link `current` was made, in seconds since the epoch; now if unknown."""
    try:
        return os.lstat(layout.current).st_mtime
    except OSError:
        return clock.now(layout.releases)


def _in_use(layout: DatasetLayout) -> list[tuple[str, str]]:
    """Return the releases that a run, repair or audit needs, with the holder in words."""
    needed = []
    with contextlib.suppress(PreflightError, FailedError):
        run = run_store.open_run(layout)
        if run.folder.plan.exists() and seals.of_run(run) is None and run.plan.base:
            needed.append((run.plan.base, f"base: run {run.id}, which has not ended, links from it"))
    # `gate --mend` holds gate.lock through both of its steps.
    for name in ("audit.lock", "gate.lock"):
        lock = layout.state / name
        with contextlib.suppress(OSError):
            holder = holders.parse(small_files.read(lock))
            age = clock.now(layout.state) - lock.stat().st_mtime
            if holder is not None and holder.run and holders.lives(holder) is not False and age < STILL:
                needed.append((holder.run, f"{holder.command}: {holder.describe()}"))
    return needed


def _seconds(text: str) -> float | None:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
