"""Small files with which accounts that share a target inform each other. While an administrator's file PAUSE
exists in a root, no process reads or writes data; the file HOLD closes the gates of datasets and releases.
Notices and postings are JSON files of owners and readers.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.core import typed_json
from penstock.core.errors import FailedError
from penstock.core.human import brief, in_quotes, printable
from penstock.core.layout import DATASET_NAME, RELEASE_NAME, DatasetLayout
from penstock.fs import owners, small_files
from penstock.fs.owners import account
from penstock.fs.safe_open import EXHAUSTED, OPEN_FOLDER, PASSING, set_owner_mode
from penstock.fs.safe_open import printable as printable_path
from penstock.host.waits import HEARTBEAT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from penstock.core.posix_acl import Acl


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


def holds_below(root: Path) -> list[Hold]:
    """Return all lines of the root's file, in order."""
    return list(_holds(read_root_file(root, HOLD_NAME, LONGEST_HOLD)))


def of_dataset(layout: DatasetLayout, holds: Sequence[Hold] | None = None) -> list[Hold]:
    """Return the lines that hold the dataset or any of its releases, in order. `holds`: the file's lines;
    None: read them now."""
    holds = holds_below(layout.root) if holds is None else holds
    return [hold for hold in holds if hold.dataset in ("", layout.dataset)]


def standing_holds(
    layout: DatasetLayout, release: str = "", holds: Sequence[Hold] | None = None
) -> Hold | None:
    """Return the first line that holds this release or, without a release, the whole dataset."""
    return next((hold for hold in of_dataset(layout, holds) if hold.covers(release)), None)


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


# Small JSON files with which accounts that share a target inform each other: notices and postings.
#
# | file                     | folder                 | written by  | a reader trusts              | mode |
# |--------------------------|------------------------|-------------|------------------------------|------|
# | a notice                 | only its owner may     | the owner   | its content, whichever       | 0644 |
# |                          | write in it            |             | account the file belongs to  |      |
# | a posting: a message of  | many accounts may      | any account | that its maker says so       | 0644 |
# | one account to all       | write, sticky (1777)   |             |                              |      |
#
# Notices report the last audit (`dataset.release_records`) and who stages now (`dataset.staging_notice`).
# Postings are readers' pins (`dataset.pins`). The mark of a removal (`keep.removals`) is a notice made like a
# posting, so that only one process can make it. All functions except `touch` are durable on return.
#
# A notice is trusted because only its folder's owner and root can make a file there. The file's account does
# not count: a restore by root, or a partial chown, must neither close a gate nor forget the findings.
#
# The kernel states who made a posting (`st_uid` of the open file); its name and content prove nothing. O_EXCL
# gives a name to one account, and the sticky folder keeps others from changing the file. A file that is not
# plain, is too long, or is a further name of a file in the folder is no posting. Such a file is only counted.
# A hard link elsewhere, as backups make, does not matter. A posting is incomplete while its maker writes it,
# or if its maker died. An incomplete posting keeps its name, and its `value` is None.
#
# Postings are for people, and for decisions that cost little when wrong: quotas and modes enforce a rule,
# files only ask. Another node's listing of a folder may be some seconds old, but O_EXCL never is.

READABLE = 0o644
FOLDER_OF_OWNER = 0o755
FOLDER_OF_ALL = 0o1777
OF_OTHERS = stat.S_IWGRP | stat.S_IWOTH
LONGEST = 1 << 16  # bytes in a posting, at most
# Errors after which a posting may still exist. EAGAIN is not among them, since an account can cause it for
# its own file by a lease.
UNANSWERED = (PASSING | EXHAUSTED) - {errno.EAGAIN, errno.EBUSY}
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Posting(NamedTuple):
    """A message of one account to all others."""

    name: str
    uid: int  # the account that made the posting
    made: float  # the file's modification time, in seconds since the epoch, by the file system's clock
    value: Any  # the message; None if the posting is incomplete


class Postings(NamedTuple):
    """The postings in a folder in which many accounts may write."""

    posted: list[Posting]  # the postings, sorted by name
    # number of names that are no postings: files not plain, too long, unreadable, or removed meanwhile
    others: int


def write_notice(path: Path, value: Any) -> None:
    """Make or replace a whole notice, and make its folder."""
    small_files.make_dirs(path.parent, FOLDER_OF_OWNER)
    small_files.write_json(path, value, mode=READABLE)


def read_notice(path: Path) -> bytes:
    """Read a notice of any account. Raises FailedError for a file that is not plain, or too large."""
    try:
        return small_files.read(path)
    except small_files.NotPlainError as error:
        raise FailedError(
            "a file for readers cannot be read",
            where=printable_path(str(path)),
            why=str(error),
            hint="move it away; the owner's next audit writes it anew",
        ) from None


def forget_notice(path: Path) -> None:
    """Remove a notice, if it exists. Raises OSError."""
    if os.path.lexists(path):
        path.unlink()
        small_files.fsync_dir(path.parent)


def make_folder_as_above(path: Path) -> None:
    """Make a folder for postings of all accounts that may write in the folder above.

    The new folder takes the mode and group of the folder above. If group or others may write, it is sticky
    (1777 in a folder like /tmp), so that each account can change only its own postings. Raises FailedError if
    the path is no folder, or others may remove files in it.
    """
    above = stat.S_IMODE(path.parent.stat().st_mode) & (stat.S_ISGID | FOLDER_OF_ALL)
    small_files.make_dirs(path, above | stat.S_ISVTX if above & OF_OTHERS else above)
    status = path.lstat()
    alone = not status.st_mode & OF_OTHERS
    if not stat.S_ISDIR(status.st_mode) or not (alone or status.st_mode & stat.S_ISVTX):
        raise FailedError(
            "a folder of many accounts is not safe",
            where=printable_path(str(path)),
            why=f"mode {stat.S_IMODE(status.st_mode):04o}: others may remove what this account makes in it",
            hint=f"chmod {FOLDER_OF_ALL:o} {path}, as its owner",
        )


def make_folder_for_readers(path: Path, like: Path) -> None:
    """Make or correct a sticky folder in which all accounts that may read the folder `like` may post.

    The modes and ACL of `like` say whether owner, group, everybody, and the ACL's users and groups may read
    it. Raises FailedError if the folder belongs to another account.
    """
    small_files.make_dirs(path, 0o700)
    status, acl = like.stat(), _acl(like)
    # With an ACL the group bits of the mode are its mask.
    mode = 0o1700 | sum(7 * bit for bit in (0o010, 0o001) if status.st_mode & (bit << 2))
    fd = os.open(path, OPEN_FOLDER)
    try:
        status_now = os.fstat(fd)
        if status_now.st_uid != os.geteuid():
            raise FailedError(
                "a folder for readers is another account's",
                where=printable_path(str(path)),
                hint="move it away",
            )
        if _give_rights(fd, mode, status.st_gid, status_now.st_mode & stat.S_ISGID, acl):
            os.fsync(fd)
    finally:
        os.close(fd)


def post(folder: Path, name: str, value: Any) -> bool:
    """Make a posting. Returns False if a posting has that name. On an error, the name is free again."""
    try:
        fd = os.open(folder / name, _NEW, READABLE)
    except FileExistsError:
        return False
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, READABLE)
            file.write(json.dumps(value, sort_keys=True, allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(fd)
        small_files.fsync_dir(folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(folder / name)
        raise
    return True


def touch(folder: Path, name: str) -> None:
    """Set a posting's or notice's time to now, by the file system's clock, since its process still runs."""
    os.utime(folder / name, follow_symlinks=False)


def withdraw(folder: Path, name: str) -> None:
    """Remove a posting of this account, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(folder / name)
    small_files.fsync_dir(folder)


def posting_names(folder: Path) -> list[str]:
    """Return the sorted names of all postings, without opening any file. Skips dot files."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except FileNotFoundError:
        return []


def postings(folder: Path, names: Sequence[str] | None = None) -> Postings:
    """Read the postings of these names, or all. Raises OSError if the file system is unresponsive."""
    names = posting_names(folder) if names is None else names
    met: set[int] = set()
    read = [_posting(folder, name, met) for name in names]
    posted = [posting for posting in read if posting is not None]
    return Postings(posted, len(names) - len(posted))


def _acl(folder: Path) -> Acl | None:
    try:
        return owners.read_acl(folder)
    except OSError as error:
        if error.errno in owners.NONE_KEPT:
            return None
        raise


def _give_rights(fd: int, mode: int, gid: int, setgid: int, acl: Acl | None) -> bool:
    """Give a folder mode and group, and full rights to each ACL entry that may read. Returns whether it
    changed."""
    changed = set_owner_mode(fd, mode | setgid, gid)
    if acl is not None:
        wanted = tuple(entry._replace(bits=7 if entry.bits & 4 else 0) for entry in acl)
        if owners.read_acl(fd) != wanted:
            owners.write_acl(fd, wanted)
            set_owner_mode(fd, os.fstat(fd).st_mode & 0o777 | 0o1000 | setgid, None)
            changed = True
    return changed


def _posting(folder: Path, name: str, met: set[int]) -> Posting | None:
    """Read a posting, and add its inode to `met`. Returns None for no posting, or an inode in `met`."""
    try:
        fd = small_files.descriptor(folder / name)
    except OSError as error:
        if error.errno in UNANSWERED:
            raise
        # The posting was withdrawn, is no plain file, or has a mode that keeps readers out.
        return None
    status = os.fstat(fd)
    if status.st_ino in met or status.st_size > LONGEST:
        os.close(fd)
        return None
    met.add(status.st_ino)
    try:
        value = typed_json.bounded_loads(small_files.content(fd, LONGEST))
    except ValueError:
        value = None
    return Posting(name, status.st_uid, status.st_mtime, value)
