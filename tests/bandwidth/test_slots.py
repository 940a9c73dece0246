from __future__ import annotations

import random

import pytest

from penstock.jobs.bandwidth.slots import (
    ABANDONED,
    BLIND,
    SLOTS,
    Beat,
    Memory,
    Move,
    divided,
    move,
    parse,
    superseded,
)

ONE, TWO, THREE = "1" * 16, "2" * 16, "3" * 16


def beat(holder: str, number: int, slots: range | list[int], most: int = SLOTS) -> Beat:
    return Beat(holder, number, frozenset(slots), most)


def test_a_beat_is_its_name() -> None:
    for one in (beat(ONE, 0, []), beat(TWO, 12, [0, 59], 7), beat(THREE, 10**6, range(SLOTS))):
        assert parse([one.name]).beats == {one.holder: one}
        assert len(one.name) < 64


def test_names_that_mean_nothing_are_passed_over() -> None:
    seen = parse(["60.1", "1.1", "00.1.freed", "00.x", "beat.1.1.1.1", ".00.1.tmp", "README"])
    assert seen == ({}, {}, set())


def test_the_highest_generation_counts_and_the_last_beat() -> None:
    names = ["07.2", "07.1", "07.1.free", "08.3", "08.3.free", "09.4.free"]
    names += [beat(ONE, 4, [1]).name, beat(ONE, 5, [2]).name]
    seen = parse(names)
    assert seen.generations == {7: 2, 8: 3}
    assert seen.free == {8}
    assert seen.beats[ONE].slots == {2}


def test_generations_below_an_old_one_are_superseded_however_new_the_last_one_is() -> None:
    names = ["00.3", "00.3.free", "00.4", "00.4.free", "00.5", "01.7", "01.8", "02.1", "02.2.free", "cap"]
    old = {"00.3", "00.4", "01.7", "01.8", "02.1"}
    assert list(superseded(names, old.__contains__)) == ["00.3", "00.3.free", "01.7"]
    assert list(superseded(names, lambda _: False)) == []
    asked: list[str] = []
    assert list(superseded([f"09.{n}" for n in range(1, 1001)], lambda name: bool(asked.append(name)))) == []
    assert len(asked) <= 11


@pytest.mark.parametrize(
    ("names", "later", "opened"),
    [
        ([], [], True),
        (["00.1", "00.1.free"], [], True),
        (["00.1", beat(ONE, 1, [0]).name], ["00.1", beat(ONE, 1, [0]).name], True),
        (["00.1"], ["00.1"], True),
        (["00.1", beat(ONE, 1, [0]).name], ["00.1", beat(ONE, 2, [0]).name], False),
        (["00.1", beat(ONE, 1, []).name], ["00.1", beat(ONE, 2, []).name], True),
        (["00.1", beat(ONE, 1, [0]).name], ["00.2", beat(ONE, 1, [0]).name], False),
    ],
)
def test_s25_the_table_of_slots_that_may_be_taken(names: list[str], later: list[str], opened: bool) -> None:
    """`later` is what a look shows after ABANDONED."""
    memory = Memory()
    memory.look(parse(names), 0.0)
    for second in range(10, int(ABANDONED), 10):
        memory.look(parse(names), float(second))
        assert (0 in memory.open(parse(names), float(second))) == (not names or "00.1.free" in names)
    now = parse(later or names)
    memory.look(now, ABANDONED)
    assert (0 in memory.open(now, ABANDONED)) == opened


def test_s25_who_did_not_look_has_not_seen_that_nothing_moved() -> None:
    seen, memory = parse(["00.1", beat(ONE, 1, [0]).name]), Memory()
    memory.look(seen, 0.0)
    for second in range(10, int(ABANDONED - BLIND), 10):
        memory.look(seen, float(second))
    memory.look(seen, ABANDONED + 1)
    assert 0 not in memory.open(seen, ABANDONED + 1)


def test_slots_are_divided_evenly_and_none_is_left_over() -> None:
    assert divided({}) == {}
    assert divided({ONE: 60}) == {ONE: 60}
    assert divided({ONE: 60, TWO: 60, THREE: 60}, 8) == {ONE: 2, TWO: 3, THREE: 3}
    assert divided({ONE: 60, TWO: 4, THREE: 60}) == {ONE: 28, TWO: 4, THREE: 28}
    assert divided({ONE: 3, TWO: 4}) == {ONE: 3, TWO: 4}
    chance = random.Random(1)
    for _ in range(200):
        most = {f"{n:016x}": chance.randint(1, 60) for n in range(chance.randint(1, 90))}
        share = divided(most)
        assert sum(share.values()) == min(SLOTS, sum(most.values()))
        assert all(0 <= share[one] <= most[one] for one in most)
        largest = max(share.values())
        assert all(largest - share[one] <= 1 for one in most if share[one] < most[one])


@pytest.mark.parametrize(
    ("held", "others", "opened", "then"),
    [
        (10, [beat(TWO, 1, range(30))], 20, Move(take=20)),
        (10, [beat(TWO, 1, range(30))], 5, Move(take=5)),
        (60, [beat(TWO, 1, [])], 0, Move(give=30)),
        (40, [beat(TWO, 1, range(15))], 5, Move(give=10)),
        (40, [beat(TWO, 1, range(15))], 20, Move()),
        (40, [beat(TWO, 1, range(20), 20)], 0, Move()),
        (30, [beat(TWO, 1, range(30))], 0, Move()),
        (1, [beat(f"{n:016x}", 1, [n] if n < 59 else []) for n in range(70)], 0, Move()),
    ],
)
def test_the_table_of_moves(held: int, others: list[Beat], opened: int, then: Move) -> None:
    living = {one.holder: one for one in others}
    assert move(ONE, held, living, SLOTS, opened) == then
