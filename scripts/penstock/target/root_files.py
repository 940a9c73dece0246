"""The files by which an administrator directs all work below a root: `PAUSE`, while which nothing reads or
writes data, and `HOLD`, which closes the gates of datasets and releases.
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
from penstock.host.heartbeat import HEARTBEAT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


# Reads the files by which an administrator directs all work below a root: `PAUSE` and `HOLD`.
#
# | `<root>/<name>`                                           | counts                                  |
# |-----------------------------------------------------------|-----------------------------------------|
# | is missing, or the root is                                | no                                      |
# | belongs to another account than uid 0 or the root's owner | no, and that is reported                |
# | a plain file with one name, of one of these two           | yes, also where its text cannot be read |
# | a link, a folder, a FIFO, a file with more names, of one  | yes, without its text: what was meant   |
# | of these two                                              | is in doubt, and a doubt closes         |


class RootFile(NamedTuple):
    """A file of that name, as it stands at the root."""

    by: str = ""  # the account that owns it
    text: str = ""  # its first bytes
    unread: str = ""  # why `text` is incomplete; "" where it is whole
    ignored: str = ""  # why it does not count; "" where it does


def read_root_file(root: Path, name: str, most: int) -> RootFile | None:
    """Read the file, at most `most` bytes of text. Raises OSError where the root does not answer."""
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


# `<root>/PAUSE`: while this file stands, whatever works below the root neither reads nor writes data.
#
# An administrator makes it with a text for people (`echo "BeeGFS is being updated, until 18:00" > PAUSE`),
# and removes it. `root_files` decides whose file counts.
#
# | what works below the root            | while PAUSE stands                                               |
# |--------------------------------------|------------------------------------------------------------------|
# | workers of an element                | hold before the next row or block (`engine.stream`)              |
# | an element                           | holds before it begins; its lock, notice and progress go on      |
# | an element whose time limit comes    | ends with its state kept; that uses up no retry                  |
# | a step                               | holds before it takes the lock, and wherever it checks for a stop |
# | arrays                               | those that live go on and hold; no further one is submitted      |
# | status, path, gate, cancel, limit    | answer                                                           |
#
# A process checks every EVERY seconds at most, by an lstat in its own thread. So all rest within EVERY
# seconds and the time of a block or row; where folders are cached (NFS, acdirmax) up to that much later.
# Steps, engine and arrays call `standing_pause`, and wait themselves.

PAUSE_NAME = "PAUSE"
EVERY = HEARTBEAT / 2  # seconds between two checks of a process: 5
LONGEST_PAUSE = 2048  # bytes of the text that are read
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


def look_for_pause(root: Path) -> RootPause:
    """Read PAUSE at this root, without a time limit. Raises OSError where the root does not answer."""
    file = read_root_file(root, PAUSE_NAME, LONGEST_PAUSE)
    if file is None:
        return RootPause()
    if file.ignored:
        return RootPause(ignored=file.ignored)
    return RootPause(Pause(printable(" ".join((file.text or file.unread).split())), file.by))


def words(root: Path) -> str:
    """Return the text of the PAUSE, or why it does not count, for messages; "" for no PAUSE or no answer."""
    try:
        pause, ignored = look_for_pause(root)
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
        where = printable(str(self._root / PAUSE_NAME))
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
    """Have `standing_pause` report the PAUSE at this watch's root, in all threads, while the block runs."""
    _watches.append(watch)
    try:
        yield
    finally:
        _watches.remove(watch)


def standing_pause() -> Pause | None:
    """Return the PAUSE for which this process should rest; None while it may work, or watches no root."""
    return _watches[-1]() if _watches else None


# `<root>/HOLD`: a file by which a root's owner or administrator closes the gates of datasets and releases.
#
# A gate (`dataset.gate`) is the check before a training job reads a release. `root_files` decides whose file
# counts.
#
#     # storage target 17 lost bytes, ticket 4711
#     imagenet                 read again first
#     coco/20260314-5f0c2a91   the same
#
# | a line                                                   | holds                                    |
# | -------------------------------------------------------- | ---------------------------------------- |
# | `dataset reason`                                         | the dataset: each release, also those to |
# |                                                          | come                                     |
# | `dataset/release reason`                                 | that release                             |
# | is empty, or begins with `#`                             | nothing                                  |
# | any other                                                | every dataset below the root: nobody     |
# |                                                          | knows what it was meant to close         |
# | a file that counts, and cannot be read, or has more than | the same                                 |
# | LONGEST_HOLD bytes or a second name                      |                                          |
#
# Nothing is remembered: without its line, or without the file, a gate opens at once.

HOLD_NAME = "HOLD"
LONGEST_HOLD = 64 << 10  # bytes of the file: some thousand lines
NAMED = 10  # lines named in one warning
LONGEST_REASON = 500  # characters of a reason that are shown


class Hold(NamedTuple):
    """One line of a HOLD that counts."""

    line: int  # counted from 1; 0 where the whole file could not be read
    dataset: str  # "" holds every dataset
    release: str  # "" holds each release
    reason: str
    by: str  # the account that owns the file

    @property
    def name(self) -> str:
        """`dataset` or `dataset/release`, as in the file; "" for every dataset."""
        return f"{self.dataset}/{self.release}" if self.release else self.dataset

    def covers(self, release: str) -> bool:
        """Return whether this line holds the release; for "", whether it holds all releases."""
        return self.release in ("", release)

    def __str__(self) -> str:
        return f"{self.reason} (by {self.by})"


def of_dataset(layout: DatasetLayout) -> list[Hold]:
    """Return the lines that hold the dataset, or releases of it, in order."""
    file = read_root_file(layout.root, HOLD_NAME, LONGEST_HOLD)
    return [hold for hold in _holds(file) if hold.dataset in ("", layout.dataset)]


def standing_holds(layout: DatasetLayout, release: str = "") -> Hold | None:
    """Return the first line that holds this release or, without a release, all of the dataset."""
    return next((hold for hold in of_dataset(layout) if hold.covers(release)), None)


def warning(root: Path) -> str:
    """Explain why a HOLD at this root may not do what was meant; "" for no problem."""
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
        pass  # this account may not look there
    return True
