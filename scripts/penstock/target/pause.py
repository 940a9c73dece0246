"""`<root>/PAUSE`: while this file stands, whatever works below the root neither reads nor writes data.

An administrator makes it with a text for people (`echo "BeeGFS is being updated, until 18:00" > PAUSE`), and
removes it. `root_files` decides whose file counts.

| what works below the root            | while PAUSE stands                                               |
|--------------------------------------|------------------------------------------------------------------|
| workers of an element                | hold before the next row or block (`engine.stream`)              |
| an element                           | holds before it begins; its lock, notice and progress go on      |
| an element whose time limit comes    | ends with its state kept; that uses up no retry                  |
| a step                               | holds before it takes the lock, and wherever it checks for a stop |
| arrays                               | those that live go on and hold; no further one is submitted      |
| status, path, gate, cancel, limit    | answer                                                           |

A process checks every EVERY seconds at most, by an lstat in its own thread. So all rest within EVERY seconds
and the time of a block or row; where folders are cached (NFS, acdirmax) up to that much later. Steps, engine
and arrays call `standing`, and wait themselves.
"""

from __future__ import annotations

import contextlib
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.human import printable
from penstock.host.heartbeat import HEARTBEAT
from penstock.target import root_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NAME = "PAUSE"
EVERY = HEARTBEAT / 2  # seconds between two checks of a process: 5
LONGEST = 2048  # bytes of the text that are read
ANSWER_WITHIN = 10.0  # seconds that a root may take to answer a check


class Pause(NamedTuple):
    """A PAUSE that counts."""

    text: str  # one printable line, or why the file cannot be read; "" where it is empty
    by: str  # the account that made it

    def __str__(self) -> str:
        return f"{self.by}: {self.text}" if self.text else f"by {self.by}, without a text"


class RootPause(NamedTuple):
    """The result of one check of a root."""

    pause: Pause | None = None
    ignored: str = ""  # why a file of that name does not count


def look(root: Path) -> RootPause:
    """Read PAUSE at this root, without a time limit. Raises OSError where the root does not answer."""
    file = root_files.look(root, NAME, LONGEST)
    if file is None:
        return RootPause()
    if file.ignored:
        return RootPause(ignored=file.ignored)
    return RootPause(Pause(printable(" ".join((file.text or file.unread).split())), file.by))


def words(root: Path) -> str:
    """Return the text of the PAUSE, or why it does not count, for messages; "" for no PAUSE or no answer."""
    try:
        pause, ignored = look(root)
    except OSError:
        return ""
    return str(pause) if pause else f"not obeyed: {ignored}" if ignored else ""


class PauseWatch:
    """Checks a root now and then, for all threads of a process. `tell` gets a line when PAUSE comes, goes or
    is ignored."""

    def __init__(
        self,
        root: Path,
        tell: Callable[[str], None],
        *,
        every: float = EVERY,
        within: float = ANSWER_WITHIN,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root, self._tell, self._every, self._within, self._clock = root, tell, every, within, clock
        self._looked = float("-inf")
        self._seen = RootPause()
        self.stood_at = float("-inf")  # the clock's time when a check last found PAUSE
        self._lock, self._asking = threading.Lock(), threading.Lock()

    def __call__(self) -> Pause | None:
        """Return the PAUSE of the last check; check again when that is more than `every` seconds old.

        A root that does not answer is waited for once, for `within` seconds; until it answers, the last
        result counts.
        """
        # One thread checks; the others take the last result instead of waiting for a file system.
        if self._clock() - self._looked >= self._every and self._lock.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._lock.release()
        return self._seen.pause

    def _look(self) -> None:
        before = self._seen
        self._seen = self._answer() or before
        self._looked = self._clock()
        self.stood_at = self._looked if self._seen.pause is not None else self.stood_at
        pause, ignored = self._seen
        where = printable(str(self._root / NAME))
        if pause is not None and before.pause != pause:
            self._tell(f"{where} stands, nothing is read or written until it is removed: {pause}")
        elif pause is None and before.pause is not None:
            self._tell(f"{where} is gone: the work goes on")
        if ignored and ignored != before.ignored:
            self._tell(f"{where} is not obeyed: {ignored}")

    def _answer(self) -> RootPause | None:
        """Check the root; None: no answer. A hung mount holds a daemon thread, which does not keep the
        process."""
        if not self._asking.acquire(blocking=False):
            return None
        answers: SimpleQueue[RootPause | None] = SimpleQueue()

        def ask() -> None:
            try:
                answers.put(look(self._root))
            except OSError:
                answers.put(None)
            finally:
                self._asking.release()

        threading.Thread(target=ask, name="pause", daemon=True).start()
        try:
            return answers.get(timeout=self._within)
        except Empty:
            return None


_watches: list[PauseWatch] = []


@contextlib.contextmanager
def watching(watch: PauseWatch) -> Iterator[None]:
    """Have `standing` report the PAUSE at this watch's root, in all threads, while the block runs."""
    _watches.append(watch)
    try:
        yield
    finally:
        _watches.remove(watch)


def standing() -> Pause | None:
    """Return the PAUSE for which this process should rest; None while it may work, or watches no root."""
    return _watches[-1]() if _watches else None
