"""Which releases stay, and why: the table of `keep.retention_decision`; and when a release left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.config.settings import RetentionConfig
from penstock.core.dataset_documents import Publication, Rollback
from penstock.keep.retention_decision import Known, by_name, by_rules, left_at

if TYPE_CHECKING:
    from penstock.dataset.run_store import Move

NOW, DAY = 1_800_000_000.0, 86400.0
GRACE = 14 * DAY
NONE = RetentionConfig(named=False)


def known(name: str, published: float | None = 100, left: float | None = 50, **more: object) -> Known:
    """Ages in days."""
    when = None if published is None else NOW - published * DAY
    gone = None if left is None else NOW - left * DAY
    return Known(name, when, gone, more.pop("named", False), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "current", "rules", "held"),
    [
        (known("A", left=None), "A", NONE, ["current"]),
        (known("A"), None, NONE, ["current: it leads to no release, so nobody knows which one is read"]),
        (known("A", held=("pin x",)), "B", NONE, ["pin x"]),
        (known("A", left=3), "B", NONE, ["grace: it left `current` 3 d 00 h ago, 14 d 00 h are waited"]),
        (known("A", left=14), "B", NONE, []),
        (known("A"), "B", None, ["no rule: the dataset has no `retention`"]),
        (known("A"), "B", RetentionConfig(last=1, named=False), ["last: 1 of 1"]),
        (
            known("A", published=80),
            "B",
            RetentionConfig(within=90 * DAY, named=False),
            ["within 90 d 00 h: published 80 d 00 h ago"],
        ),
        (known("A", published=91), "B", RetentionConfig(within=90 * DAY, named=False), []),
        (known("A", named=True), "B", RetentionConfig(), ["named"]),
        (known("A", named=True), "B", NONE, []),
        (known("A"), "B", RetentionConfig(), []),
        (
            known("A", published=None),
            "B",
            NONE,
            ["unknown: neither history nor seal says when it was published"],
        ),
        (known("A"), "B", NONE, []),
    ],
)
def test_each_rule_of_the_table(
    one: Known, current: str | None, rules: RetentionConfig | None, held: list[str]
) -> None:
    assert list(by_rules([one], current, rules, GRACE, NOW)[0].held_by) == held


def test_what_any_of_the_rules_holds_stays_and_all_of_them_are_named() -> None:
    some = [known(f"r{day}", published=day, left=day - 1) for day in (1, 20, 40, 80, 120)]
    some.append(known("v1", published=300, left=200, named=True))
    rules = RetentionConfig(last=2, within=60 * DAY)
    found = {
        one.facts.release: [why.split(":")[0] for why in one.held_by]
        for one in by_rules(some, "r1", rules, GRACE, NOW)
    }
    assert found == {
        "r1": ["current", "grace", "last", "within 60 d 00 h"],
        "r20": ["last", "within 60 d 00 h"],
        "r40": ["within 60 d 00 h"],
        "r80": [],
        "r120": [],
        "v1": ["named"],
    }


def test_the_last_ones_are_counted_by_publication_and_not_by_name() -> None:
    some = [known("c", published=30), known("a", published=10), known("b", published=20)]
    found = by_rules(some, "x", RetentionConfig(last=2, named=False), GRACE, NOW)
    assert [(one.facts.release, bool(one.held_by)) for one in found] == [
        ("c", False),
        ("a", True),
        ("b", True),
    ]


@pytest.mark.parametrize(
    ("one", "current", "grace", "held"),
    [
        (known("A", left=None), "A", GRACE, 1),
        (known("A", held=("pin",)), "B", GRACE, 1),
        (known("A", left=1), "B", GRACE, 1),
        (known("A", left=1), "B", 0.0, 0),
        (known("A", published=1, left=20, named=True), "B", GRACE, 0),
    ],
)
def test_a_removal_by_name_asks_no_rule(one: Known, current: str, grace: float, held: int) -> None:
    assert len(by_name(one, current, grace, NOW).held_by) == held


def at(hour: int) -> str:
    return f"2026-01-01T{hour:02d}:00:00Z"


START = 1767225600.0
HOUR = 3600.0


def moves(text: str) -> list[Move]:
    """`pA1`: A was published at one o'clock; `rA2`: led back to A at two; `pA1/B`: it was B before."""
    found: list[Move] = []
    for one in text.split():
        said, _, before = one.partition("/")
        if said[0] == "p":
            found.append(Publication(release=said[1], at=at(int(said[2:])), previous=before or None))
        else:
            found.append(Rollback(release=said[1], at=at(int(said[2:])), left=before))
    return found


@pytest.mark.parametrize(
    ("history", "linked", "hour"),
    [
        ("pA1 pB2/A pC3/B", 3, 2),
        ("pA1 pB2 pC3", 3, 2),
        ("pA1 pB2/A rA3/B rB4/A", 4, 4),
        ("pA1 pB2/A rA3/B pC5/A", 5, 5),
        ("pB2 pC3/B", 3, 3),  # A was never named
        ("pA1 pB2/A", 9, 9),  # the link was made by hand since
        ("pB1 pA2/B", 9, 9),  # the history ends with it, and it is not current
        ("", 7, 7),
    ],
)
def test_when_a_release_left(history: str, linked: int, hour: int) -> None:
    assert left_at(moves(history), "A", START + linked * HOUR) == START + hour * HOUR
