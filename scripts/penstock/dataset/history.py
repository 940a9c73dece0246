"""`history.jsonl`: a line for each publication, rollback, removal, repair and later signing of a dataset's
releases, and for each reader's pin that the owner took back.

It lies in the dataset's state, apart from the releases. This module alone writes it: publish and the commands
of `keep` append here, under the dataset's lock. All rooms read it here, but `look.history_lines`, which reads
the file by itself and shows it to people. Touches that file and those of intervals, nothing else.

Its lines also say when penstock itself moved the ctime of files that releases share by hard links
(`ctime_intervals`, written down in small files first): an audit must not take that for a change from
outside.
"""

from __future__ import annotations

import contextlib
import getpass
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.core.documents import history_line
from penstock.core.documents.history_line import Author, CtimeInterval, Publication, Signing
from penstock.core.errors import NewerFormatError
from penstock.fs import durable, plain_files
from penstock.host.job_environment import host_name
from penstock.tables import ctime_intervals
from penstock.tables.ctime_intervals import LINES, Intervals, Recorder, merged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.documents.history_line import HistoryLine
    from penstock.core.layout import DatasetLayout


MOST_DAMAGED = 1000
"""Damaged lines that are passed over; a crash damages one. A file with more of them is no history."""


def lines(layout: DatasetLayout) -> Iterator[HistoryLine]:
    """The lines, newest first; of no history none. A line that is damaged, as a crash leaves it, is passed
    over. Raises, while it is iterated, NewerFormatError, and OSError when the file is there and cannot be
    read, or is no history."""
    try:
        content = plain_files.read(layout.history)
    except (FileNotFoundError, NotADirectoryError):  # its state may lie below another `target.state_root`
        return
    damaged = 0
    for raw in plain_files.backwards(content):
        try:
            line = history_line.from_json(raw, layout.history)
        except ValueError:
            damaged += 1
            if damaged > MOST_DAMAGED:
                raise plain_files.NotPlainError(
                    f"more than {MOST_DAMAGED} of its lines are damaged", layout.history
                ) from None
            continue
        yield line


def append(layout: DatasetLayout, line: HistoryLine) -> None:
    """Add a line, durably. The caller holds the dataset's lock. Raises OSError."""
    durable.append_line(layout.history, history_line.to_json(line))


def intervals(layout: DatasetLayout) -> Intervals:
    """When penstock moved ctimes of files that releases share: by the history, and by the files that
    processes wrote since. What cannot be read is left out, so that such a change counts as one from
    outside."""
    known: list[HistoryLine] = list(ctime_intervals.pending(layout.intervals).values())
    with contextlib.suppress(OSError, NewerFormatError):
        known += lines(layout)
    return Intervals((one.first_ns, one.last_ns) for one in known if isinstance(one, CtimeInterval))


@contextlib.contextmanager
def moving(layout: DatasetLayout, release: str) -> Iterator[Recorder]:
    """What is to be called with each ctime, in nanoseconds, that the body moves of files that releases share;
    `release`: what they are linked into, or removed from. Needs no lock: it writes a file of its own. Where
    that cannot be written, there is no interval, and no error."""
    moved = Recorder(layout.intervals, moves_of(layout, release))
    try:
        yield moved
    finally:
        moved.close()


def moves_of(layout: DatasetLayout, release: str) -> CtimeInterval:
    """The line, without its times, of an interval in which this process moves ctimes."""
    return CtimeInterval(dataset=layout.dataset, release=release, author=this_author())


def note_intervals(layout: DatasetLayout) -> None:
    """Make lines of the intervals that processes wrote down, a few for each release, and remove their files.
    The caller holds the dataset's lock. May be done again after a kill: a line that then stands twice does no
    harm. Raises OSError."""
    pending = ctime_intervals.pending(layout.intervals)
    for release in dict.fromkeys(line.release for line in pending.values()):
        of_release = {path: line for path, line in pending.items() if line.release == release}
        last = next(reversed(of_release.values()))
        ends = [(one.first_ns, one.last_ns) for one in of_release.values()]
        for first_ns, last_ns in merged(ends, LINES):
            append(layout, replace(last, first_ns=first_ns, last_ns=last_ns))
        for path in of_release:
            path.unlink(missing_ok=True)


def this_author() -> Author:
    """The account and the node of this process."""
    return Author(user(), os.geteuid(), host_name())


def user() -> str:
    """The account's name, or its number where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.geteuid()}"


def published_seal(layout: DatasetLayout, release: str) -> str | None:
    """`sha256:<hex>` of the release's seal as it was published, or signed since; None where no line says so.
    Raises as `lines`."""
    found = (one for one in lines(layout) if isinstance(one, Publication | Signing))
    return next((one.seal for one in found if one.release == release and one.seal), None)


def claim_of(layout: DatasetLayout, run: str) -> int:
    """The number of the claim by which the run was published last, 0 where no line says so. Raises as
    `lines`."""
    found = (one for one in _publications(layout) if one.run == run)
    return next((one.claim or 0 for one in found), 0)


def last_claim(layout: DatasetLayout) -> int:
    """The highest number of a run's claim that a line names, 0 without one. Raises as `lines`."""
    return max((line.claim or 0 for line in lines(layout)), default=0)


def _publications(layout: DatasetLayout) -> Iterator[Publication]:
    return (line for line in lines(layout) if isinstance(line, Publication))
