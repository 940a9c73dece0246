"""Which linked files are read back: by rows of the table, spread over the nights; what a draw finds."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from penstock.core.linked_reading import AHEAD, SAMPLE, LinkedReading, Share, at_most_95, share_due
from penstock.engine.reading.carried_rows import Turns

DAY = 86_400
NOW = 1_000 * DAY
WITHIN = 30 * DAY
OLD, MIDDLE, YOUNG = NOW - 20 * DAY, NOW - 10 * DAY, NOW - DAY


@pytest.mark.parametrize(
    ("ages", "last", "limit", "read"),
    [
        # what was read within ago or longer, or nobody knows when, is read whatever the limit is
        ({NOW - WITHIN: 100, YOUNG: 900}, NOW, 0, (100, 100, 0.0)),
        ({0: 100, NOW + AHEAD + 1: 50, YOUNG: 850}, NOW, 0, (150, 150, 0.0)),
        # of the others, oldest first, the share of `within` that has passed
        ({OLD: 500, MIDDLE: 500}, NOW - 3 * DAY, None, (100, 0, 0.01)),
        ({OLD: 50, MIDDLE: 950}, NOW - 3 * DAY, None, (100, 0, 0.01)),
        # what is overdue counts for that share
        ({NOW - WITHIN: 80, MIDDLE: 920}, NOW - 3 * DAY, None, (100, 80, 0.01)),
        ({NOW - WITHIN: 300, MIDDLE: 700}, NOW - 3 * DAY, None, (300, 300, 0.01)),
        # the limit leaves room for the sample first, and bounds that too
        ({OLD: 1000}, NOW - 3 * DAY, 60, (50, 0, 0.01)),
        ({OLD: 1000}, NOW - 3 * DAY, 10, (0, 0, 0.01)),
        ({OLD: 1000}, NOW - 3 * DAY, 5, (0, 0, 0.005)),
        # a release long after the one before reads all; one of the same second reads nothing early
        ({OLD: 500, MIDDLE: 500}, NOW - 40 * DAY, None, (1000, 0, 0.01)),
        ({OLD: 500, MIDDLE: 500}, NOW, None, (0, 0, 0.01)),
        ({}, NOW - DAY, None, (0, 0, 0.01)),
    ],
)
def test_what_is_due(
    ages: dict[int, int], last: float, limit: int | None, read: tuple[int, int, float]
) -> None:
    found = share_due(ages, NOW, last, WITHIN, limit, 0.01)
    assert (found.due_bytes, found.overdue_bytes, found.sample) == pytest.approx(read)


def rule_of(found: Share, now: float, salt: int = 0) -> LinkedReading:
    return LinkedReading(now, WITHIN, found.sample, found.until, found.share, salt)


def test_a_release_each_night_reads_a_thirtieth_each_night_and_none_is_older_than_within() -> None:
    began = {b"f%06d" % number: NOW for number in range(3000)}
    draw = random.Random(1)
    read = []
    for night in range(1, 91):
        now = NOW + night * DAY
        found = share_due(Counter(began.values()), now, now - DAY, WITHIN, None, 0.01)
        turns = Turns(rule_of(found, now, draw.getrandbits(62)))
        tonight = [path for path, at in began.items() if turns.of(path, at)]
        assert all(now - at <= WITHIN for at in began.values())
        began.update(dict.fromkeys(tonight, now))
        read.append(len(tonight))
    # A thirtieth is 100, and the sample some 30 of the others.
    assert all(60 < count < 220 for count in read), read
    assert 100 < sum(read) / len(read) < 160


def test_after_nights_without_a_release_the_next_one_reads_what_was_missed() -> None:
    ages = {NOW - 20 * DAY: 500, NOW - 12 * DAY: 500}
    found = share_due(ages, NOW, NOW - 12 * DAY, WITHIN, None, 0.01)
    assert found.due_bytes == 400


@pytest.mark.parametrize(("rotted", "probability"), [(1, 0.01), (69, 0.5), (300, 0.95)])
def test_s3_a_sample_finds_rotted_files_with_the_probability_that_is_stated(
    rotted: int, probability: float
) -> None:
    paths = [b"d%02d/f%06d" % (number % 7, number) for number in range(rotted)]
    salts, trials = random.Random(rotted), 1000
    found = 0
    for _ in range(trials):
        turns = Turns(LinkedReading(NOW, WITHIN, 0.01, salt=salts.getrandbits(62)))
        found += any(turns.of(path, YOUNG) == SAMPLE for path in paths)
    # Four standard deviations.
    spread = 4 * (probability * (1 - probability) / trials) ** 0.5
    assert abs(found / trials - probability) < spread + 0.005


@pytest.mark.parametrize(
    ("carried", "sampled", "most"),
    [(990_000, 10_000, 300), (99, 1, 99), (0, 0, None), (1000, 0, None), (0, 500, 0), (500, 500, 6)],
)
def test_s3_how_many_can_differ_when_the_sample_found_none(
    carried: int, sampled: int, most: int | None
) -> None:
    assert at_most_95(carried, sampled) == most
