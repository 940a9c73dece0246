from __future__ import annotations

import random

import pytest
from tests.bandwidth.model import Process, World

from penstock.jobs.bandwidth import holder, slots
from penstock.jobs.bandwidth.holder import Make, Operation, ReadFile, Rename
from penstock.jobs.bandwidth.slots import ABANDONED, LEASE, SLOTS, VALID, parse_taken, taken_name


@pytest.mark.parametrize("late", [0.0, 2.0, 60.0])
@pytest.mark.parametrize("seed", range(4))
def test_s25_no_slot_has_two_users_whatever_hangs_dies_or_is_seen_late(seed: int, late: float) -> None:
    """Z1: holders come, go, hang for minutes and die, orders take effect after their process has ended, and
    every entry of a listing may be as old as NFS shows one: the shares in use never sum up to more than the
    cap."""
    world, chance = World(seed, late=late, hangs=0.02), random.Random(seed)
    _stir(world, chance, 1800.0)
    world.run(1800.0)
    assert world.overlaps == []
    assert len(world.processes) >= 6


def _overlaps(seed: int) -> bool:
    """Whether a slot has two users within an hour: not looked at further once it had."""
    world = World(seed, late=60.0, hangs=0.02)
    _stir(world, random.Random(seed), 3600.0)
    for second in range(60, 3601, 60):
        world.run(float(second))
        if world.overlaps:
            return True
    return False


def test_the_model_finds_two_users_where_a_lease_is_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with a take-over after half of VALID: what the test above would find."""
    monkeypatch.setattr(slots, "ABANDONED", VALID / 2)
    assert any(_overlaps(seed) for seed in range(6))


def test_the_model_finds_two_users_where_generations_are_removed_too_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.bandwidth.model.KEPT", 0.0)
    assert any(_overlaps(seed) for seed in range(12))


@pytest.mark.parametrize(("follows", "overlap"), [(0.9 * holder.SETTLE, False), (5.0, True)])
def test_z1_slots_are_given_back_after_the_workers_followed(follows: float, overlap: bool) -> None:
    """Workers that follow later than the holder waits would use slots that others have: the model sees it."""
    world = World(1, follows=follows)
    world.join()
    world.run(60.0)
    world.join()
    world.run(120.0)
    assert bool(world.overlaps) is overlap


@pytest.mark.parametrize("beats", [False, True])
def test_z1_slots_whose_files_somebody_removed_have_two_users_for_a_look_at_most(beats: bool) -> None:
    """A purge of old files takes the slots' files away, or all: whoever comes makes them anew."""
    world = World(1, late=2.0)
    first = world.join()
    world.run(200.0)
    for name in list(world.folder.files):
        if parse_taken(name) or beats:
            world.folder.remove(name, world.now)
    second = world.join()
    world.run(230.0)
    assert world.overlaps
    world.overlaps.clear()
    world.run(900.0)
    assert world.overlaps == []
    assert len(world.used(first)) == len(world.used(second)) == SLOTS // 2
    world.leave(first)
    world.leave(second)
    world.run(960.0)
    third = world.join()
    world.run(1200.0)
    assert len(world.used(third)) == SLOTS
    assert world.overlaps == []


def test_a_slot_that_another_took_over_is_used_no_more() -> None:
    """At the next look, however new it is."""
    world = World(1)
    first = world.join()
    world.run(4.0)
    assert 7 in world.used(first)
    for generation in (5, 6):
        world.folder.make(taken_name(7, generation), b"other", world.now)
    world.run(4.0 + 2 * holder.PAUSE + holder.SETTLE)
    assert 7 not in world.used(first)
    assert len(world.used(first)) == SLOTS - 1


@pytest.mark.parametrize("seconds", [0.3, 0.7, 1.0, 2.0])
def test_z1_a_file_system_that_makes_files_slowly_takes_longer_and_no_share_is_lost(seconds: float) -> None:
    world = World(1)
    world.takes = lambda operation: seconds if isinstance(operation, Make) else 0.01
    one = world.join()
    world.run(SLOTS * seconds * 1.5 + 60.0)
    assert len(world.used(one)) == SLOTS
    world.run(world.now + 300.0)
    names = [name for name in world.folder.files if world.folder.there(name, world.now)]
    assert len(names) == SLOTS + 1


@pytest.mark.parametrize("seconds", [0.5, 1.7, 2.0])
def test_z1_a_dead_holders_share_is_taken_over_where_every_order_takes_seconds(seconds: float) -> None:
    world = World(1)
    first, second = world.join(), world.join()
    world.run(200.0)
    world.takes = lambda _: seconds
    world.run(260.0)
    world.kill(second)
    world.run(260.0 + 4 * ABANDONED)
    assert len(world.used(first)) == SLOTS
    assert world.overlaps == []


def test_z1_who_cannot_begin_leaves_nothing_that_takes_a_share_of_the_others() -> None:
    """Over a quota of blocks a file can be made, and its content cannot be written."""
    world = World(1)
    full, well, gone = world.join(), world.join(), world.join()
    world.run(100.0)
    world.fails = lambda process, operation: process is full and isinstance(operation, Make)
    world.leave(gone)
    world.run(500.0)
    assert world.beats() == 2
    assert len(world.used(well)) >= SLOTS // 2
    world.leave(full)
    world.run(800.0)
    assert world.beats() == 1
    assert len(world.used(well)) == SLOTS
    assert world.overlaps == []


def test_a_beat_whose_renaming_came_to_an_end_late_leaves_no_second_name() -> None:
    world = World(1)
    first, second = world.join(), world.join()
    world.run(100.0)
    hung: list[Operation] = []

    def takes(operation: Operation) -> float:
        if isinstance(operation, Rename) and not hung:
            hung.append(operation)
            return 40.0
        return 0.01

    world.takes = takes
    world.run(200.0)
    assert hung
    assert world.beats() == 2
    assert len(world.used(first)) == len(world.used(second)) == SLOTS // 2


def test_s25_a_name_that_cannot_be_read_stops_nobody() -> None:
    """Anybody may make a folder, or a file of mode 0, in `slots`."""
    world = World(1, local=True)
    world.folder.make("beat.0123456789abcdef.1.0.60", b"", 0.0)
    world.fails = lambda _, operation: isinstance(operation, ReadFile)
    one = world.join()
    world.run(400.0)
    assert len(world.used(one)) == SLOTS
    assert len(world.processes) == 1
    assert one.holder.trouble == ""


def test_s25_a_link_that_is_busy_for_hours_keeps_a_few_names() -> None:
    """Each slot changes hands more often than its files are kept."""
    world = World(2)

    def come() -> None:
        one = world.join()
        world.at(world.now + 80.0, lambda: world.leave(one))
        world.at(world.now + 83.0, come)

    for place in range(4):
        world.at(place * 20.0, come)
    counts = []
    for minute in range(10, 70, 10):
        world.run(60.0 * minute)
        counts.append(sum(world.folder.there(name, world.now) is not None for name in world.folder.files))
    assert max(counts) < 2 * counts[0]
    assert world.overlaps == []


def _stir(world: World, chance: random.Random, until: float) -> None:
    """Up to four at a time join, leave and die, at any moment."""

    def once() -> None:
        running = [one for one in world.processes if not one.ended and not one.closing]
        if len(running) < 2 or (len(running) < 4 and chance.random() < 0.6):
            world.join(most=chance.choice([SLOTS, SLOTS, 10]))
        else:
            (world.kill if chance.random() < 0.5 else world.leave)(chance.choice(running))
        when = world.now + chance.expovariate(1 / 60)
        if when < until:
            world.at(when, once)

    world.at(0.0, once)


@pytest.mark.parametrize("late", [0.0, 2.0])
@pytest.mark.parametrize("number", [1, 2, 4, 7])
def test_z1_all_slots_are_used_soon_in_equal_shares(number: int, late: float) -> None:
    world = World(number, late=late)
    for place in range(number):
        world.at(place * 0.3, lambda: world.join() and None)
    world.run(60.0)
    assert world.overlaps == []
    assert world.total() == SLOTS
    assert {len(world.used(one)) for one in world.processes} <= {SLOTS // number, -(-SLOTS // number)}


def test_who_comes_gets_its_share_within_twenty_seconds() -> None:
    world = World(1, late=2.0)
    first = world.join()
    world.run(30.0)
    assert len(world.used(first)) == SLOTS
    second = world.join()
    world.run(50.0)
    assert len(world.used(first)) == len(world.used(second)) == SLOTS // 2


def test_what_one_cannot_use_the_others_get() -> None:
    world = World(1)
    small, one, other = world.join(most=6), world.join(), world.join()
    world.run(60.0)
    assert [len(world.used(each)) for each in (small, one, other)] == [6, 27, 27]


def test_z1_a_holder_that_died_elsewhere_loses_its_share_after_two_leases() -> None:
    world = World(1, late=2.0)
    first, second = world.join(), world.join()
    world.run(120.0)
    world.kill(second)
    world.run(120.0 + ABANDONED - LEASE / 2)
    assert len(world.used(first)) == SLOTS // 2
    world.run(120.0 + ABANDONED + LEASE / 2)
    assert len(world.used(first)) == SLOTS
    assert world.overlaps == []


def test_z1_a_process_that_died_on_this_machine_loses_its_share_within_the_lease() -> None:
    world = World(1, late=2.0, local=True)
    first, second = world.join(), world.join()
    world.run(120.0)
    world.kill(second)
    world.run(120.0 + LEASE / 2)
    assert len(world.used(first)) == SLOTS
    assert world.overlaps == []


@pytest.mark.parametrize("late", [2.0, 15.0])
def test_z1_who_died_is_known_to_all_others_also_where_its_beat_was_renamed_before_it_was_read(
    late: float,
) -> None:
    """A listing that is late names a beat that has another name by now."""
    for seed in range(6):
        world = World(seed, late=late, local=True)
        processes = [world.join() for _ in range(4)]
        world.run(200.0)
        world.kill(processes[seed % 4])
        world.run(200.0 + LEASE)
        assert sorted(len(world.used(one)) for one in processes) == [0, 20, 20, 20], seed
        assert world.overlaps == []


def test_s25_a_holder_whose_orders_hang_stops_within_half_a_lease() -> None:
    world = World(1)
    one = world.join()
    world.run(100.0)
    began = world.now
    world.hangs = 1.0
    world.chance.seed(2)
    stopped: list[float] = []
    world.watch = lambda: stopped.append(world.now) if not world.used(one) and not stopped else None
    for second in range(100):
        world.at(began + second, lambda: None)
    world.run(began + 100.0)
    assert stopped[0] - began <= VALID + holder.PAUSE


def test_s25_a_holder_makes_an_operation_in_five_seconds_in_rest() -> None:
    world = World(1, late=2.0)
    processes: list[Process] = [world.join() for _ in range(4)]
    world.run(300.0)
    before = [one.operations for one in processes]
    world.run(900.0)
    # Clocks go wrong by up to 2 %.
    assert all(one.operations - n <= 1.02 * 600 / 5 for one, n in zip(processes, before, strict=True))
    assert world.overlaps == []


def test_more_holders_than_slots_wait_for_one_that_ends() -> None:
    world = World(3)
    for _ in range(SLOTS + 2):
        world.join()
    world.run(200.0)
    assert world.total() == SLOTS
    waiting = [one for one in world.processes if not world.used(one)]
    assert len(waiting) == 2
    world.leave(next(one for one in world.processes if world.used(one)))
    world.run(260.0)
    assert world.total() == SLOTS


def test_who_leaves_leaves_nothing_behind_but_names() -> None:
    world = World(1)
    one = world.join()
    world.run(30.0)
    world.leave(one)
    world.run(60.0)
    assert world.beats() == 0
    seen = slots.parse([name for name in world.folder.files if world.folder.there(name, world.now)])
    assert len(seen.free) == SLOTS
