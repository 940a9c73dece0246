"""Reports the file system for which a call waits in the kernel, such as a network mount whose server is away.

No signal ends such a call, and no handler runs while the main thread is in it. So a thread reads
`/proc/self/task`. A call waits if it is found unchanged twice, without a read or write in between. Of the
call's arguments it reports the path, or a descriptor's path (its folder, if a name below it is meant).

| the thread's state              | the call's argument             | reported                              |
|---------------------------------|---------------------------------|---------------------------------------|
| D: it waits uninterruptibly     | a path, or a file's descriptor  | yes                                   |
| S: it waits                     | a path or descriptor, on FUSE   | yes, as FUSE waits for its server     |
| S                               | anything else                   | no: a pause, a lock, a pipe, a socket |
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.host.proc import holding, mounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOOK = 10.0  # seconds between two readings
AGAIN = 60.0  # seconds between two messages about the same call
LONGEST = 4096  # most bytes of a path
_TASKS = "/proc/self/task"
_OF_FUSE = "user_id="  # an option of each FUSE mount and of no other mount
_FEW = 1 << 20  # smaller arguments are descriptors, larger ones addresses
_HERE = 0xFFFFFF9C  # AT_FDCWD, as 32 bits: the path is relative to the working directory


class KernelCall(NamedTuple):
    """A thread's call in the kernel."""

    line: str  # line of `syscall` (proc(5)): number, arguments, stack and instruction pointer
    calls: list[str]  # counts of reads and writes so far, since a loop may repeat identical calls


@contextlib.contextmanager
def watched(say: Callable[[str], None]) -> Iterator[None]:
    """Call `say`, from a separate thread, about each system call inside the block that waits longer than LOOK
    seconds. Repeat this every AGAIN seconds."""
    ended = threading.Event()
    threading.Thread(target=_watch, args=(say, ended), name="kernel waits", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _watch(say: Callable[[str], None], ended: threading.Event) -> None:
    waiting: dict[str, tuple[KernelCall, float, float]] = {}  # by thread: call, start, time of next message
    while not ended.wait(LOOK):
        now, before, waiting = time.monotonic(), waiting, {}
        for task in os.listdir(_TASKS):
            with contextlib.suppress(OSError):
                call, state = _call(task)
                earlier, since, due = before.get(task, (call, now, now))
                if earlier != call:
                    since = due = now
                elif since < now and due <= now and (path := _path(call.line)) and _waits(state, path):
                    due = now + AGAIN
                    say(f"waiting for {path}: its file system has not answered for {now - since:.0f} s")
                waiting[task] = call, since, due


def _call(task: str) -> tuple[KernelCall, str]:
    """Return a thread's call and state. Raises OSError."""
    read = [Path(_TASKS, task, name).read_bytes().decode("latin-1") for name in ("syscall", "io", "stat")]
    calls = [line for line in read[1].splitlines() if line.startswith("sysc")]
    return KernelCall(read[0], calls), read[2].rpartition(")")[2].split()[0]


def _path(line: str) -> str:
    """Return the path of a call, or "" if none is visible. Raises OSError."""
    words = line.split()
    if len(words) < 3:
        return ""  # the thread is not in a call
    first, second = (int(word, 16) for word in words[1:3])
    if first & 0xFFFFFFFF == _HERE:
        name = _text(second)
        return os.path.join(os.readlink("/proc/self/cwd"), name) if name else ""
    path = _text(first) if first >= _FEW else os.readlink(f"/proc/self/fd/{first}")
    return path if path.startswith("/") else ""


def _text(address: int) -> str:
    """Return the text at an address of this process, or ""."""
    with open("/proc/self/mem", "rb", buffering=0) as memory, contextlib.suppress(OSError, OverflowError):
        text, end, _ = os.pread(memory.fileno(), LONGEST, address).partition(b"\0")
        return os.fsdecode(text) if end else ""
    return ""


def _waits(state: str, path: str) -> bool:
    return state == "D" or (state == "S" and _OF_FUSE in holding(path, mounts()).options)
