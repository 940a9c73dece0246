"""Walks a folder tree in canonical order, by descriptors, fast on a local disk and on a file system whose
calls wait for servers. A folder's content is kept as columns, and threads make the calls that wait.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import deque
from functools import partial
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from penstock.fs.safe_open import OPEN_FOLDER, open_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from concurrent.futures import Future, ThreadPoolExecutor

    from penstock.fs.readahead import Scouts, Ticket

    Item = TypeVar("Item")
    Answer = TypeVar("Answer")
    StatAnswer = os.stat_result | OSError


# Makes many calls to a file system: one after another if each takes a microsecond, or in threads if they
# wait.
#
# Threads cost more than a call that returns at once, but are useful if each call waits for a server. `Calls`
# times the first few calls and uses threads only if these wait.

WAITS = 1e-4  # seconds; calls count as waiting if the fastest of the last LOOKS calls took longer
LOOKS = 8  # number of calls that are timed before the decision, and whose times are remembered
# number of threads of a `Calls`; may exceed the number of CPUs, since most threads wait for a server
THREADS = 32
GROUP = 16  # number of calls that a thread takes at a time


class Calls:
    """Decides whether calls wait, and owns the threads that make calls that wait. For use in a single thread;
    must be closed. Once `waits` is True, it stays True."""

    def __init__(self) -> None:
        self.waits = False
        self._recent: deque[float] = deque(maxlen=LOOKS)
        self._pool: ThreadPoolExecutor | None = None

    def saw(self, seconds: float) -> None:
        """Record a call's duration. A fast call among the last few means that calls do not wait."""
        self._recent.append(seconds)
        if len(self._recent) == LOOKS and min(self._recent) > WAITS:
            self.waits = True

    def each(self, do: Callable[[Sequence[Item]], list[Answer]], items: Sequence[Item]) -> list[Answer]:
        """Apply `do` to all items, some at a time, and return the answers in the order of the items. Several
        threads may call `do` at once, perhaps with no items. Raises OSError if no thread can be started, and
        the errors of `do`; after such an error, other threads continue until `close`."""
        if self.waits:
            groups = [self.submit(do, items[at : at + GROUP]) for at in range(0, len(items), GROUP)]
            return [answer for group in groups for answer in group.result()]
        answers: list[Answer] = []
        for at in range(min(LOOKS, len(items))):
            began = perf_counter()
            answers += do(items[at : at + 1])
            self.saw(perf_counter() - began)
        rest = items[LOOKS:]
        return answers + (self.each(do, rest) if self.waits and rest else do(rest))

    def submit(self, do: Callable[..., Answer], *arguments: Any) -> Future[Answer]:
        """Call `do` in a thread, even if calls do not wait. Raises OSError if no thread can be started."""
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="calls")
        try:
            return self._pool.submit(do, *arguments)
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, f"{os.strerror(errno.EAGAIN)} ({error})") from None

    def close(self) -> None:
        """Wait for calls under way, drop calls that did not begin, and end the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# A folder's content: its names in order, and the lstat of its files, as columns.
#
# Columns are cheaper than many objects, both to process and to pass between processes. The module imports
# little, so that scouts (the processes of `readahead_process`) start fast.

# Kinds of a folder's names. BELOW: a folder. OTHER: neither file nor folder nor link. BROKEN: names are
# missing, since listing the folder ended early.
FILE, BELOW, LINK, OTHER, BROKEN = range(5)

# the result of an lstat, in the order of the columns of `Looked`
Row = tuple[int, int, int, int, int, int, int, int, int, int]
row = attrgetter(
    "st_mode",
    "st_size",
    "st_mtime_ns",
    "st_ctime_ns",
    "st_ino",
    "st_nlink",
    "st_uid",
    "st_gid",
    "st_dev",
    "st_blocks",
)
_NOTHING = os.stat_result((0,) * 19)


class Looked(NamedTuple):
    """Results of lstat for some names of a folder, in the order of the names."""

    mode: list[int]
    size: list[int]
    mtime_ns: list[int]
    ctime_ns: list[int]
    inode: list[int]
    links: list[int]
    uid: list[int]
    gid: list[int]
    device: list[int]
    blocks: list[int]  # numbers of allocated blocks of 512 bytes
    errors: dict[int, int]  # {index of a failed lstat: its errno}; the columns have zeros at that index


def look(fd: int, names: Sequence[str]) -> list[StatAnswer]:
    """Call lstat for each name in a folder, and return the results or errors."""
    answers: list[StatAnswer] = []
    stat, add = os.stat, answers.append
    for name in names:
        try:
            add(stat(name, dir_fd=fd, follow_symlinks=False))
        except OSError as error:
            add(error)
    return answers


def columns(answers: Sequence[StatAnswer]) -> Looked:
    """Turn the answers of `look` into columns."""
    errors: dict[int, int] = {}
    statuses: list[os.stat_result] = []
    for index, answer in enumerate(answers):
        if isinstance(answer, OSError):
            errors[index] = answer.errno or errno.EIO
            statuses.append(_NOTHING)
        else:
            statuses.append(answer)
    return Looked(
        [status.st_mode for status in statuses],
        [status.st_size for status in statuses],
        [status.st_mtime_ns for status in statuses],
        [status.st_ctime_ns for status in statuses],
        [status.st_ino for status in statuses],
        [status.st_nlink for status in statuses],
        [status.st_uid for status in statuses],
        [status.st_gid for status in statuses],
        [status.st_dev for status in statuses],
        [status.st_blocks for status in statuses],
        errors,
    )


def sliced(looked: Looked, start: int, stop: int) -> Looked:
    """Return the columns of the names from index `start` up to `stop`."""
    errors = {index - start: number for index, number in looked.errors.items() if start <= index < stop}
    mode, size, mtime, ctime, inode, links, uid, gid, device, blocks = (
        column[start:stop] for column in looked[:10]
    )
    return Looked(mode, size, mtime, ctime, inode, links, uid, gid, device, blocks, errors)


def failed(number: int) -> OSError:
    """Return the error for this errno."""
    return OSError(number, os.strerror(number))


def names_of(fd: int) -> tuple[list[str], bytes, OSError | None]:
    """Return a folder's names in canonical order, the kind of each name, and the error that ended the listing
    early, if any. The order is that of the paths' bytes, so a folder's name counts with a slash at its
    end."""
    keyed: list[tuple[str, str, int]] = []
    add = keyed.append
    error: OSError | None = None
    plain = True
    try:
        with os.scandir(fd) as items:
            for item in items:
                name = item.name
                plain = plain and name.isascii()
                if item.is_dir(follow_symlinks=False):
                    add((name + "/", name, BELOW))
                elif item.is_file(follow_symlinks=False):
                    add((name, name, FILE))
                elif item.is_symlink():
                    add((name, name, LINK))
                else:
                    # If the listing shows no kinds, an entry that has vanished matches none of the kinds. It
                    # is kept as a file, whose lstat will fail again.
                    gone = isinstance(look(fd, [name])[0], FileNotFoundError)
                    add((name, name, FILE if gone else OTHER))
    except OSError as ended:
        error = ended
    # If each character is a single byte, characters and bytes have the same order.
    keyed.sort(key=None if plain else lambda item: os.fsencode(item[0]))
    return [name for _, name, _ in keyed], bytes([kind for _, _, kind in keyed]), error


# The walk down a folder tree in canonical order.
#
# If calls wait for a server (`Calls`), many calls run at the same time, for groups of files and for folders
# ahead of the walk. In a large tree, further processes, called scouts, list the next folders (`readahead`).
# The numbers of folders and names that are listed ahead are bounded.

__all__ = ["BELOW", "BROKEN", "FILE", "LINK", "OTHER", "Level", "Siblings", "descend"]

AHEAD = 32  # number of a folder's subfolders that are listed ahead, at most
OPENED = 128  # number of folders that are listed ahead in the whole tree, at most
# number of names that are listed ahead for a folder, at most, estimated from the largest folder so far
NAMES = 200_000
NAMES_AT_ONCE = 512  # number of names that `Level.runs` yields together, at most
# number of a path's lowest levels whose folders are kept open; folders above are opened again when needed
DEPTH = 64
# Number of names from which on scouts are worth their start (a few hundredths of a second). If calls wait, a
# tenth of this number.
LARGE = 30_000


# stands in place of the top folder's lstat, since the walk does not report the top folder
_NOBODY: Row = (0,) * 10


class Names(NamedTuple):
    """A listed folder."""

    fd: int  # the folder's descriptor, to be closed by the caller; -1 if another process listed the folder
    names: list[str]
    kinds: bytes
    looked: Looked | None  # lstat results of the FILE names, if these were read ahead
    error: OSError | None  # the error that ended the listing early
    row: Row  # the lstat of the folder itself


def load(parent: int, name: str, few: int = 0) -> Names | OSError:
    """Open and list a folder, and call lstat for its files if there are at most `few`. Returns the OSError if
    the folder cannot be opened."""
    try:
        fd = os.open(name, OPEN_FOLDER, dir_fd=parent)
    except OSError as error:
        return error
    try:
        own = row(os.fstat(fd))
    except OSError as error:
        os.close(fd)
        return error
    names, kinds, ended = names_of(fd)
    looked = None
    if few and kinds.count(FILE) <= few:
        looked = columns(look(fd, [item for item, kind in zip(names, kinds, strict=True) if kind == FILE]))
    return Names(fd, names, kinds, looked, ended, own)


class Loader(Calls):
    """Opens folders and reads the lstat of their files, in this thread, in further threads or with scouts."""

    def __init__(self, root: int, *, names_only: bool) -> None:
        super().__init__()
        self.root, self.names_only = root, names_only
        # most files of a folder opened ahead for which lstat is called at once
        self.few = 0 if names_only else GROUP
        self.opened = 0  # number of folders that are listed ahead now
        self.largest = 1
        self.names = 0
        self._scouts: Scouts | None = None

    def came(self, names: int) -> None:
        """Count a further folder, with this number of names."""
        self.names += names
        self.largest = max(self.largest, names)

    def enter(self, parent: int, name: str) -> Names | OSError:
        """Call `load`, and record how long it takes."""
        began = perf_counter()
        loaded = load(parent, name)
        self.saw(perf_counter() - began)
        return loaded

    def scouts(self) -> Scouts | None:
        """Return the scouts, which are started when the tree proves large. Returns None before that, and in a
        walk that needs only names."""
        large = self.names >= (LARGE // 10 if self.waits else LARGE)
        if self._scouts is None and large and not self.names_only:
            # imported here, since workers never need it: they get the files from their source
            from penstock.fs.readahead import Scouts

            self._scouts = Scouts(self.root, waits=self.waits)
        return self._scouts

    def close(self) -> None:
        super().close()
        if self._scouts is not None:
            self._scouts.close()


class Level:
    """A folder on the walk's path down: its names in order, and the lstat of its files on demand."""

    def __init__(self, loader: Loader, loaded: Names, prefix: str) -> None:
        self.prefix = prefix
        self.error = loaded.error
        self._fd = loaded.fd
        self._names, self._kinds, self._at = loaded.names, loaded.kinds, 0
        self._loader = loader
        loader.came(len(loaded.names))
        self._folders: Sequence[str] = ()
        if BELOW in loaded.kinds:
            self._folders = [n for n, kind in zip(loaded.names, loaded.kinds, strict=True) if kind == BELOW]
        self._looked, self._given = loaded.looked, 0
        self._entered = 0
        self._ahead: deque[Future[Names | OSError] | Ticket] = deque()

    @property
    def fd(self) -> int:
        """The folder's descriptor, valid until the walk continues. Raises OSError if the folder had to be
        opened again and is gone."""
        if self._fd < 0:
            self._fd = open_dir(self._loader.root, self.prefix[:-1])
        return self._fd

    def runs(self) -> Iterator[tuple[int, Sequence[str]]]:
        """Yield the remaining names in order, as (kind, names). A folder comes alone. Consecutive names of
        any other single kind come together, up to NAMES_AT_ONCE."""
        names, kinds, end = self._names, self._kinds, len(self._names)
        while self._at < end:
            start = self._at
            kind = kinds[start]
            stop = start + 1
            if kind != BELOW:
                block = kinds[start : start + NAMES_AT_ONCE]
                stop = start + len(block) - len(block.lstrip(bytes((kind,))))
            self._at = stop
            yield kind, names[start:stop]

    def stats(self, names: Sequence[str]) -> Looked:
        """Return the lstat, or its error, for each of the next FILE names."""
        if self._looked is not None:
            start = self._given
            self._given += len(names)
            return sliced(self._looked, start, self._given)
        try:
            return columns(self._loader.each(partial(look, self.fd), names))
        except OSError as error:
            return columns([error] * len(names))

    def enter(self, name: str) -> Names | OSError:
        """Open the folder `name`, the next BELOW name."""
        self._entered += 1
        # An error while reading ahead concerns other folders, not this folder.
        with contextlib.suppress(OSError):
            self._look_ahead()
        try:
            loaded = self._next() if self._ahead else None
            return self._loader.enter(self.fd, name) if loaded is None else loaded
        except OSError as error:
            return error

    def _look_ahead(self) -> None:
        """Let threads or scouts list the next folders if that is faster."""
        loader, ahead = self._loader, self._ahead
        start = self._entered - 1 + len(ahead)
        folders = self._folders[start : start + AHEAD - len(ahead)]
        room = min(NAMES // loader.largest - len(ahead), OPENED - loader.opened)
        scouts = loader.scouts() if len(folders) + len(ahead) > 1 else None
        for name in folders[: max(room, not ahead)]:
            if scouts is not None and scouts.any_alive:
                if not scouts.has_room(path := self.prefix + name):
                    break
                ahead.append(scouts.request(path))
            elif loader.waits:
                ahead.append(loader.submit(load, self.fd, name, loader.few))
            else:
                break
            loader.opened += 1

    def _next(self) -> Names | OSError | None:
        """Take the first of the folders that were listed ahead. Returns None if its scout is gone."""
        self._loader.opened -= 1
        loaded = self._ahead.popleft().result()
        return loaded if loaded is None or isinstance(loaded, (Names, OSError)) else _names_read(loaded)

    def rest(self) -> None:
        """Close the descriptors, which are opened again when needed."""
        while self._ahead:
            self._loader.opened -= 1
            first = self._ahead.popleft()
            if not first.cancel():
                loaded = first.result()
                if isinstance(loaded, Names):
                    os.close(loaded.fd)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def _names_read(answer: tuple[Any, ...]) -> Names | OSError:
    """Convert a scout's answer for a folder."""
    if len(answer) == 1:
        return failed(answer[0])
    names, kinds, looked, ended, folder = answer
    return Names(
        -1,
        names,
        kinds,
        None if looked is None else Looked(*looked),
        failed(ended) if ended else None,
        folder,
    )


class Siblings(NamedTuple):
    """Consecutive names of one kind in a folder."""

    kind: int
    level: Level  # the names' folder; its `prefix` is "" or ends in a slash
    names: Sequence[str]  # a BELOW folder is entered next, unless it could not be opened; empty for BROKEN
    # lstat of a BELOW folder; None for any other kind, or if the folder could not be opened
    row: Row | None = None
    # why a BELOW folder could not be opened, or why a BROKEN listing ended early
    error: OSError | None = None


def descend(root: int, *, names_only: bool = False) -> Generator[Siblings]:
    """Walk everything below the descriptor `root` in ascending byte order of paths; close `root` at the end.

    A folder counts as its name with "/" after it, and comes before its content. Links are not followed. Call
    `level.stats` (the lstat of files) once for each Siblings of FILE, or never (`names_only`).

    At most DEPTH + OPENED descriptors are open. Memory grows with the largest folder, plus some dozen small
    folders if calls wait or the tree is large.
    """
    with Loader(root, names_only=names_only) as loader:
        inside, kinds, ended = names_of(root)
        levels = [Level(loader, Names(root, inside, kinds, None, ended, _NOBODY), "")]
        try:
            while levels:
                level = levels[-1]
                if level.error is not None:
                    error, level.error = level.error, None
                    yield Siblings(BROKEN, level, (), None, error)
                for kind, names in level.runs():
                    if kind != BELOW:
                        yield Siblings(kind, level, names)
                        continue
                    loaded = level.enter(names[0])
                    if isinstance(loaded, OSError):
                        yield Siblings(BELOW, level, names, None, loaded)
                        continue
                    levels.append(Level(loader, loaded, f"{level.prefix}{names[0]}/"))
                    if len(levels) > DEPTH:
                        # The top folder's descriptor is never closed here, since all other folders are opened
                        # again by their paths below it.
                        levels[-DEPTH].rest()
                    yield Siblings(BELOW, level, names, loaded.row)
                    break
                else:
                    levels.pop().rest()
        finally:
            for level in levels:
                level.rest()
