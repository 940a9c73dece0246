"""Decides which releases of a dataset stay, and why.

| a release                                                          | is kept by                          |
|--------------------------------------------------------------------|-------------------------------------|
| that `current` names                                               | `current`                           |
| whose dataset's `current` leads nowhere                            | `current`: nobody knows what it was |
| pinned, base of a run that has not ended, or being audited         | that pin, run or audit              |
| held by an administrator (`target.hold`)                           | HOLD                                |
| with a seal of a format that this version does not read            | newer                               |
| that left `current` less than the grace ago                        | grace                               |
| of a dataset without `retention`                                   | no rule: gc needs one               |
| among the `last` published                                         | last                                |
| published `within` this time                                       | within                              |
| with a configured name, if `named` is true                         | named                               |
| whose time of publication neither history nor seal states          | unknown                             |
| any other                                                          | nothing: gc removes it              |

`remove` with names applies the first six rows; `remove --all` those in `with_dataset`.
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
    published: float | None  # last publication; None: unknown
    left: float | None  # when it left `current`; None: it is current, or `current` leads nowhere
    named: bool  # its name was configured, not made of date and content
    held: Sequence[str] = ()  # pins, runs, audits, HOLD, or a newer seal, in words
    files: int = 0
    bytes: int = 0
    run: str = ""


class ReleaseDecision(NamedTuple):
    """What becomes of one release."""

    facts: Known
    held_by: Sequence[str]  # reasons that begin with the rule's name; none: it is removed


class Criteria(NamedTuple):
    """What a command decides by, the same before and under the dataset's lock."""

    grace: float  # seconds for which a release stays after it left `current`
    rules: RetentionConfig | None = None  # of gc; None: the dataset has none, and gc removes no release
    names: Collection[str] | None = None  # releases named to `remove`, which applies no rule; None: all
    with_dataset: bool = False  # the whole dataset is to go (`remove --all`)


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
    """Decide by gc's rules, in the order of `releases`. Of two published in the same second, the later in
    `releases` is newer."""
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
    """Decide about a release named to `remove`."""
    return ReleaseDecision(candidate, _always(candidate, current, grace, now))


def with_dataset(candidate: Known, current: str | None, grace: float, now: float) -> ReleaseDecision:
    """Decide about a release whose whole dataset is to go. `current` does not hold it, nor does a run that
    nobody works on. A current release had readers until now, so it gets the full grace."""
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
