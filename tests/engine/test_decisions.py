"""The engine's pure decisions, a row of each table a test."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import (
    FailedError,
    IntegrityError,
    NoSpaceError,
    ObjectError,
    OverloadedError,
    SourceChangedError,
    TransientError,
)
from penstock.core.model import Entry
from penstock.core.row_codec import from_wire
from penstock.engine.journal_flusher import next_pause
from penstock.engine.pool import Pool
from penstock.engine.rows_left import (
    BATCH_BYTES,
    BATCH_ROWS,
    LARGE,
    Ahead,
    batches,
)
from penstock.engine.sizing import (
    Tuner,
    asked_ahead,
    cpus,
    free_memory,
    size,
)
from penstock.engine.stream import of_row
from penstock.host import wire
from penstock.host.kernel_facts import JobEnvironment
from penstock.sources.backoff import asked_for, may_retry, pause, row_may_retry

GIB = 1 << 30
BOOT = 40_000.0
"""Seconds for which the CPUs were busy before anything of ours began."""


def sized(**changes: Any) -> Any:
    given: dict[str, Any] = {
        "cpus": 8,
        "cpus_from": "CPU affinity",
        "memory": 64 * GIB,
        "local": True,
        "rows": 100_000,
        "total": 100_000 * 70_000,
    }
    return size(**given | changes)


@pytest.mark.parametrize(
    ("changes", "workers", "streams", "most"),
    [
        ({}, 8, 8, 32),
        ({"local": False}, 8, 32, 64),
        ({"cpus": 2, "local": False}, 2, 8, 64),
        ({"cpus": 128}, 64, 64, 64),
        ({"workers": 3}, 3, 3, 12),
        ({"workers": 3, "streams": 7}, 3, 7, 7),
        ({"streams": 2}, 2, 2, 2),
        ({"rows": 100, "total": 7_000_000}, 2, 2, 8),
        ({"rows": 3, "total": 3 * GIB, "local": False}, 3, 3, 3),
        ({"rows": 1, "total": 10}, 1, 1, 1),
        ({"rows": 1, "total": 0}, 1, 1, 1),
        ({"memory": 200 << 20, "local": False}, 3, 4, 4),
        ({"memory": 0}, 1, 1, 1),
        ({"local": False, "limit": 4 << 20, "cpus": 2}, 2, 4, 4),
        ({"processes": 400}, 8, 8, 32),
        ({"processes": 20}, 4, 4, 4),
        ({"processes": 10, "local": False}, 1, 3, 3),
        ({"processes": 0}, 1, 1, 1),
    ],
)
def test_sizing(changes: dict[str, Any], workers: int, streams: int, most: int) -> None:
    chosen = sized(**changes)
    assert (chosen.workers, chosen.streams, chosen.most) == (workers, streams, most)
    assert "CPUs (CPU affinity)" in chosen.why


@given(
    st.integers(1, 256),
    st.integers(0, 1 << 38),
    st.booleans(),
    st.integers(0, 10**6),
    st.integers(0, 1 << 45),
    st.one_of(st.none(), st.integers(1, 1 << 32)),
)
@settings(deadline=None, max_examples=200)
def test_sizing_is_always_usable(
    cpus: int, memory: int, local: bool, rows: int, total: int, limit: int | None
) -> None:
    chosen = sized(cpus=cpus, memory=memory, local=local, rows=rows, total=total, limit=limit)
    assert 1 <= chosen.workers <= chosen.streams <= chosen.most
    assert chosen.workers <= 64
    assert chosen.most <= 64


def test_cpus_come_from_the_cluster_then_the_kernel() -> None:
    assert cpus(JobEnvironment(cpus=14, cpus_from="SLURM_CPUS_ON_NODE")) == (14, "SLURM_CPUS_ON_NODE")
    number, name = cpus(JobEnvironment())
    assert number >= 1
    assert name == "CPU affinity"


@pytest.mark.parametrize(
    ("given", "allowed", "machine", "counted"),
    [
        (None, 3, 8, (3, "CPU affinity")),
        (3, 3, 8, (3, "SLURM_CPUS_ON_NODE")),
        (3, 8, 8, (3, "SLURM_CPUS_ON_NODE")),
        (6, 3, 8, (3, "CPU affinity")),
        (6, 2, 2, (6, "SLURM_CPUS_ON_NODE")),
    ],
)
def test_an_element_sizes_itself_by_what_its_node_lets_it_use(
    given: int | None, allowed: int, machine: int, counted: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(allowed)))
    assert cpus(JobEnvironment(cpus=given, cpus_from="SLURM_CPUS_ON_NODE"), machine) == counted


def test_memory_is_what_the_cluster_granted_at_most() -> None:
    assert free_memory(JobEnvironment(memory=100 << 20)) == 50 << 20
    assert free_memory(JobEnvironment(memory=100 << 20), 60 << 20) == 30 << 20
    assert free_memory(JobEnvironment(), 60 << 20) == 30 << 20
    assert free_memory(JobEnvironment()) > 0


class Runner:
    """Tells a tuner of a machine whose rate grows with streams up to `useful`."""

    def __init__(self, tuner: Tuner, useful: int, load: float) -> None:
        self.tuner, self.useful, self.load = tuner, useful, load
        self.now = self.work = 0.0
        self.cpu = BOOT

    def windows(self, count: int) -> int:
        for _ in range(count):
            self.now += 0.5
            self.work += 0.5 * min(self.tuner.streams, self.useful) * 1e6
            self.cpu += 0.5 * self.load
            if self.tuner.due(self.now):
                self.tuner.step(self.now, self.work, self.cpu)
        return self.tuner.streams


def test_streams_climb_while_that_helps_and_fall_back() -> None:
    runner = Runner(Tuner(8, 2, 64, cpus=2, now=0, busy=BOOT), useful=32, load=0.2)
    assert runner.windows(3) == 64
    assert runner.windows(1) == 32
    assert runner.windows(10) == 32
    assert runner.tuner.peak == 64
    assert "more did not help" in runner.tuner.story


def test_streams_stay_while_the_cpus_are_busy() -> None:
    assert Runner(Tuner(8, 2, 64, cpus=2, now=0, busy=BOOT), useful=64, load=1.9).windows(20) == 8


def test_large_objects_streams_climb_while_the_cpus_have_time_left_until_that_does_not_help() -> None:
    def run(useful: int, load: float) -> tuple[int, int]:
        runner = Runner(Tuner(16, 2, 64, cpus=2, now=0, busy=BOOT), useful=useful, load=load)
        runner.tuner.probing = True
        return max(runner.windows(1) for _ in range(4)), runner.windows(30)

    assert run(useful=64, load=1.7) == (64, 64)
    # Tried once, and not again while the CPUs are busy.
    assert run(useful=8, load=1.7) == (32, 16)
    assert run(useful=64, load=1.9) == (16, 16)


def test_pressure_halves_at_once_but_once_a_second_and_climbs_again() -> None:
    tuner = Tuner(64, 2, 64, cpus=2, now=0, busy=BOOT)
    assert tuner.pressure(10.0)
    assert not tuner.pressure(10.5)
    assert tuner.streams == 32
    for second in range(11, 20):
        tuner.pressure(float(second) + 0.1)
    assert tuner.streams == 2
    runner = Runner(tuner, useful=64, load=0.1)
    runner.now = 20.0
    assert runner.windows(12) == 3
    assert runner.windows(400) == 64
    assert "asked for less 11 times" in tuner.story


def test_streams_are_no_more_than_a_share_feeds_and_climb_again_when_it_grows() -> None:
    tuner = Tuner(32, 2, 64, cpus=2, now=0, busy=BOOT)
    assert not tuner.bound(40)
    assert tuner.bound(5)
    assert tuner.streams == 5
    assert tuner.bound(1)
    assert tuner.streams == 2  # one a worker
    runner = Runner(tuner, useful=64, load=0.2)
    assert runner.windows(10) == 2
    assert not tuner.bound(64)
    assert runner.windows(60) == 64


def test_a_stopped_flow_tunes_nothing() -> None:
    tuner = Tuner(4, 2, 64, cpus=2, now=0, busy=BOOT)
    assert not tuner.step(1.0, 0.0, 0.0)
    assert tuner.streams == 4


def entries(sizes: list[int]) -> list[Entry]:
    return [Entry(f"f{i:06d}", f"f{i:06d}", s, "t", 0, length=s) for i, s in enumerate(sizes)]


@given(
    st.lists(st.sampled_from([0, 10, 4096, 70_000, 1 << 20, LARGE - 1, LARGE, 1 << 30]), max_size=600),
    st.sets(st.integers(0, 599)),
    st.integers(1, 8),
)
@settings(deadline=None, max_examples=60)
def test_batches_hold_each_row_once_and_stay_small(sizes: list[int], done: set[int], workers: int) -> None:
    rows = entries(sizes)
    left = len([i for i in range(len(rows)) if i not in done])
    jobs = list(batches([rows[:100], rows[100:]], done, left, workers))
    seen = [row for job in jobs for row in job.rows]
    assert seen == [i for i in range(len(rows)) if i not in done]
    assert [job.number for job in jobs] == list(range(len(jobs)))
    for job in jobs:
        assert job.large == (rows[job.rows[0]].size >= LARGE)
        assert job.count == 1 or (job.bytes <= BATCH_BYTES and job.count <= BATCH_ROWS)
        kind, (number, numbers, *values) = next(iter(channel_frames(job.frame)))
        assert (kind, number, numbers) == (wire.BATCH, job.number, job.rows)
        assert from_wire(*values) == [rows[i] for i in job.rows]


def test_a_frame_that_comes_in_two_pieces_is_whole() -> None:
    """As those do that are larger than a socket's buffer."""
    values = [(wire.LISTED, ("name" * 20, number)) for number in range(3)]
    raw = b"".join(wire.encode(*value) for value in values)
    left, right = socket.socketpair()
    with left, right:
        channel = wire.Channel(right)
        for cut in range(1, len(raw)):
            received: list[Any] = []
            for piece in (raw[:cut], raw[cut:]):
                left.sendall(piece)
                frames = channel.receive()
                assert frames is not None
                received.extend(frames)
            assert received == values, cut


def channel_frames(raw: bytes) -> Any:
    left, right = socket.socketpair()
    with left, right:
        channel = wire.Channel(right)
        found: list[Any] = []
        for start in range(0, len(raw), 50_000):
            left.sendall(raw[start : start + 50_000])
            frames = channel.receive()
            assert frames is not None
            found.extend(frames)
        while not found:
            frames = channel.receive()
            assert frames is not None
            found.extend(frames)
        return found


def test_a_giants_part_goes_alone() -> None:
    giant = Entry("g", "g", 30, "t", 0, part=0, offset=0, length=10)
    rows = [*entries([1, 2]), giant, giant._replace(part=1, offset=10), *entries([3])]
    assert [job.count for job in batches([rows], set(), 5, 1)] == [2, 1, 1, 1]


def test_paths_that_are_no_text_travel_in_frames() -> None:
    name = b"\xff\n\x80".decode("utf-8", "surrogateescape")
    (job,) = batches([[Entry(name, name, 1, "t", 0)]], set(), 1, 1)
    ((_, (_, _, *values)),) = channel_frames(job.frame)
    assert [row.path for row in from_wire(*values)] == [name]


def test_pauses_grow_spread_and_honour_what_was_asked() -> None:
    assert pause(1, None, 0.5) == pytest.approx(0.1)
    assert pause(4, None, 0.5) == pytest.approx(0.8)
    assert pause(3, None, 0.0) < pause(3, None, 0.99)
    assert pause(60, None, 0.5) == 20.0
    assert pause(1, 7.0, 0.5) == 7.0
    assert pause(1, 9000.0, 0.5) == 600.0


def test_what_is_tried_again() -> None:
    assert may_retry(TransientError("x"), 4)
    assert not may_retry(TransientError("x", after=601.0), 1)
    assert row_may_retry(TransientError("x", after=601.0), 1)
    assert may_retry(IntegrityError("x"), 1)
    assert not may_retry(IntegrityError("x"), 2)
    assert not may_retry(ObjectError("x"), 1)
    assert not may_retry(SourceChangedError("x"), 1)


def test_what_fails_a_row_and_what_fails_the_shard() -> None:
    assert all(
        of_row(kind("x")) for kind in (TransientError, IntegrityError, ObjectError, SourceChangedError)
    )
    assert not any(of_row(kind("x")) for kind in (NoSpaceError, FailedError))


@pytest.mark.parametrize(
    ("status", "code", "after", "overloaded"),
    [
        (503, "", None, True),
        (429, "", None, True),
        (400, "SlowDown", None, True),
        (500, "", 1.0, True),
        (500, "InternalError", None, False),
        (408, "RequestTimeout", None, False),
    ],
)
def test_what_counts_as_a_request_for_less(
    status: int, code: str, after: float | None, overloaded: bool
) -> None:
    # Byte counts of any digits stand in sentences: the class tells, not they (H1).
    error = asked_for("x", "k", "4290000 bytes came of the 8388503 that were listed", status, code, after)
    assert isinstance(error, OverloadedError) is overloaded


def test_keeping_costs_a_tenth_of_the_time_at_most() -> None:
    assert next_pause(0.0) == 0.5
    assert next_pause(0.2) == 2.0
    assert next_pause(30.0) == 5.0


def test_whoever_takes_a_batch_goes_where_nobody_is() -> None:
    names = [f"{folder}/{i:04d}" for folder in "ab" for i in range(600)]
    rows = [Entry(name, name, 1, "t", 0) for name in names]
    ahead = Ahead(batches([rows], set(), len(rows), 1), 8)
    first = ahead.take(set())
    assert first is not None
    assert first.rows[0] == 0
    other = ahead.take({"a"})
    assert other is not None
    assert other.folders == {"b"}
    # Nowhere is free: the first that is left, and none is lost or comes twice.
    rest = []
    while (job := ahead.take({"a", "b"})) is not None:
        rest.append(job)
    assert [job.number for job in rest] == sorted(job.number for job in rest)
    assert sorted(row for job in (first, other, *rest) for row in job.rows) == list(range(len(rows)))
    assert ahead.take(set()) is None


def test_a_view_of_one_keeps_the_order() -> None:
    jobs = list(batches([entries([LARGE] * 9)], set(), 9, 1))
    ahead = Ahead(iter(jobs), 1)
    assert [ahead.take({""}) for _ in range(10)] == [*jobs, None]


@pytest.mark.parametrize(
    ("streams", "expected"), [(1, 16), (4, 16), (8, 8), (9, 7), (16, 4), (33, 1), (64, 1), (100, 1)]
)
def test_all_streams_together_have_no_more_than_64_requests_out(streams: int, expected: int) -> None:
    assert asked_ahead(streams) == expected


def test_a_store_that_asks_for_less_is_asked_for_nothing_ahead() -> None:
    pool = Pool(0)
    try:
        tuner = Tuner(1, 1, 64, 2, 0.0, BOOT)
        pool.ahead = pool.pressed = True
        assert pool._tune(tuner, 10.0), "the workers are told, although the number of streams stays"
        assert (tuner.streams, pool.ahead) == (1, False)
        pool.pressed = True
        assert not pool._tune(tuner, 20.0)
    finally:
        pool.close()
