"""How a command waits, and how a signal ends each wait.

Python makes a system call again that a signal interrupted (PEP 475), so a handler that sets a flag ends no
wait. Raising from the handler wherever the program stands would end waits, but also leave half a change. So
the handler raises only while the main thread is inside `interruptible`, which stands around waits alone: for
a server's answer, for a process, for threads that ask servers. Pauses of a known length are `Stop.wait`'s and
`pause`'s.

A thread that asks servers may wait when the signal comes. The process ends without it: `shut_down`.

A call that waits in the kernel uninterruptibly, as on a network mount whose server is away, is ended by none
of these.
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

TIDY = 1.0
"""Seconds that a command has, run by a process that a signal stopped, in `tidying`."""


@dataclass
class Stop:
    """The stop flag of this process, set by a signal. Several threads may `wait`; a signal ends all waits."""

    event: threading.Event = field(default_factory=threading.Event)
    signal_number: int = 0
    """0: none came."""
    out_of_time: bool = False
    """The signal was that of the job's time limit."""
    orphaned: bool = False
    """There was no signal: the run that the step belongs to has ended."""
    _stirred: int = -1
    """An eventfd and not a lock, since a signal handler may write to it at any point."""

    def __post_init__(self) -> None:
        self._stirred = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Not at the end of the process, which may have closed all its descriptors by then.
        weakref.finalize(self, os.close, self._stirred).atexit = False

    def set(self, signal_number: int) -> None:
        """Stop everything that checks or waits. From a signal handler or any thread."""
        self.signal_number = signal_number
        self.event.set()
        self.stir()

    @property
    def why(self) -> str:
        """What stopped the process, in words."""
        if self.out_of_time:
            return "stopped: the time limit of its job came"
        if self.orphaned:
            return "stopped: the run that started it was killed"
        return f"stopped by {signal_name(self.signal_number)}"

    def stir(self) -> None:
        """End the `wait` that is under way, or the next one, at once. From any thread."""
        os.eventfd_write(self._stirred, 1)

    def signalled(self) -> None:
        """Raises InterruptedRunError once a signal has come."""
        if self.event.is_set():
            raise InterruptedRunError(self.signal_number, self.why)

    def wait(self, seconds: float) -> None:
        """Wait that long, or until `stir` is called. Raises InterruptedRunError as soon as a signal comes."""
        self.signalled()
        poll = select.poll()
        poll.register(self._stirred, select.POLLIN)
        # After a signal it is left as it is, so that it ends the waits of all threads.
        if poll.poll(seconds * 1000) and not self.event.is_set():
            with contextlib.suppress(BlockingIOError):  # another thread was faster
                os.eventfd_read(self._stirred)
        self.signalled()


_stop: Stop | None = None
"""Of the command that this process runs; None: of another program that uses this package."""
_depth = 0
"""How many blocks of `interruptible` the main thread is in."""
_tidies = 0.0
"""Seconds that a command has in `tidying`; 0: outside of it."""


@contextlib.contextmanager
def obeying(stop: Stop) -> Iterator[None]:
    """While inside, `stop` ends the waits of this module."""
    global _stop
    before, _stop = _stop, stop
    try:
        yield
    finally:
        _stop = before


def signalled() -> None:
    """Raises InterruptedRunError once a signal has come to the command, in any thread; not in `tidying`."""
    if _stop is not None and not _tidies:
        _stop.signalled()


def interrupt() -> None:
    """For a signal's handler, after `Stop.set`: raises InterruptedRunError where the main thread waits."""
    if _stop is not None and _depth > 0:
        _stop.signalled()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """While the main thread is inside, the first signal raises InterruptedRunError, whichever call it waits
    in; also on entering, once a signal has come. For blocks that may be left anywhere. In another thread it
    has no effect."""
    with _counted(1):
        if threading.current_thread() is threading.main_thread():
            signalled()
        yield


@contextlib.contextmanager
def tidying(seconds: float = TIDY) -> Iterator[None]:
    """For what is to be undone or shown at the end, also after a signal: commands run inside, each for so
    many seconds at most."""
    global _tidies
    before, _tidies = _tidies, seconds
    try:
        yield
    finally:
        _tidies = before


def within(seconds: float) -> float:
    """The same; after a signal, in `tidying`, as many as that gives at most."""
    return min(seconds, _tidies) if _tidies and _stop is not None and _stop.event.is_set() else seconds


def whole() -> contextlib.AbstractContextManager[None]:
    """Inside `interruptible`, a block that is not to be left by a signal."""
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
    """Wait that long. Raises InterruptedRunError as soon as a signal comes, in any thread."""
    stopping = threading.Event() if _stop is None else _stop.event
    stopping.wait(seconds)
    signalled()


def aside(work: Callable[[], T]) -> T:
    """What `work` returns or raises. A call that no signal ends is made for the main thread by another one,
    which is then left behind. Raises InterruptedRunError."""
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
    """Threads that ask servers, and change nothing; at the end as `shut_down`."""
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(count, thread_name_prefix=name)
    try:
        yield pool
    finally:
        shut_down(pool)


def shut_down(pool: Executor) -> None:
    """Drop what has not begun, and wait for what is under way; once a signal has come, not for that either.
    Raises InterruptedRunError."""
    pool.shutdown(wait=False, cancel_futures=True)
    with interruptible():
        pool.shutdown()
