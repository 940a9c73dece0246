from __future__ import annotations

import os
import signal

from penstock.host.pacing import SharedMemory


def test_a_workers_bytes_count_on_after_its_end() -> None:
    shared = SharedMemory()
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
    shared = SharedMemory()
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
