"""Runs the orders of `guest.Guest` in the guest: `python -m tests.beegfs_bed.inside FOLDER`, as root.

`<n>.order` in the shared folder is JSON: the argument vector, and seconds. Its output goes to `<n>.out` as it
comes, its exit status to `<n>.ended` when it has ended. The shared folder is a hostfs, which has no inotify:
it is listed ten times a second.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

READY = "ready"
TIMED_OUT = 124
"""The exit status of an order that took longer than it may, as timeout(1) has it."""


def main(shared: Path) -> None:
    (shared / READY).touch()
    begun: set[str] = set()
    while True:
        for order in sorted(shared.glob("*.order")):
            if order.name not in begun:
                begun.add(order.name)
                threading.Thread(target=_carry_out, args=(order,), daemon=True).start()
        time.sleep(0.1)


def _carry_out(order: Path) -> None:
    words, seconds = json.loads(order.read_text(encoding="utf-8"))
    with order.with_suffix(".out").open("wb") as out:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            status = TIMED_OUT
    made = order.with_suffix(".new")
    made.write_text(str(status), encoding="ascii")
    made.rename(order.with_suffix(".ended"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
