"""What a process that starts warm is given, as a cold start gives it."""

from __future__ import annotations

import subprocess
import sys

from tests.support.warm import ROOT

WORKERS = """\
import os, socket, subprocess, sys
from tests.support import warm
warm.enter()
while True:
    # Of the lowest number that is free, which stays taken.
    given, mine = socket.socketpair()
    number = given.detach()
    if number >= 40:
        break
    # Without its second argument it ends, once it has taken the first as a socket.
    words = [sys.executable, *warm.OPTIONS, "-m", "penstock.engine.workers.worker", str(number)]
    child = subprocess.Popen(words, pass_fds=[number], stderr=subprocess.PIPE)
    print(number, child.communicate()[1].decode().splitlines()[-1])
    mine.close()
"""


def test_a_descriptor_of_any_number_stays_open_in_a_warm_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORKERS],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ends = {line.partition(" ")[2] for line in done.stdout.splitlines()}
    assert ends == {"IndexError: list index out of range"}
    assert len(done.stdout.splitlines()) > 20
