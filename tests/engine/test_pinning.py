"""On which cores workers run: the table, and what the kernel then says of real workers."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.workers.pinning import Place, places, told
from penstock.engine.workers.pool import Pool
from penstock.runtime.job_environment import JobEnvironment

if TYPE_CHECKING:
    from collections.abc import Iterator

TWO = {0: range(18), 1: range(18, 36)}
"""Two sockets of 18 cores."""
JOB = JobEnvironment(job="7")
EVEN_ODD = {0: range(0, 36, 2), 1: range(1, 36, 2)}


def nobody() -> int:
    raise AssertionError("asked although no worker is pinned")


@pytest.mark.parametrize(
    ("cpus", "allowed", "nodes"),
    [
        (36, range(36), {}),
        (36, range(36), {0: range(36)}),
        (18, range(18), TWO),
        (8, range(36), TWO),
        (34, range(36), TWO),
    ],
    ids=["not known", "one node", "granted on one of two", "a share", "two cores are kept in the books only"],
)
def test_where_it_cannot_help_or_may_harm_no_worker_is_pinned(
    cpus: int, allowed: range, nodes: dict[int, range]
) -> None:
    assert places(JOB, cpus, allowed, nodes, nobody) == ()
    assert told((), 4) == ""
    assert told((), 4, "Operation not permitted") == ""
    assert told((Place(0, frozenset({0, 1})),), 4, "Operation not permitted") == (
        "not all pinned: Operation not permitted"
    )


def test_outside_of_a_job_no_worker_is_pinned() -> None:
    assert places(JobEnvironment(), 36, range(36), TWO, nobody) == ()


@pytest.mark.parametrize(
    ("near", "first", "words"),
    [
        (None, 0, "pinned: 17 on NUMA node 0, 3 on NUMA node 1"),
        (0, 0, "pinned: 17 on NUMA node 0, 3 on NUMA node 1"),
        (1, 1, "pinned: 17 on NUMA node 1, 3 on NUMA node 0"),
        (7, 0, "pinned: 17 on NUMA node 0, 3 on NUMA node 1"),
    ],
)
def test_a_node_s_cores_are_filled_first_where_the_network_is(
    near: int | None, first: int, words: str
) -> None:
    """--core-spec=2 keeps the last core of each socket: 17 are left of each."""
    granted = set(range(36)) - {17, 35}
    chosen = places(JOB, 34, granted, TWO, lambda: near)
    assert len(chosen) == 34
    assert {one.node for one in chosen[:17]} == {first}
    assert chosen[0].cores == granted & set(TWO[first])
    assert chosen[17].cores == granted & set(TWO[1 - first])
    assert told(chosen, 20) == words


def test_even_and_odd_numbering() -> None:
    chosen = places(JOB, 36, range(36), EVEN_ODD, lambda: 1)
    assert chosen[0] == Place(1, frozenset(EVEN_ODD[1]))


def test_a_single_core_of_a_node_is_no_place() -> None:
    """A worker whose threads use several cores is not held on one."""
    chosen = places(JOB, 4, {0, 1, 2, 18}, TWO, lambda: 1)
    assert chosen[0] == Place(None, frozenset({0, 1, 2, 18}))
    assert told(chosen, 4) == "pinned: 1 on any, 3 on NUMA node 0"
    assert all(len(one.cores) > 1 for one in chosen)


@given(st.sets(st.integers(0, 35), min_size=1), st.integers(1, 72), st.sampled_from([None, 0, 1, 2]))
def test_no_worker_leaves_what_was_granted(allowed: set[int], cpus: int, near: int | None) -> None:
    chosen = places(JOB, cpus, allowed, TWO, lambda: near)
    assert len(chosen) in (0, len(allowed))
    assert all(one.cores <= allowed and len(one.cores) > 1 for one in chosen)


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(3)
    yield made
    made.close()


def test_workers_are_where_they_were_put_and_so_is_the_successor_of_a_dead_one(pool: Pool) -> None:
    """By the kernel's word. One core is enough to see it, so it is seen on every machine."""
    here = os.sched_getaffinity(0)
    one, all_of_them = Place(0, frozenset({max(here)})), Place(None, frozenset(here))
    pool.places = (one, all_of_them)
    for member in pool.alive:
        pool._pin(member)
    assert [os.sched_getaffinity(member.process.pid) for member in pool.members] == [
        one.cores, all_of_them.cores, one.cores,
    ]  # fmt: skip
    dead = pool.members[0]
    dead.process.send_signal(signal.SIGKILL)
    pool._bury(dead)
    after = pool._spawn()
    pool._pin(after)
    assert after.place == 0
    assert os.sched_getaffinity(after.process.pid) == one.cores


def test_a_place_that_the_kernel_refuses_leaves_the_worker_as_it_was(pool: Pool) -> None:
    pool.places = (Place(0, frozenset({max(os.sched_getaffinity(0)) + 500})),)
    member = pool.members[0]
    pool._pin(member)
    assert os.sched_getaffinity(member.process.pid) == os.sched_getaffinity(0)
