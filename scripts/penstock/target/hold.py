"""`<root>/HOLD`: a file by which a root's owner or administrator closes the gates of datasets and releases.

A gate (`dataset.gate`) is the check before a training job reads a release. `root_files` decides whose file
counts.

    # storage target 17 lost bytes, ticket 4711
    imagenet                 read again first
    coco/20260314-5f0c2a91   the same

| a line                                                     | holds                                     |
|------------------------------------------------------------|-------------------------------------------|
| `dataset reason`                                           | the dataset: each release, also those to  |
|                                                            | come                                      |
| `dataset/release reason`                                   | that release                              |
| is empty, or begins with `#`                               | nothing                                   |
| any other                                                  | every dataset below the root: nobody      |
|                                                            | knows what it was meant to close          |
| a file that counts, and cannot be read, or has more than   | the same                                  |
| LONGEST bytes or a second name                             |                                           |

Nothing is remembered: without its line, or without the file, a gate opens at once.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.human import brief, in_quotes
from penstock.core.layout import DATASET_NAME, RELEASE_NAME, DatasetLayout
from penstock.target import root_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.target.root_files import RootFile

NAME = "HOLD"
LONGEST = 64 << 10  # bytes of the file: some thousand lines
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
    file = root_files.look(layout.root, NAME, LONGEST)
    return [hold for hold in _holds(file) if hold.dataset in ("", layout.dataset)]


def standing(layout: DatasetLayout, release: str = "") -> Hold | None:
    """Return the first line that holds this release or, without a release, all of the dataset."""
    return next((hold for hold in of_dataset(layout) if hold.covers(release)), None)


def warning(root: Path) -> str:
    """Explain why a HOLD at this root may not do what was meant; "" for no problem."""
    try:
        file = root_files.look(root, NAME, LONGEST)
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
