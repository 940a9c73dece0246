from __future__ import annotations

import os
import random
import signal
import threading
import time

import pytest

from penstock.engine.shared_memory import BURST, Limiter, Shared


class Virtual:
    """Several streams on one virtual clock: whoever is earliest moves."""

    def __init__(self, streams: int, rate: int, processes: int) -> None:
        self.shared = Shared()
        self.now = 0.0
        # A mapping of its own for each "process": they meet in the memory alone.
        self.limiters = [Limiter(self.shared, rate, self.wait, lambda: self.now) for _ in range(processes)]
        self.times = [0.0] * streams
        self.read: list[tuple[float, int]] = []
        self.current = 0

    def wait(self, seconds: float) -> None:
        self.times[self.current] += seconds

    def run(self, until: float, sizes: list[int], chance: random.Random) -> None:
        while min(self.times) < until:
            self.current = self.times.index(min(self.times))
            self.now = self.times[self.current]
            count = chance.choice(sizes)
            self.limiters[self.current % len(self.limiters)].take(count)
            self.read.append((self.times[self.current], count))
            self.times[self.current] += chance.random() * 0.01


@pytest.mark.parametrize("streams", [1, 2, 64])
@pytest.mark.parametrize("rate", [20_000_000, 200_000_000])
def test_the_rate_holds_within_five_percent_over_any_five_seconds(streams: int, rate: int) -> None:
    # Few streams with their own pauses cannot use up a high rate.
    rate = min(rate, streams * 40_000_000)
    virtual = Virtual(streams, rate, processes=min(streams, 2))
    try:
        virtual.run(12.0, [4096, 70_000, 1 << 20], random.Random(streams))
        for start in (1.0, 3.3, 6.0):
            count = sum(n for when, n in virtual.read if start <= when < start + 5.0)
            assert count == pytest.approx(5.0 * rate, rel=0.05)
    finally:
        virtual.shared.close()


def test_a_pause_is_not_made_up_for() -> None:
    virtual = Virtual(1, 1_000_000, processes=1)
    try:
        virtual.run(1.0, [10_000], random.Random(1))
        virtual.times[0] = 50.0
        virtual.read.clear()
        virtual.run(51.0, [10_000], random.Random(1))
        assert sum(n for _, n in virtual.read) <= 1_000_000 * (1.0 + BURST) + 20_000
    finally:
        virtual.shared.close()


def test_threads_share_one_rate_on_the_real_clock() -> None:
    shared = Shared()
    try:
        rate, began, taken = 10_000_000, time.monotonic(), []
        limiter = Limiter(shared, rate, threading.Event().wait)

        def read() -> None:
            for _ in range(25):
                limiter.take(20_000)
                taken.append(20_000)

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # However slow the machine: never faster than the rate.
        assert sum(taken) - 20_000 <= rate * (time.monotonic() - began + BURST)
    finally:
        shared.close()


def test_a_workers_bytes_count_on_after_its_end() -> None:
    shared = Shared()
    try:
        shared.counters[0] = 5
        shared.counters[64] = 7
        shared.retire(range(64))
        assert shared.total() == 12
        shared.counters[0] += 1
        assert shared.total() == 13
    finally:
        shared.close()


def test_a_rate_that_changes_is_read_whole_by_other_processes() -> None:
    rates, seen = (1.0, 600.0, 1e9 / 3), set()
    shared = Shared()
    shared.ops = rates[0]
    ready, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        # The parent, in an engine: it sets the rate again and again until it is killed.
        os.close(ready)
        os.write(writer, b".")
        while True:
            for rate in rates:
                shared.ops = rate
    os.close(writer)
    try:
        assert os.read(ready, 1) == b"."
        for _ in range(300_000):
            seen.add(shared.ops)
        while len(seen) < 2:
            seen.add(shared.ops)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)
        shared.close()
    assert seen <= set(rates)
