"""A run that is frozen on one node and overtaken on another one, where each node has a cache of its own: of
bytes, of names, and of names that are not there."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.faults.test_overtaken import BETWEEN, HEARTBEAT, WITHIN, MissedError, Place, overtaken
from tests.filesystems.bed import Bed

from penstock.dataset import dataset_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.nodes import Node

FEW = ("has revealed", pytest.param("keeps a journal", marks=pytest.mark.thorough))


@contextlib.contextmanager
def place_on(tmp_path_factory: pytest.TempPathFactory, named: str) -> Iterator[Place]:
    # A heartbeat of tests is shorter than a second, the grain of times of some sets.
    with Bed(named=named, nodes=3, time_grain=1) as bed:
        seen = bed.nodes[0]
        place = Place(
            tmp_path_factory.mktemp("overtaken"),
            target=seen / "target",
            stored=bed.store / "target",
            mounted={name: (bed.nodes[i], seen) for i, name in enumerate(("nodez", "nodea", "nodeb"))},
        )
        with place.node("nodez", heartbeat=HEARTBEAT) as first:
            assert first.end() == 0, first.said()
        yield place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place_on(tmp_path_factory, "nfs3") as made:
        yield made


@pytest.fixture(scope="module", params=["beegfs8", "nfs3"])
def any_place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place_on(tmp_path_factory, request.param) as made:
        yield made


def met(place: Place, moment: str) -> None:
    step, when = next((step, when) for step, name, when in WITHIN if name == moment)

    def reached(number: int, node: Node) -> bool:
        try:
            return when(place, number, node)
        except OSError:
            return False  # looked at behind the file system's back, between two steps of one change

    for _ in range(9):
        with contextlib.suppress(MissedError):
            overtaken(
                place, partial(reached, dataset_lock.claim_number(place.layout)), listing=step == "list"
            )
            return
    pytest.fail("the moment was missed every time")


@pytest.mark.parametrize("moment", FEW)
def test_frozen_within_a_step(place: Place, moment: str) -> None:
    met(place, moment)


@pytest.mark.every_set
@pytest.mark.parametrize("moment", [name for _, name, _ in WITHIN])
def test_frozen_at_any_moment(any_place: Place, moment: str) -> None:
    met(any_place, moment)


@pytest.mark.every_set
@pytest.mark.parametrize("step", BETWEEN)
def test_frozen_between_two_steps(any_place: Place, step: str) -> None:
    overtaken(any_place, lambda a: a.paused.exists(), pause_after=step)


def test_the_places_are_apart(place: Place) -> None:
    assert len({os.stat(mount).st_dev for mount, _ in place.mounted.values()}) == 3
