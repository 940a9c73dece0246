"""Which releases of a dataset stay, and why: pure.

| the release                                                       | stays, since it is held by          |
|-------------------------------------------------------------------|-------------------------------------|
| is the one that `current` names                                   | `current`                           |
| is of a dataset whose `current` leads nowhere                     | `current`: nobody knows what it was |
| is pinned, the base of a run that has not ended, being audited    | that pin, run or audit              |
| is held by an administrator (`target.hold`)                       | HOLD                                |
| has a seal of a format that this version does not read            | newer                               |
| left `current` less than the grace ago                            | grace                               |
| is of a dataset without `retention`                               | no rule: gc removes what rules say  |
| is among the `last` ones, by when they were published             | last                                |
| was published `within` this time                                  | within                              |
| has a name of its own, and `named` is true                        | named                               |
| has no time of publication, by history and seal                   | unknown                             |
| else                                                              | nothing: gc removes it              |

`remove`, which names a release, asks the first six alone; `remove --all` those that `with_dataset` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.core import human

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from penstock.config.settings import RetentionConfig


class Known(NamedTuple):
    """What is known of one release. Times are in seconds since the epoch."""

    release: str
    published: float | None
    """When it was published last; None: not known."""
    left: float | None
    """When it left `current`; None: it is current, or `current` leads nowhere."""
    named: bool
    """Its name was configured, and not made of date and content."""
    held: Sequence[str] = ()
    """Pins, runs, audits and HOLD, and that a newer version sealed it, in words."""
    files: int = 0
    bytes: int = 0
    run: str = ""


class ReleaseDecision(NamedTuple):
    """What becomes of one release."""

    known: Known
    held_by: Sequence[str]
    """In words, each beginning with the name of the rule; none: it is removed."""


class Criteria(NamedTuple):
    """By what a command decides; the same before it has the dataset's lock and under it."""

    grace: float
    """Seconds for which a release stays after it left `current`."""
    rules: RetentionConfig | None = None
    """Those of gc; None: the dataset has none, and no release goes by itself."""
    names: Collection[str] | None = None
    """The releases that `remove` was given: it decides of them alone, and asks no rule. None: of all."""
    with_dataset: bool = False
    """All of the dataset is to go (`remove --all`)."""


def decide(
    criteria: Criteria, known: Sequence[Known], current: str | None, now: float
) -> list[ReleaseDecision]:
    """What becomes of each release that the command is about, in the order of `known`."""
    if criteria.with_dataset:
        return [with_dataset(release, current, criteria.grace, now) for release in known]
    if criteria.names is not None:
        named = [release for release in known if release.release in criteria.names]
        return [by_name(release, current, criteria.grace, now) for release in named]
    return by_rules(known, current, criteria.rules, criteria.grace, now)


def by_rules(
    known: Sequence[Known], current: str | None, rules: RetentionConfig | None, grace: float, now: float
) -> list[ReleaseDecision]:
    """What gc does with each, by the table, in the order of `known`. Of two that were published in the same
    second the later one in `known` is the newer one."""
    dated = [one for one in known if one.published is not None]
    ranked = [one.release for one in sorted(dated, key=lambda one: one.published or 0.0)][::-1]
    decisions = []
    for candidate in known:
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
    """What `remove` does with a release that it names."""
    return ReleaseDecision(candidate, _always(candidate, current, grace, now))


def with_dataset(candidate: Known, current: str | None, grace: float, now: float) -> ReleaseDecision:
    """What becomes of a release where all of its dataset is to go: neither `current` holds it, nor a run that
    has not ended and that nobody works on. `current` had readers until now: all of its grace is to come."""
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
