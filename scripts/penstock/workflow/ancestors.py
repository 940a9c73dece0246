"""Names the processes above a step, safe against reused process ids, and watches them: a command ends when
they do.

A name is `<pid>.<start time in clock ticks since boot>`; several are separated by blanks.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from typing import TYPE_CHECKING

from penstock.host.proc import process_stat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ABOVE = "PENSTOCK_ABOVE"  # variable: names of the processes above, the outermost first
ABOVE_HOST = "PENSTOCK_ABOVE_HOST"  # variable: the host of these processes
# variable: folder of the locks of the controller and its steps (`workflow.controller`)
WORKFLOW = "PENSTOCK_WORKFLOW"


def above() -> list[str]:
    """Return the processes above this one, by the environment; none if they are on another host."""
    here = os.uname().nodename
    return os.environ.get(ABOVE, "").split() if os.environ.get(ABOVE_HOST, here) == here else []


def handed_down() -> dict[str, str]:
    """Return the variables by which processes below this one know it, and those above it."""
    names = dict.fromkeys([*above(), name(os.getpid())])
    return {ABOVE: " ".join(names), ABOVE_HOST: os.uname().nodename}


def name(pid: int) -> str:
    """Return the name of a live process. Raises ProcessLookupError."""
    process = process_stat(pid)
    if process is None:
        raise ProcessLookupError(pid)
    return f"{pid}.{process.start}"


def alive(named: str) -> bool:
    """Return whether the process of this name still exists; a zombie counts as ended."""
    pid = named.partition(".")[0]
    process = process_stat(pid) if pid.isdecimal() else None
    return process is not None and not process.ended and f"{process.pid}.{process.start}" == named


@contextlib.contextmanager
def watched(names: str, ended: Callable[[], None]) -> Iterator[None]:
    """Call `ended` once, when one of these processes has ended: from a thread, or before the block."""
    descriptors = []
    gone = False
    for named in names.split():
        pid = named.partition(".")[0]
        try:
            descriptors.append(os.pidfd_open(int(pid)))
        except (ValueError, OSError):
            gone = True
        # Open first, then compare: between the two the id cannot pass to another process.
        gone = gone or not alive(named)
    wake, woken = os.pipe2(os.O_CLOEXEC)
    thread = None
    if gone:
        ended()
    elif descriptors:
        thread = threading.Thread(
            target=_watch, args=(descriptors, wake, ended), name="watch-above", daemon=True
        )
        thread.start()
    try:
        yield
    finally:
        os.close(woken)
        if thread is not None:
            thread.join()
        for fd in (wake, *descriptors):
            os.close(fd)


def _watch(descriptors: list[int], wake: int, ended: Callable[[], None]) -> None:
    poll = select.poll()
    for fd in descriptors:
        poll.register(fd, select.POLLIN)
    poll.register(wake, select.POLLIN)
    ready = {fd for fd, _ in poll.poll()}
    if wake not in ready:
        ended()
