"""Waiting: ended by time, by a signal, by whatever stirs."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from penstock.core.errors import InterruptedRunError
from penstock.dataset.context import Stop

LONG = 600.0


def test_it_waits_and_goes_on() -> None:
    begun = time.monotonic()
    Stop().wait(0.02)
    assert time.monotonic() - begun >= 0.019


def test_what_stirs_ends_one_wait_at_once_also_when_it_came_before() -> None:
    stop = Stop()
    stop.stir()
    stop.stir()
    stop.wait(LONG)
    threading.Timer(0.02, stop.stir).start()
    stop.wait(LONG)
    stop.wait(0.001)


def test_a_stop_ends_it_and_all_that_follow() -> None:
    stop = Stop()
    threading.Timer(0.02, stop.set, (15,)).start()
    for _ in range(2):
        with pytest.raises(InterruptedRunError):
            stop.wait(LONG)


def test_a_signal_that_comes_while_it_waits() -> None:
    stop = Stop()
    before = signal.signal(signal.SIGUSR1, lambda number, _: stop.set(number))
    try:
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(InterruptedRunError):
            stop.wait(LONG)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert stop.signal_number == signal.SIGUSR1


def test_its_descriptor_goes_with_it() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        Stop().stir()
    assert len(os.listdir("/proc/self/fd")) <= before + 2
