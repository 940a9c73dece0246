"""How a command waits, how a signal ends each wait, and for which file system a call waits in the kernel; and
after what time without a sign the silent holder of a lock counts as dead.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from penstock.core.errors import ConfigError, InterruptedRunError, signal_name
from penstock.host.kernel_facts import holding, mounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor, ThreadPoolExecutor


# How often a lock's holder shows that it is still running, and after what time without a sign it counts as
# dead. A heartbeat is the touch of a file on the target.
#
# The environment variable `PENSTOCK_TEST_HEARTBEAT`, seconds, scales all these times in tests
# (CONTRIBUTING.md).

TESTED = "PENSTOCK_TEST_HEARTBEAT"  # environment variable with the seconds of `HEARTBEAT`, only for tests


def _heartbeat() -> float:
    text = os.environ.get(TESTED, "10")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.01 <= seconds <= 60:
        raise ConfigError(
            f"{TESTED} is not a number of seconds", where=text, hint="it is for tests: unset it"
        )
    return seconds


HEARTBEAT = _heartbeat()  # seconds between two touches of the lock file: 10, except in tests
PATIENCE = 12 * HEARTBEAT  # seconds without a heartbeat after which the holder counts as dead: 120
SHORT = 3 * HEARTBEAT  # PATIENCE if the scheduler reports that the holder's job has ended: 30


@contextlib.contextmanager
def beating(beat: Callable[[], None], name: str) -> Iterator[None]:
    """Call `beat`, which must not raise, every HEARTBEAT in a separate thread while the block runs."""
    ends = threading.Event()

    def run() -> None:
        while not ends.wait(HEARTBEAT):
            beat()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def stands_still(
    patience: float,
    heartbeat: float,
    pause: Callable[[float], None],
    moved: Callable[[], bool],
) -> bool:
    """Return whether `moved` stays false for `patience` seconds of this process's clock. `moved` is called at
    least twice in a heartbeat. `pause(seconds)` waits between two calls, and may raise to give up. A call of
    `moved` that takes longer than a heartbeat restarts the wait. Unresponsive servers (BeeGFS waits 600 s for
    them) delay the watched heartbeat, too."""
    still = 0.0
    while still < patience:
        began = time.monotonic()
        pause(min(heartbeat / 2, patience / 4, patience - still))
        asked = time.monotonic()
        if moved():
            return False
        answered = time.monotonic()
        still = still + answered - began if answered - asked <= heartbeat else 0.0
    return True


# Reports the file system for which a call waits in the kernel, such as a network mount whose server is away.
#
# No signal ends such a call, and no handler runs while the main thread is in it. So a thread reads
# `/proc/self/task`. A call waits if it is found unchanged twice, without a read or write in between. Of the
# call's arguments it reports the path, or a descriptor's path (its folder, if a name below it is meant).
#
# | the thread's state          | the call's argument            | reported                              |
# | --------------------------- | ------------------------------ | ------------------------------------- |
# | D: it waits uninterruptibly | a path, or a file's descriptor | yes                                   |
# | S: it waits                 | a path or descriptor, on FUSE  | yes, as FUSE waits for its server     |
# | S                           | anything else                  | no: a pause, a lock, a pipe, a socket |

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


# How a command waits, and how a signal ends each wait.
#
# Python repeats a system call that a signal interrupted (PEP 475), so a handler that sets a flag ends no
# wait. A handler that raises anywhere would end waits, but also leave half a change. So the handler raises
# only while the main thread is inside `interruptible`. These blocks contain nothing but waits: for a server's
# answer, for a process, or for threads that query servers. Pauses of a known length are `Stop.wait` and
# `pause`.
#
# The process ends without waiting for threads that query servers: `shut_down`. Nothing here ends a call that
# waits uninterruptibly in the kernel, as on a network mount whose server is away.

T = TypeVar("T")

TIDY = 1.0  # seconds for a command in `tidying` after a signal has stopped the process


@dataclass
class Stop:
    """The stop flag of this process, set by a signal. Several threads may `wait`; a signal ends all waits."""

    event: threading.Event = field(default_factory=threading.Event)
    signal_number: int = 0  # number of the signal; 0 if none came
    out_of_time: bool = False  # whether the signal announced the job's time limit
    orphaned: bool = False  # whether no signal came, but the step's run has ended
    _stirred: int = -1  # an eventfd, not a lock: a signal handler may write to it at any point

    def __post_init__(self) -> None:
        self._stirred = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Do not close it at the end of the process, which may have closed all its descriptors by then.
        weakref.finalize(self, os.close, self._stirred).atexit = False

    def set(self, signal_number: int) -> None:
        """Stop everything that checks or waits. May be called from a signal handler or any thread."""
        self.signal_number = signal_number
        self.event.set()
        self.stir()

    @property
    def why(self) -> str:
        """Why the process stopped, in words."""
        if self.out_of_time:
            return "stopped: the time limit of its job came"
        if self.orphaned:
            return "stopped: the run that started it was killed"
        return f"stopped by {signal_name(self.signal_number)}"

    def stir(self) -> None:
        """End the current or next `wait` at once. May be called from any thread."""
        os.eventfd_write(self._stirred, 1)

    def signalled(self) -> None:
        """Raise InterruptedRunError once a signal has come."""
        if self.event.is_set():
            raise InterruptedRunError(self.signal_number, self.why)

    def wait(self, seconds: float) -> None:
        """Wait for `seconds`, or until `stir` is called. A signal raises InterruptedRunError at once."""
        self.signalled()
        poll = select.poll()
        poll.register(self._stirred, select.POLLIN)
        # After a signal the eventfd stays set, so that it ends the waits of all threads.
        if poll.poll(seconds * 1000) and not self.event.is_set():
            with contextlib.suppress(BlockingIOError):  # another thread was faster
                os.eventfd_read(self._stirred)
        self.signalled()


_stop: Stop | None = None  # flag of the command that this process runs; None within another program
_depth = 0  # number of nested `interruptible` blocks that the main thread is in
_tidies = 0.0  # seconds for a command in `tidying`; 0 outside such blocks


@contextlib.contextmanager
def obeying(stop: Stop) -> Iterator[None]:
    """Let `stop` end the waits of this module inside the block."""
    global _stop
    before, _stop = _stop, stop
    try:
        yield
    finally:
        _stop = before


def signalled() -> None:
    """Raise InterruptedRunError once a signal has come to the command, in any thread; not in `tidying`."""
    if _stop is not None and not _tidies:
        _stop.signalled()


def interrupt() -> None:
    """Raise InterruptedRunError if the main thread waits. For a signal's handler, after `Stop.set`."""
    if _stop is not None and _depth > 0:
        _stop.signalled()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let the first signal raise InterruptedRunError inside the block, in whichever call the main thread
    waits. If a signal came before, entering the block raises it. Only for blocks that may be left anywhere.
    Other threads are not affected."""
    with _counted(1):
        if threading.current_thread() is threading.main_thread():
            signalled()
        yield


@contextlib.contextmanager
def tidying(seconds: float = TIDY) -> Iterator[None]:
    """Allow commands inside the block, even after a signal, to undo or show something in `seconds` each."""
    global _tidies
    before, _tidies = _tidies, seconds
    try:
        yield
    finally:
        _tidies = before


def within(seconds: float) -> float:
    """Return `seconds`, but after a signal, inside `tidying`, at most the limit of that block."""
    return min(seconds, _tidies) if _tidies and _stop is not None and _stop.event.is_set() else seconds


def whole() -> contextlib.AbstractContextManager[None]:
    """Protect a block inside `interruptible` from signals."""
    return _counted(-1)


@contextlib.contextmanager
def _counted(by: int) -> Iterator[None]:
    global _depth
    by = by if threading.current_thread() is threading.main_thread() else 0
    _depth += by
    try:
        yield
    finally:
        _depth -= by


def pause(seconds: float) -> None:
    """Wait for `seconds`. Raises InterruptedRunError, in any thread, as soon as a signal comes."""
    stopping = threading.Event() if _stop is None else _stop.event
    stopping.wait(seconds)
    signalled()


def aside(work: Callable[[], T]) -> T:
    """Call `work` and return its result or raise its error. If called in the main thread, another thread
    makes the call. No signal ends that call, so after a signal the thread is left behind. Raises
    InterruptedRunError."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    from concurrent.futures import Future

    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  the main thread raises it
            future.set_exception(error)

    threading.Thread(target=run, name="aside", daemon=True).start()
    with interruptible():
        return future.result()


@contextlib.contextmanager
def threads(count: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """Provide threads that query servers and change nothing. `shut_down` ends them."""
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(count, thread_name_prefix=name)
    try:
        yield pool
    finally:
        shut_down(pool)


def shut_down(pool: Executor) -> None:
    """Drop tasks that have not begun, and wait for the others until a signal. Raises InterruptedRunError."""
    pool.shutdown(wait=False, cancel_futures=True)
    with interruptible():
        pool.shutdown()
