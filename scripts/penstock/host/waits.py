"""How a command waits, and how a signal ends each wait.

Python repeats a system call that a signal interrupted (PEP 475), so a handler that sets a flag ends no wait.
A handler that raises anywhere would end waits, but also leave half a change. So the handler raises only while
the main thread is inside `interruptible`. These blocks contain nothing but waits: for a server's answer, for
a process, or for threads that query servers. Pauses of a known length are `Stop.wait` and `pause`.

The process ends without waiting for threads that query servers: `shut_down`. Nothing here ends a call that
waits uninterruptibly in the kernel, as on a network mount whose server is away.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from penstock.core.errors import InterruptedRunError, signal_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor, ThreadPoolExecutor

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
