"""Decides which releases of a dataset stay, and why. It first reads the facts about them: when they were
published, when they left `current`, and who holds them.
"""

from __future__ import annotations

import contextlib
import os
import re
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import human
from penstock.core.dataset_documents import Publication
from penstock.core.errors import FailedError, NewerFormatError, PenstockError, PreflightError
from penstock.dataset import holder as holders
from penstock.dataset import pins, run_store, seals
from penstock.fs import capabilities, small_files
from penstock.jobs import dataset_state
from penstock.target import dataset_folders, notices

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Mapping, Sequence

    from penstock.config.settings import RetentionConfig
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.dataset.pins import ReleasePin
    from penstock.dataset.run_store import Move
    from penstock.target.notices import Hold


# Decides which releases of a dataset stay, and why.
#
# | a release                                                          | is kept by the rule                 |
# |--------------------------------------------------------------------|-------------------------------------|
# | that `current` names                                               | `current`                           |
# | whose dataset's `current` leads nowhere                            | `current`: its release is unknown   |
# | pinned, base of a run that has not ended, or being audited         | that pin, run or audit              |
# | held by an administrator (`target.notices`)                     | HOLD                                |
# | with a seal of a format that this version does not read            | newer                               |
# | that left `current` less than the grace ago                        | grace                               |
# | of a dataset without `retention`                                   | no rule: gc needs one               |
# | among the `last` published                                         | last                                |
# | published `within` this time                                       | within                              |
# | with a configured name, if `named` is true                         | named                               |
# | whose time of publication neither history nor seal states          | unknown                             |
# | any other                                                          | none: gc removes it                 |
#
# `remove` with names applies the first six rows. `remove --all` applies the rules of `with_dataset`.


class Known(NamedTuple):
    """The facts about one release. Times are in seconds since the epoch."""

    release: str
    published: float | None  # time of the last publication; None if unknown
    left: float | None  # time when it left `current`; None if it is current, or `current` leads nowhere
    named: bool  # whether the release's name was configured, and not made from date and content
    held: Sequence[str] = ()  # the release's holders in words: pins, runs, audits, HOLD, or a newer seal
    files: int = 0
    bytes: int = 0
    run: str = ""


class ReleaseDecision(NamedTuple):
    """The decision about one release."""

    facts: Known
    # reasons to keep the release, each beginning with the rule's name; if empty, the release is removed
    held_by: Sequence[str]


class Criteria(NamedTuple):
    """The criteria of a command's decision; they are the same before the dataset's lock is taken and under
    the lock."""

    grace: float  # seconds for which a release stays after it left `current`
    # gc's rules; None if the dataset has no rules, so that gc removes no release
    rules: RetentionConfig | None = None
    # names of releases given to `remove`, which applies no rules; None means all releases
    names: Collection[str] | None = None
    with_dataset: bool = False  # whether the whole dataset is to be removed (`remove --all`)


def decide(
    criteria: Criteria, releases: Sequence[Known], current: str | None, now: float
) -> list[ReleaseDecision]:
    """Decide about each release that the command concerns, in the order of `releases`."""
    if criteria.with_dataset:
        return [with_dataset(facts, current, criteria.grace, now) for facts in releases]
    if criteria.names is not None:
        named = [facts for facts in releases if facts.release in criteria.names]
        return [by_name(facts, current, criteria.grace, now) for facts in named]
    return by_rules(releases, current, criteria.rules, criteria.grace, now)


def by_rules(
    releases: Sequence[Known], current: str | None, rules: RetentionConfig | None, grace: float, now: float
) -> list[ReleaseDecision]:
    """Decide by gc's rules, in the order of `releases`. If two were published in the same second, the later
    one in `releases` is newer."""
    dated = [facts for facts in releases if facts.published is not None]
    ranked = [facts.release for facts in sorted(dated, key=lambda facts: facts.published or 0.0)][::-1]
    decisions = []
    for candidate in releases:
        held = _always(candidate, current, grace, now)
        if rules is None:
            held.append("no rule: the dataset has no `retention`")
        elif candidate.published is None:
            held.append("unknown: neither history nor seal says when it was published")
        else:
            rank = ranked.index(candidate.release) + 1
            if rules.last is not None and rank <= rules.last:
                held.append(f"last: {rank} of {rules.last}")
            age = now - candidate.published
            if rules.within is not None and age <= rules.within:
                held.append(f"within {human.duration(rules.within)}: published {_ago(age)}")
            if rules.named and candidate.named:
                held.append("named")
        decisions.append(ReleaseDecision(candidate, held))
    return decisions


def by_name(candidate: Known, current: str | None, grace: float, now: float) -> ReleaseDecision:
    """Decide about a release that `remove` names."""
    return ReleaseDecision(candidate, _always(candidate, current, grace, now))


def with_dataset(candidate: Known, current: str | None, grace: float, now: float) -> ReleaseDecision:
    """Decide about a release whose whole dataset is to be removed. The release is kept neither because it is
    current, nor by a run on which nobody works. A current release had readers until now, so it gets the full
    grace."""
    asked = candidate._replace(held=[words for words in candidate.held if not words.startswith("base: ")])
    held = [words for words in _always(asked, current or "", grace, now) if words != "current"]
    if candidate.release == current and grace:
        held.append(f"grace: `current` names it, and {human.duration(grace)} are waited for its readers")
    return ReleaseDecision(candidate, held)


def _always(candidate: Known, current: str | None, grace: float, now: float) -> list[str]:
    held = []
    if current is None:
        held.append("current: it leads to no release, so nobody knows which one is read")
    elif candidate.release == current:
        held.append("current")
    held += candidate.held
    if candidate.left is not None and now - candidate.left < grace:
        held.append(
            f"grace: it left `current` {_ago(now - candidate.left)}, {human.duration(grace)} are waited"
        )
    return held


def _ago(seconds: float) -> str:
    return f"{human.duration(max(0.0, seconds))} ago"


# Reads the facts about a dataset's releases, for gc and remove.
#
# Holders of a release are a reader's pin, a run that links files, an audit, a repair and an administrator's
# HOLD. The scheduler says whether a pin's job has ended. Reading changes nothing, but touches folders to
# learn the file system's clock.

_MADE = re.compile(r"[0-9]{8}-[0-9a-f]{8}(\.[0-9]+)?")  # pattern of a name made by `release: auto`
# Seconds by which `current` may be younger than the history's last line, since clocks of nodes and servers
# differ. If `current` is even younger, somebody moved it by hand.
BY_HAND = 300.0
STILL = 3600.0  # seconds without a heartbeat after which an audit, repair or `gate --mend` holds no release


class ReleaseSnapshot(NamedTuple):
    """A dataset at one moment."""

    # name of the current release; None if the link `current` is missing or leads to no release
    current: str | None
    # the releases, oldest publication first; releases whose time is unknown come before these, sorted by name
    releases: Sequence[Known]
    ended: Mapping[str, str]  # {name of an ended pin, or of a file that is no pin: reason}
    now: float  # time of the snapshot: seconds since the epoch by the file system's clock

    def decide(self, criteria: Criteria) -> list[ReleaseDecision]:
        return decide(criteria, self.releases, self.current, self.now)


def take(context: Context, layout: DatasetLayout, unpinned: Container[str] = ()) -> ReleaseSnapshot:
    """Read the dataset's releases and their holders. Pins in `unpinned` are ignored. Raises PreflightError if
    pins or HOLD cannot be read, FindingsError if the dataset's folders are damaged, and as
    `dataset_folders.current`, `run_store.moves` and `capabilities.checked`."""
    current = dataset_folders.current(layout) if dataset_folders.leads(layout) else None
    moves = run_store.moves(layout)
    now = capabilities.checked(layout.releases)
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
    # The history has whole seconds. Within a second, the order of its lines says which release is newer.
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
    """Return who holds a release marked for removal: pins, a run, an audit, HOLD. Raises PreflightError if
    pins or HOLD cannot be read, FindingsError if the dataset's folders are damaged, and as
    `capabilities.checked`."""
    now = capabilities.checked(layout.releases)
    scheduler = partial(dataset_state.scheduler, context)
    longest = context.config.gc.longest_pin
    all_pins = pins.read_strictly(layout)
    placed = pins.standing(all_pins, now, longest, scheduler).get(release, [])
    in_use = [words for name, words in _in_use(layout) if name == release]
    return [*pins.words(placed), *in_use, *_words(_by_administrators(layout), release)]


def _by_administrators(layout: DatasetLayout) -> list[Hold]:
    """Read the administrators' holds. Raises PreflightError if unreadable: held releases are evidence."""
    try:
        return notices.of_dataset(layout)
    except OSError as error:
        raise PreflightError(
            "whether a release is held is not known",
            where=str(layout.root / notices.HOLD_NAME),
            why=str(error.strerror),
            hint="see whether the file system is mounted and answers",
        ) from None


def _words(holds: Sequence[Hold], release: str) -> list[str]:
    """Describe the first hold on the release."""
    return [f"{notices.HOLD_NAME}: {held}" for held in holds if held.covers(release)][:1]


def grace(context: Context) -> float:
    """Return the seconds for which a release stays after it left `current`. That is `gc.grace`, or the
    longest time limit of the cluster's partitions, if longer. Partitions without a limit and unresponsive
    clusters do not count."""
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
    """Return the latest time at which a release left `current`, in seconds since the epoch. `linked`: the
    time at which the present link was made.

    | the history                                              | it left                                  |
    |----------------------------------------------------------|------------------------------------------|
    | names a release that followed it                         | when the last such release followed      |
    | ends with it, or never names it                          | when the present link was made           |
    | is older than the present link, which was moved by hand  | when the present link was made           |
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
    """Return when the link `current` was made, in seconds since the epoch; if unknown, the present time."""
    try:
        return os.lstat(layout.current).st_mtime
    except OSError:
        return capabilities.now(layout.releases)


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
            age = capabilities.now(layout.state) - lock.stat().st_mtime
            if holder is not None and holder.run and holders.lives(holder) is not False and age < STILL:
                needed.append((holder.run, f"{holder.command}: {holder.describe()}"))
    return needed


def _seconds(text: str) -> float | None:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
