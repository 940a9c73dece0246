"""`<root>/PAUSE`: while this file stands, whatever works below the root neither reads nor writes data.

An administrator makes it, with a text for people in it (`echo "BeeGFS is being updated, until 18:00" >
PAUSE`), and removes it again. Whose file counts is as `root_files` has it.

| what works below the root            | while PAUSE stands                                               |
|--------------------------------------|------------------------------------------------------------------|
| workers of an element                | hold before the next row or block (`engine.stream`)              |
| an element                           | holds before it begins; its lock, notice and progress go on      |
| an element whose time limit comes    | ends with its state kept; that uses up no retry                  |
| a step                               | holds before it takes the lock, and wherever it checks for a stop |
| arrays                               | those that live go on and hold; no further one is submitted      |
| status, path, gate, cancel, limit    | answer                                                           |

A process looks at most once in EVERY seconds, by one lstat. So all of them rest within EVERY seconds and what
one block or row takes; where folders are cached (NFS, acdirmax) up to that much later.

A command watches its root (`watching`) once it knows it; steps, engine and arrays ask `standing`. This module
reads that one file, in a thread of its own, and changes nothing; to wait is the callers' work.
"""

from __future__ import annotations

import contextlib
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.text import printable
from penstock.host.heartbeat import HEARTBEAT
from penstock.target import root_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NAME = "PAUSE"
EVERY = HEARTBEAT / 2
"""Seconds between two looks of a process: 5."""
LONGEST = 2048
"""Bytes of the text that are read."""
ANSWER_WITHIN = 10.0
"""Seconds that a root may take to answer one look."""


class Pause(NamedTuple):
    """A PAUSE that counts."""

    text: str
    """One printable line; "" where the file is empty. Of a file that cannot be read, why it cannot."""
    by: str
    """The account that made it."""

    def __str__(self) -> str:
        return f"{self.by}: {self.text}" if self.text else f"by {self.by}, without a text"


class RootPause(NamedTuple):
    """What one look at a root found."""

    pause: Pause | None = None
    ignored: str = ""
    """Why a file of that name does not count; "" where there is none, or it counts."""


def look(root: Path) -> RootPause:
    """Read PAUSE at this root, without a time limit. Raises OSError where the root does not answer."""
    file = root_files.look(root, NAME, LONGEST)
    if file is None:
        return RootPause()
    if file.ignored:
        return RootPause(ignored=file.ignored)
    return RootPause(Pause(printable(" ".join((file.text or file.unread).split())), file.by))


def words(root: Path) -> str:
    """For messages: the text of the PAUSE that stands, or why a file of that name does not count; "" where
    there is none, or the root does not answer."""
    try:
        pause, ignored = look(root)
    except OSError:
        return ""
    return str(pause) if pause else f"not obeyed: {ignored}" if ignored else ""


class PauseWatch:
    """Looks at a root now and then, for all threads of a process. `tell` gets a line when PAUSE comes, goes
    or is not obeyed."""

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
        self.stood_at = float("-inf")
        """When PAUSE stood at a look last, by the clock."""
        self._lock, self._asking = threading.Lock(), threading.Lock()

    def __call__(self) -> Pause | None:
        """The PAUSE that stood at the last look; None where none did. Looks anew where the last look is more
        than `every` seconds ago. A root that does not answer is waited for `within` seconds, once; until it
        answers, what was seen before counts."""
        # One thread looks; the others take what was seen last instead of waiting for a file system.
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
        """None: it is not known. A mount that hangs holds a thread that the process ends without."""
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
    """While inside, `standing` says what stands at the root of this watch, to all threads of this process."""
    _watches.append(watch)
    try:
        yield
    finally:
        _watches.remove(watch)


def standing() -> Pause | None:
    """The PAUSE that this process rests for now; None while it may work, or watches no root."""
    return _watches[-1]() if _watches else None
