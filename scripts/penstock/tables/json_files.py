"""JSON files of rows: lines of any document, read as a stream in bounded memory; a source's empty folders, if
the dataset keeps them (`empty_folders: keep`); and the intervals in which penstock itself moved the ctimes of
files that releases share.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from bisect import bisect_right
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from penstock.core import dataset_documents, typed_json
from penstock.core.dataset_documents import EMPTY_FOLDERS, CtimeInterval, EmptyFolders
from penstock.core.errors import STATE_ANEW, FailedError, NewerFormatError, PenstockError
from penstock.fs import small_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path


T = TypeVar("T")


def write_lines(path: Path, lines: Iterable[object]) -> None:
    """Write documents (`typed_json`) as they come, durably. The file gets its name once it is complete."""
    with small_files.Growing(path) as file:
        for line in lines:
            file.stream.write(small_files.json_line(typed_json.plain(line)))
        file.close()


def read_lines(path: Path, parse: Callable[[bytes], T], what: str) -> Iterator[T]:
    """Yield the parsed lines in order. `parse` raises ValueError for a damaged line. Raises FailedError if
    the file is damaged or missing, with a message that `what` cannot be read."""
    try:
        with small_files.opened(path) as stream:
            for line in small_files.lines(stream):
                yield parse(line)
    except (OSError, ValueError, KeyError) as error:
        raise FailedError(
            f"{what} cannot be read", where=str(path), why=str(error), hint=STATE_ANEW
        ) from error


def write_empty_folders(path: Path, folders: Sequence[str], *, mode: int = 0o600) -> None:
    """Write the folders' paths durably, in the given order. Raises OSError."""
    small_files.write_json(path, EMPTY_FOLDERS.to_json(EmptyFolders(folders)), mode=mode)


def read_empty_folders(path: Path) -> tuple[str, ...]:
    """Read the paths; () if the file is missing, since the release then keeps no empty folders. Raises
    FailedError for an unreadable file, NewerFormatError."""
    try:
        return tuple(EMPTY_FOLDERS.from_json(small_files.read(path), path).folders)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise FailedError(
            "the list of empty folders cannot be read", where=str(path), why=str(error), hint=STATE_ANEW
        ) from None


def empty_folders_digest(folders: Iterable[str]) -> str:
    """Return `sha256:<hex>` of the paths in the given order; "" if there are no paths."""
    text = b"\0".join(map(os.fsencode, folders))
    return f"sha256:{hashlib.sha256(text).hexdigest()}" if text else ""


class KeptFolders:
    """The listed empty folders of a tree, ticked off while the tree is walked."""

    def __init__(self, folders: Iterable[str]) -> None:
        self._missing = set(folders)
        self._known = set(self._missing)
        for folder in self._missing:
            above = folder.rpartition("/")[0]
            while above and above not in self._known:
                self._known.add(above)
                above = above.rpartition("/")[0]

    def meet(self, folder: str) -> bool:
        """Tick off a listed folder. Return whether it is listed, or contains a listed folder."""
        self._missing.discard(folder)
        return folder in self._known

    def missing(self) -> list[str]:
        """Return the listed folders that were not ticked off, in byte order."""
        return sorted(self._missing, key=os.fsencode)


# The intervals in which penstock itself moved the ctimes of files that releases share.
#
# A file that was read back is recognised by inode, size and times. But each link and unlink moves the ctime
# of all names of a file, and penstock does both each night. So a process that links or unlinks records an
# interval. A ctime inside that interval does not mean that the bytes changed.
#
# Both ends are ctimes from the file system, so no host's clock matters. An interval is written after the
# changes that it excuses. If the process is killed before it records a change, the changed file is read back.
# Each process writes its own file, `intervals/<name>`. The next command that writes to the dataset, and so
# holds its lock, moves the interval to the history (`dataset.release_records`).

EVERY = 2.0  # seconds between two saves: at most their links and unlinks are missing if the process is killed
LINES = 4  # most lines that a command that adds intervals leaves in the history for one release
SUFFIX = ".json"  # suffix of an interval's file


class CtimeRecorder:
    """Widens an interval to include each ctime, from any thread. Saves it now and then, and at the end."""

    def __init__(self, folder: Path, line: CtimeInterval) -> None:
        """`line`: states dataset, release and account; the ends in it are ignored."""
        self._path = folder / f"{secrets.token_hex(8)}{SUFFIX}"
        self._line = line
        self._lock = Lock()
        self._ends: tuple[int, int] | None = None
        self._written: tuple[int, int] | None = None
        self._since = time.monotonic()

    def __call__(self, ctime_ns: int) -> None:
        with self._lock:
            first, last = self._ends or (ctime_ns, ctime_ns)
            self._ends = min(first, ctime_ns), max(last, ctime_ns)
            if time.monotonic() - self._since >= EVERY:
                self._write()

    def close(self) -> None:
        """Make the interval durable. If a full file system prevents that, the interval is lost, and the files
        that it would have excused are read."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        self._since = time.monotonic()
        if self._ends is None or self._ends == self._written:
            return
        first, last = self._written = self._ends
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = replace(self._line, at=at, first_ns=first, last_ns=last)
        with contextlib.suppress(OSError, PenstockError):
            small_files.make_dirs(self._path.parent)
            small_files.write_json(self._path, dataset_documents.line_to_json(line))


def pending_intervals(folder: Path) -> dict[Path, CtimeInterval]:
    """Return the intervals that are not in the history yet, by file. Unreadable intervals are left out."""
    intervals: dict[Path, CtimeInterval] = {}
    with contextlib.suppress(OSError):
        for name in sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX)):
            with contextlib.suppress(OSError, ValueError, NewerFormatError):
                path = folder / name
                line = dataset_documents.line_from_json(small_files.read(path), path)
                if isinstance(line, CtimeInterval):
                    intervals[path] = line
    return intervals


class CtimeIntervals:
    def __init__(self, intervals: Iterable[tuple[int, int]]) -> None:
        """`intervals`: first and last nanosecond of each interval."""
        joined = merged_intervals(intervals)
        self._starts = [first for first, _ in joined]
        self._ends = [last for _, last in joined]

    def __contains__(self, ctime_ns: int) -> bool:
        place = bisect_right(self._starts, ctime_ns) - 1
        return place >= 0 and ctime_ns <= self._ends[place]


def merged_intervals(intervals: Iterable[tuple[int, int]], most: int | None = None) -> list[tuple[int, int]]:
    """Merge intervals into as few as possible, in order. If more than `most` remain, join the nearest
    neighbours, with the time between them."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(intervals):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        elif first <= last:
            joined.append((first, last))
    if most is None or len(joined) <= most:
        return joined
    gaps = [after[0] - before[1] for before, after in pairwise(joined)]
    kept = sorted(sorted(range(len(gaps)), key=gaps.__getitem__)[len(gaps) - most + 1 :])
    starts, ends = [0, *(gap + 1 for gap in kept)], [*kept, len(joined) - 1]
    return [(joined[first][0], joined[last][1]) for first, last in zip(starts, ends, strict=True)]
