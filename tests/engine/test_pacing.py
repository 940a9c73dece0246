from __future__ import annotations

import heapq
import math
import random
import threading
import time
from typing import TYPE_CHECKING

import pytest

from penstock.host.pacing import (
    BURST,
    BYTES,
    LOOK,
    OPERATIONS,
    REQUESTS,
    Allowance,
    Pace,
    SharedMemory,
    allowed_rate,
    spending,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20


class Stopped:
    """The wait of an engine that stops: no wait lasts."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        """That were to be waited, each time."""

    def __call__(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return True


@pytest.fixture
def shared() -> Iterator[SharedMemory]:
    memory = SharedMemory()
    yield memory
    memory.close()


class Virtual:
    """Streams of several processes on one virtual clock: whoever is earliest moves. `stall`: from when to
    when nothing runs."""

    def __init__(self, streams: int, *, limit: int | None = None) -> None:
        self.shared_memory, self.now = SharedMemory(), 0.0
        self.clock = lambda: self.now
        rate = allowed_rate(self.shared_memory, BYTES, limit, self.clock)
        self.paces = [Pace(self.shared_memory, BYTES, rate, self.wait, self.clock) for _ in range(2)]
        self.read: list[tuple[float, int]] = []
        self.changes: list[tuple[float, Allowance]] = []
        self.stall = (math.inf, math.inf)
        self._wakes = [0.0] * streams
        self._turns = [threading.Semaphore(0) for _ in range(streams)]
        self._end = 0.0

    def wait(self, seconds: float) -> bool:
        index = int(threading.current_thread().name)
        self._wakes[index] = self.now + seconds
        if self.stall[0] <= self._wakes[index] < self.stall[1]:
            self._wakes[index] = self.stall[1]
        self._next()
        self._turns[index].acquire()
        return self.now >= self._end

    def _next(self) -> None:
        """Let the earliest go on."""
        turn = self._wakes.index(min(self._wakes))
        if self._wakes[turn] < math.inf:
            self.now = max(self.now, self._wakes[turn])
            while self.changes and self.changes[0][0] <= self.now:
                self.shared_memory.allowance = self.changes.pop(0)[1][:3]
            self._turns[turn].release()

    def run(self, end: float, sizes: list[int], seed: int = 1) -> None:
        self._end = end

        def stream(index: int) -> None:
            chance = random.Random(seed + index)
            self._turns[index].acquire()
            while self.now < end:
                count = chance.choice(sizes)
                self.paces[index % 2].take(count)
                if self.now < end:
                    self.read.append((self.now, count))
                self.wait(0.001)
            self._wakes[index] = math.inf
            self._next()

        threads = [threading.Thread(target=stream, args=(n,), name=str(n)) for n in range(len(self._wakes))]
        for thread in threads:
            thread.start()
        self._next()
        for thread in threads:
            thread.join()

    def between(self, start: float, end: float) -> int:
        return sum(count for when, count in self.read if start <= when < end)


@pytest.fixture
def make() -> object:
    made: list[Virtual] = []

    def one(streams: int, **more: int | None) -> Virtual:
        made.append(Virtual(streams, **more))
        return made[-1]

    yield one
    for virtual in made:
        virtual.shared_memory.close()


def test_the_pace_holds_over_one_and_over_five_seconds(make) -> None:  # type: ignore[no-untyped-def]
    virtual, rate = make(16), 10 * MIB
    virtual.changes = [(0.0, Allowance(rate, math.inf, math.inf))]
    virtual.run(12.0, [MIB, MIB, 70_000])
    assert virtual.between(2.0, 7.0) == pytest.approx(5 * rate, rel=0.03)
    for tenth in range(10, 110):
        start = tenth / 10
        assert virtual.between(start, start + 1.0) <= rate * (1 + BURST) + MIB


@pytest.mark.parametrize("streams", [1, 2, 64])
@pytest.mark.parametrize("rate", [20_000_000, 200_000_000])
def test_the_rate_is_used_up_within_five_percent_over_any_five_seconds(make, streams: int, rate: int) -> None:  # type: ignore[no-untyped-def]
    # A stream with its own pauses cannot use up a high rate.
    rate = min(rate, streams * 40_000_000)
    virtual = make(streams)
    virtual.changes = [(0.0, Allowance(rate, math.inf, math.inf))]
    virtual.run(12.0, [4096, 70_000, MIB])
    for start in (1.0, 3.3, 6.0):
        assert virtual.between(start, start + 5.0) == pytest.approx(5.0 * rate, rel=0.05)


def test_a_pause_is_not_made_up_for(make) -> None:  # type: ignore[no-untyped-def]
    virtual, rate = make(1), 1_000_000
    virtual.changes = [(0.0, Allowance(rate, math.inf, math.inf))]
    virtual.stall = (1.0, 50.0)
    virtual.run(52.0, [10_000])
    assert virtual.between(50.0, 51.0) <= rate * (1.0 + BURST) + 20_000


def test_threads_share_one_rate_on_the_real_clock() -> None:
    rate, began, taken = 10_000_000, time.monotonic(), []
    with spending(lambda: rate, threading.Event().wait) as take:

        def read() -> None:
            for _ in range(25):
                take(20_000)
                taken.append(20_000)

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    # However slow the machine: never faster than the rate.
    assert sum(taken) - 20_000 <= rate * (time.monotonic() - began + BURST)


def test_a_lower_rate_holds_for_what_waits_already(make) -> None:  # type: ignore[no-untyped-def]
    """64 streams wait with a MiB each, 6.4 s at the first rate: the second one holds within LOOK."""
    virtual = make(64)
    rates = [(0.0, 10 * MIB), (5.0, 1 * MIB), (9.0, 0), (12.0, 10 * MIB)]
    virtual.changes = [(when, Allowance(rate, math.inf, math.inf)) for when, rate in rates]
    virtual.run(16.0, [MIB])
    assert virtual.between(2.0, 5.0) == pytest.approx(30 * MIB, rel=0.05)
    assert virtual.between(5.0 + LOOK, 9.0) <= 5 * MIB
    assert virtual.between(9.0 + LOOK, 12.0) == 0
    assert virtual.between(13.0, 16.0) == pytest.approx(30 * MIB, rel=0.05)


def test_no_stream_of_many_waits_for_long_on_a_thin_share() -> None:
    """64 connections at 2 MB/s: a server closes one that is not read from for a minute."""
    shared, now, chance = SharedMemory(), 1000.0, random.Random(1)
    pace = Pace(shared, BYTES, lambda: 2e6, lambda _: False, lambda: now)
    wakes = [(now + chance.random() / 2, stream, now) for stream in range(64)]
    heapq.heapify(wakes)
    waits = []
    try:
        while wakes[0][0] < 1600.0:
            now, stream, came = heapq.heappop(wakes)
            left = pace._taken(MIB, came)
            if left <= 0:
                waits.append(now - came)
                came = now + chance.uniform(0.01, 0.1)
            then = max(came, now + min(left, LOOK) + chance.uniform(5e-5, 1e-3))
            heapq.heappush(wakes, (then, stream, came))
    finally:
        shared.close()
    assert len(waits) == pytest.approx(600 * 2e6 / MIB, rel=0.03)
    assert max(waits) < 50
    assert max(now - came for _, _, came in wakes) < 50


def test_s25_nothing_is_read_after_the_moment_until_which_the_share_holds(make) -> None:  # type: ignore[no-untyped-def]
    virtual = make(8)
    virtual.changes = [(0.0, Allowance(8 * MIB, math.inf, 3.0))]
    virtual.run(9.0, [MIB])
    assert virtual.between(1.0, 3.0) > 10 * MIB
    assert virtual.between(3.0 + LOOK, 9.0) == 0


def test_after_a_stall_of_the_machine_not_all_read_at_once(make) -> None:  # type: ignore[no-untyped-def]
    """With a line in which each booked its turn it was 1.68 times the rate in the second after the stall."""
    virtual, rate = make(32), 20 * MIB
    virtual.changes = [(0.0, Allowance(rate, math.inf, math.inf))]
    virtual.stall = (4.0, 4.7)
    virtual.run(9.0, [MIB // 2])
    for tenth in range(30, 70):
        start = tenth / 10
        assert virtual.between(start, start + 1.0) <= rate * (1 + BURST) + MIB // 2


def test_the_elements_own_limit_holds_where_it_is_lower(make) -> None:  # type: ignore[no-untyped-def]
    virtual = make(4, limit=2 * MIB)
    virtual.changes = [(0.0, Allowance(10 * MIB, math.inf, math.inf))]
    virtual.run(6.0, [100_000])
    assert virtual.between(1.0, 6.0) == pytest.approx(10 * MIB, rel=0.05)


def test_without_a_cap_nobody_waits(make) -> None:  # type: ignore[no-untyped-def]
    virtual = make(2)
    virtual.changes = [(0.0, Allowance(math.inf, math.inf, math.inf))]
    virtual.run(1.0, [MIB])
    assert virtual.between(0.0, 1.0) > 900 * MIB


def test_requests_have_a_store_of_their_own(shared: SharedMemory) -> None:
    wait, now = Stopped(), 5.0
    shared.allowance = (100.0, 10.0, 9.0)
    clock = lambda: now  # noqa: E731
    requests = Pace(shared, REQUESTS, allowed_rate(shared, REQUESTS, now=clock), wait, clock)
    data = Pace(shared, BYTES, allowed_rate(shared, BYTES, now=clock), wait, clock)
    for _ in range(3):
        requests.take(1)
    # One more than nothing; the stop ends the wait of the others.
    assert len(wait.seconds) == 2
    assert all(0 < seconds <= 0.1 + BURST for seconds in wait.seconds)
    wait.seconds.clear()
    data.take(50)
    data.take(50)
    assert len(wait.seconds) == 1
    data.ready()
    assert len(wait.seconds) == 1
    now = 9.5
    data.ready()
    assert wait.seconds[1:] == [LOOK]


def test_operations_have_a_store_of_their_own_whose_rate_may_change(shared: SharedMemory) -> None:
    wait, now = Stopped(), 5.0
    shared.ops = 10.0
    operations = Pace(shared, OPERATIONS, lambda: shared.ops, wait, lambda: now)
    data = Pace(shared, BYTES, lambda: 10.0, wait, lambda: now)
    operations.take(10)
    data.take(1)
    assert wait.seconds == []
    operations.take(1)
    assert wait.seconds == [LOOK]
    # Ten are owed, and half a second's worth of the new rate is more.
    shared.ops, now = 1000.0, 5.5
    operations.take(1)
    assert wait.seconds == [LOOK]
