"""The files with which an administrator controls all work below a root. While the file PAUSE exists, no
process reads or writes data. The file HOLD closes the gates of datasets and releases.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.human import brief, in_quotes, printable
from penstock.core.layout import DATASET_NAME, RELEASE_NAME, DatasetLayout
from penstock.fs import small_files
from penstock.fs.owners import account
from penstock.host.waits import HEARTBEAT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


# Whether PAUSE or HOLD counts:
#
# | the file                                                  | counts                                  |
# |-----------------------------------------------------------|-----------------------------------------|
# | the file, or the root, is missing                         | no                                      |
# | neither uid 0 nor the root's owner owns it                | no, and that is reported                |
# | uid 0 or the root's owner owns it, and it is a plain file | yes, even if its text cannot be read    |
# | with one name                                             |                                         |
# | uid 0 or the root's owner owns it, and it is a link, a    | yes, without its text: in doubt,        |
# | folder, a FIFO, or a file with several names              | penstock pauses or closes               |


class RootFile(NamedTuple):
    """A PAUSE or HOLD file at the root."""

    by: str = ""  # the account that owns the file
    text: str = ""  # the file's first bytes
    unread: str = ""  # why `text` is incomplete; "" if it is complete
    ignored: str = ""  # why the file does not count; "" if it counts


def read_root_file(root: Path, name: str, most: int) -> RootFile | None:
    """Read at most `most` bytes of the file. Raises OSError if the root's file system is unresponsive."""
    path = root / name
    try:
        status, owner = path.lstat(), root.stat().st_uid
    except (FileNotFoundError, NotADirectoryError):
        return None
    by = account(status.st_uid)
    if status.st_uid not in (0, owner):
        return RootFile(by, ignored=f"it belongs to {by}, and not to the root's owner or to root")
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        return RootFile(by, unread="it is no plain file with one name")
    try:
        with small_files.opened(path) as file:
            content = file.read(most + 1)
    except OSError as error:
        return RootFile(by, unread=f"it cannot be read by this account: {error.strerror}")
    unread = f"it has more than {most} bytes" if len(content) > most else ""
    return RootFile(by, content[:most].decode("utf-8", "replace"), unread)


# `<root>/PAUSE`: while this file exists, no process that works below the root reads or writes data.
#
# An administrator makes the file, with a text for people (`echo "BeeGFS is being updated, until 18:00" >
# PAUSE`). When the file is removed, the work continues.
#
# | what works below the root            | while the PAUSE file exists                                      |
# |--------------------------------------|------------------------------------------------------------------|
# | workers of an element                | they pause before the next row or block (`engine.stream`)        |
# | an element                           | it pauses before it begins, but keeps lock, notice and progress  |
# |                                      | up to date                                                       |
# | an element at its time limit         | it ends and keeps its state, which uses up no retry              |
# | a step                               | it pauses before it takes the lock, and at each check for a stop |
# | arrays                               | running arrays pause, and no further array is submitted          |
# | status, path, gate, cancel, limit    | they work as usual                                               |
#
# A process checks with an lstat in its own thread, at most every EVERY seconds. So all processes pause within
# EVERY seconds and the time of a block or row. If the file system caches folders (NFS, for acdirmax seconds),
# processes may pause later by the time of caching. Steps, engine and arrays call `standing_pause`, and wait
# themselves.

PAUSE_NAME = "PAUSE"
EVERY = HEARTBEAT / 2  # seconds between two checks of one process: 5
LONGEST_PAUSE = 2048  # number of bytes of the text that are read
ANSWER_WITHIN = 10.0  # seconds that a check of the root may take


class Pause(NamedTuple):
    """A PAUSE file that counts."""

    text: str  # the file's text as one printable line, or why it cannot be read; "" if the file is empty
    by: str  # the account that made it

    def __str__(self) -> str:
        return f"{self.by}: {self.text}" if self.text else f"by {self.by}, without a text"


class RootPause(NamedTuple):
    """The result of one check of a root."""

    pause: Pause | None = None
    ignored: str = ""  # why an existing PAUSE file does not count


def look_for_pause(root: Path) -> RootPause:
    """Read the root's PAUSE file, without a time limit. Raises OSError if the file system is unresponsive."""
    file = read_root_file(root, PAUSE_NAME, LONGEST_PAUSE)
    if file is None:
        return RootPause()
    if file.ignored:
        return RootPause(ignored=file.ignored)
    return RootPause(Pause(printable(" ".join((file.text or file.unread).split())), file.by))


def words(root: Path) -> str:
    """Return the PAUSE file's text, or why the file does not count, for messages. Returns "" if there is no
    such file, or the file system is unresponsive."""
    try:
        pause, ignored = look_for_pause(root)
    except OSError:
        return ""
    return str(pause) if pause else f"not obeyed: {ignored}" if ignored else ""


class PauseWatch:
    """Checks a root's PAUSE file regularly, for all threads of a process. It calls `tell` with a line when
    the file appears, disappears or is ignored."""

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
        self.stood_at = float("-inf")  # time of the last check that saw a PAUSE file that counts, by `clock`
        self._lock, self._asking = threading.Lock(), threading.Lock()

    def __call__(self) -> Pause | None:
        """Return the result of the last check, after a new check if that is more than `every` seconds old.

        It waits only once, for `within` seconds, for an unresponsive file system. Until the file system
        responds, the last result counts.
        """
        # One thread checks; other threads use the last result instead of waiting for the file system.
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
        where = printable(str(self._root / PAUSE_NAME))
        if pause is not None and before.pause != pause:
            self._tell(f"{where} stands, nothing is read or written until it is removed: {pause}")
        elif pause is None and before.pause is not None:
            self._tell(f"{where} is gone: the work goes on")
        if ignored and ignored != before.ignored:
            self._tell(f"{where} is not obeyed: {ignored}")

    def _answer(self) -> RootPause | None:
        """Check the root. Returns None if its file system is unresponsive. A mount that hangs blocks only a
        daemon thread, which does not keep the process from ending."""
        if not self._asking.acquire(blocking=False):
            return None
        answers: SimpleQueue[RootPause | None] = SimpleQueue()

        def ask() -> None:
            try:
                answers.put(look_for_pause(self._root))
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
    """While the block runs, `standing_pause` reports the PAUSE at this watch's root, in all threads."""
    _watches.append(watch)
    try:
        yield
    finally:
        _watches.remove(watch)


def standing_pause() -> Pause | None:
    """Return the PAUSE for which this process must wait; None if it may work or watches no root."""
    return _watches[-1]() if _watches else None


# `<root>/HOLD`: a file with which the root's owner or an administrator closes gates of datasets and releases.
#
# A gate (`dataset.gate`) is the check before a training job reads a release. An example of the file:
#
#     # storage target 17 lost bytes, ticket 4711
#     imagenet                 read again first
#     coco/20260314-5f0c2a91   the same
#
# | a line, or the file                                      | closes the gates of                      |
# | -------------------------------------------------------- | ---------------------------------------- |
# | `dataset reason`                                         | all releases of the dataset, including   |
# |                                                          | future ones                              |
# | `dataset/release reason`                                 | this release                             |
# | an empty line, or a line that begins with `#`            | no release                               |
# | any other line                                           | every dataset below the root, as nobody  |
# |                                                          | knows which dataset was meant            |
# | a file that counts, but cannot be read, or has more than | every dataset below the root             |
# | LONGEST_HOLD bytes or a second name                      |                                          |
#
# Penstock remembers no line: when its line, or the file, is removed, a gate opens at once.

HOLD_NAME = "HOLD"
LONGEST_HOLD = 64 << 10  # bytes in the file, at most: some thousand lines
NAMED = 10  # number of lines that a warning lists, at most
LONGEST_REASON = 500  # characters of a reason that are shown, at most


class Hold(NamedTuple):
    """One line of a HOLD file that counts. It closes gates ("holds" releases)."""

    line: int  # number of the line, from 1; 0 if the file could not be read
    dataset: str  # the dataset that the line holds; "" for every dataset
    release: str  # the release that the line holds; "" for all releases
    reason: str
    by: str  # the account that owns the file

    @property
    def name(self) -> str:
        """`dataset` or `dataset/release`, as in the file; "" for every dataset."""
        return f"{self.dataset}/{self.release}" if self.release else self.dataset

    def covers(self, release: str) -> bool:
        """Return whether this line holds the release or, for "", whether it holds all releases."""
        return self.release in ("", release)

    def __str__(self) -> str:
        return f"{self.reason} (by {self.by})"


def of_dataset(layout: DatasetLayout) -> list[Hold]:
    """Return the lines that hold the dataset or any of its releases, in order."""
    file = read_root_file(layout.root, HOLD_NAME, LONGEST_HOLD)
    return [hold for hold in _holds(file) if hold.dataset in ("", layout.dataset)]


def standing_holds(layout: DatasetLayout, release: str = "") -> Hold | None:
    """Return the first line that holds this release or, without a release, the whole dataset."""
    return next((hold for hold in of_dataset(layout) if hold.covers(release)), None)


def warning(root: Path) -> str:
    """Explain why the root's HOLD file may not work as intended. Returns "" if it has no problem."""
    try:
        file = read_root_file(root, HOLD_NAME, LONGEST_HOLD)
        if file is not None and file.ignored:
            return f"not obeyed: {file.ignored}"
        lost = [f"line {hold.line}: {hold.name}" for hold in _holds(file) if not _is_there(root, hold)]
    except OSError:
        return ""
    more = f" and {len(lost) - NAMED:,} more" if len(lost) > NAMED else ""
    return f"it names what is not below this root: {', '.join(lost[:NAMED])}{more}" if lost else ""


def _holds(file: RootFile | None) -> Iterator[Hold]:
    if file is None or file.ignored:
        return
    if file.unread:
        yield Hold(0, "", "", f"nobody can say what HOLD closes: {file.unread}", file.by)
        return
    for number, line in enumerate(file.text.splitlines(), start=1):
        words = line.split(None, 1)
        if not words or words[0].startswith("#"):
            continue
        dataset, slash, release = words[0].partition("/")
        if DATASET_NAME.fullmatch(dataset) and (RELEASE_NAME.fullmatch(release) or not slash):
            reason = brief(words[1].strip(), LONGEST_REASON) if len(words) > 1 else "without a reason"
            yield Hold(number, dataset, release, reason, file.by)
        else:
            name = in_quotes(brief(words[0]))
            why = f"line {number} of HOLD names neither dataset nor dataset/release: {name}"
            yield Hold(number, "", "", why, file.by)


def _is_there(root: Path, hold: Hold) -> bool:
    if not hold.dataset:
        return True
    layout = DatasetLayout(root, hold.dataset)
    try:
        os.lstat(layout.release(hold.release) if hold.release else layout.folder)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass  # this account may not read the file
    return True
